package delivery

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/internal/lane"
)

// wakes are the notifications of messages that a claimer hears.
type wakes struct {
	arrive chan *nats.Msg
	group  string // of claimers, one of which is notified; "": all are
	subs   []*nats.Subscription
}

// listen hears the notifications of the claimers' queues, as one of its group.
func (c *Claimers) listen(w *wakes) error {
	group := c.group()
	if w.subs != nil && w.group == group {
		return nil
	}
	before := *w
	defer before.end() // what both hear is one look
	w.subs, w.group = nil, group
	for _, name := range c.Queues {
		sub, err := c.deliveries.conn.NC.ChanQueueSubscribe(c.deliveries.names.WakeClass(name), group, w.arrive)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		w.subs = append(w.subs, sub)
	}
	return nil
}

func (w *wakes) end() {
	for _, sub := range w.subs {
		_ = sub.Unsubscribe() // fails only on a closed connection
	}
}

// group names the claimers of which one is notified. They have the same labels, so what one of
// them can do, the others can.
func (c *Claimers) group() string {
	n := c.crowd.Group()
	if n == 0 {
		return ""
	}
	labels := fnv.New64a()
	for _, label := range slices.Sorted(slices.Values(c.Labels)) {
		fmt.Fprintf(labels, "%q", label)
	}
	return fmt.Sprintf("%x-%d", labels.Sum64(), n)
}

// A place is where jobs wait, and places are those where a notification was about something
// that these claimers may take.
type (
	place  struct{ class, lane string }
	places map[place]bool
)

// note takes in a notification. It may be the first of a class.
func (c *Claimers) note(msg *nats.Msg, woken places) {
	class, at := lane.Notified(msg)
	switch {
	case class == "":
		for _, class := range c.classes {
			woken[place{class, at}] = true
		}
	case lane.Serves(class, c.Queues, c.Labels):
		if !slices.Contains(c.classes, class) {
			c.classes = append(slices.Clip(c.classes), class)
		}
		woken[place{class, at}] = true
	}
}
