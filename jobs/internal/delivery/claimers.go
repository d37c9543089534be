package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/turnout"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// The lanes are served in the order of their priority, but of the claims that
// one process makes, one in NormalShare begins at the middle lane and one in
// LowShare at the last. That is the bound on how long a stream of better jobs
// can keep a job from its worker; the lanes of several classes share it.
const (
	NormalShare = 8
	LowShare    = 16
)

// pullMost is how many messages one request asks for at most, and inboxSize how many
// may wait in this process until they are read: those of some requests whose answers
// came late.
const (
	pullMost  = 128
	inboxSize = 8 * pullMost
)

// Poll is how often a claimer looks without a notification: notifications are not
// stored, and a redelivery sends none.
const Poll = 2 * time.Second

// handOut is for how long the broker may keep a request after it has notified of a message:
// it notifies when it has stored one, which is before it hands it out.
const handOut = 20 * time.Millisecond

// Claimers are those of one process that want the same jobs. One of them at a
// time asks the broker, for as many jobs as all of them wait for, and hands the
// others theirs. What follows a Delivery, each does by itself: no claimer waits
// for the writes of another one.
type Claimers struct {
	Config
	deliveries Deliveries
	asking     chan struct{} // held by the one that asks; guards what follows
	inbox      *inbox
	classes    []string // that these claimers serve, as of listed
	listed     time.Time
	found      int            // jobs so far
	next       map[string]int // by lane: which class is asked first
	crowd      turnout.Crowd  // of other processes that wait for the same

	mu      sync.Mutex
	waiting []chan Delivery // of the others, in the order in which they came
}

// A Config says what claimers want, and of what they ask.
type Config struct {
	Queues, Labels []string
	Lanes          *lane.Lanes
	Lease          time.Duration
	// Caps begins to read the caps of the pool, once for all messages that come together, and
	// returns what waits for them.
	Caps func(context.Context) func() (schedule.Caps, error)
	// Ready is called before the first look, and may be called again.
	Ready func(context.Context) error
}

// Claimers returns claimers of which none waits yet.
func (d Deliveries) Claimers(cfg Config) *Claimers {
	return &Claimers{Config: cfg, deliveries: d, asking: make(chan struct{}, 1), next: map[string]int{}}
}

// Wait returns a message for one claimer. An error says that ctx has ended, or
// that no wait helps.
func (c *Claimers) Wait(ctx context.Context) (Delivery, error) {
	mine := c.join()
	select {
	case d := <-mine:
		return d, nil
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		if d, handed := c.leave(mine); handed {
			// Best effort: without it, the broker offers the job again after the lease.
			_ = c.deliveries.Again(d)
		}
		return Delivery{}, context.Cause(ctx)
	}
	defer func() { <-c.asking }()
	if d, handed := c.leave(mine); handed {
		return d, nil
	}
	found, err := c.ask(ctx)
	if err != nil {
		return Delivery{}, err
	}
	for _, d := range found[1:] {
		if !c.hand(d) {
			_ = c.deliveries.Again(d) // as above
		}
	}
	return found[0], nil
}

// join queues one that waits for a message.
func (c *Claimers) join() chan Delivery {
	mine := make(chan Delivery, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, mine)
	return mine
}

// leave ends the wait of one, and returns the message that it was handed meanwhile.
func (c *Claimers) leave(mine chan Delivery) (d Delivery, handed bool) {
	if c.remove(mine) {
		return d, false
	}
	return <-mine, true
}

// remove reports whether one was still waiting.
func (c *Claimers) remove(mine chan Delivery) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(w chan Delivery) bool { return w == mine })
	return len(c.waiting) < n
}

// hand gives a message to the one that has waited the longest, if there is one.
func (c *Claimers) hand(d Delivery) bool {
	first := c.first()
	if first != nil {
		first <- d // it has room for the one
	}
	return first != nil
}

// first removes the one that has waited the longest; nil: none waits. It gets a message.
func (c *Claimers) first() chan Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return nil
	}
	first := c.waiting[0]
	c.waiting = c.waiting[1:]
	return first
}

// wanted is for how many the one that asks does so.
func (c *Claimers) wanted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(1+len(c.waiting), pullMost)
}

// ask waits until there is at least one message. The caller holds asking.
func (c *Claimers) ask(ctx context.Context) ([]Delivery, error) {
	heard := &wakes{arrive: make(chan *nats.Msg, inboxSize)}
	defer heard.end()
	if err := c.listen(heard); err != nil {
		return nil, err
	}
	if err := c.Ready(ctx); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	woken := places{}
	for missed := 0; ; missed++ {
		found, err := c.look(ctx, woken, missed > 0)
		c.crowd.Tell(len(woken) > 0, len(found) > 0)
		if len(found) > 0 || err != nil {
			return found, err
		}
		if err := c.listen(heard); err != nil {
			return nil, err
		}
		clear(woken)
		next.Reset(c.lookAgain(missed))
		if err := c.idle(ctx, heard.arrive, next.C, woken); err != nil {
			return nil, err
		}
		if len(woken) > 0 {
			missed = -1
		}
	}
}

// idle waits for a notification of something that these claimers may take, and notes the
// lanes of all that have come, or until it is time to look without one.
func (c *Claimers) idle(ctx context.Context, arrive <-chan *nats.Msg, look <-chan time.Time, woken places) error {
	for len(woken) == 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case msg := <-arrive:
			c.note(msg, woken)
		case <-look:
			return nil
		}
	}
	for {
		select {
		case msg := <-arrive:
			c.note(msg, woken)
		default:
			return nil
		}
	}
}

// lookAgain is how long a claimer sleeps that has found nothing so many times since
// the notification: a busy broker may hand the message out later than it keeps a request.
// One of a crowd leaves that to the others.
func (c *Claimers) lookAgain(missed int) time.Duration {
	echoes := []time.Duration{3 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}
	if missed < len(echoes) && c.crowd.Group() == 0 {
		return echoes[missed]
	}
	return min(Poll, c.Lease)
}

// look takes the messages that are there, at most as many as are wanted. Woken are the
// lanes in which there should be one; the others were empty just now. None: look into all.
func (c *Claimers) look(ctx context.Context, woken places, idle bool) ([]Delivery, error) {
	// A busy claimer need not look for new classes each time.
	if idle || time.Since(c.listed) > Poll || len(c.classes) == 0 {
		classes, err := c.Lanes.Served(ctx, c.Queues, c.Labels)
		if errors.Is(err, jobs.ErrForbidden) {
			return nil, fmt.Errorf("claim: %w", err)
		}
		if err != nil {
			return nil, c.closed() // looked again soon, as if nothing were there
		}
		c.classes, c.listed = classes, time.Now()
	}
	var found []Delivery
	empty := map[string]bool{} // of the lanes
	for _, share := range c.shares(c.wanted()) {
		for _, lane := range share.lanes {
			if share.n == 0 || empty[lane] {
				continue
			}
			more, err := c.lookInto(ctx, lane, share.n, woken)
			if found = append(found, more...); err != nil {
				return found, err
			}
			empty[lane] = len(more) < share.n
			share.n -= len(more)
		}
	}
	c.found += len(found)
	if len(found) == 0 {
		return nil, c.closed()
	}
	caps := c.Caps(ctx)
	for i := range found {
		found[i].Caps = caps
	}
	return found, nil
}

// A share is how many of the next jobs are looked for in the lanes in one order.
type share struct {
	lanes []string
	n     int
}

// shares divides the next n jobs.
func (c *Claimers) shares(n int) []share {
	high, normal, low := subject.Lanes[0], subject.Lanes[1], subject.Lanes[2]
	all := []share{{lanes: []string{low, high, normal}}, {lanes: []string{normal, high, low}}, {lanes: subject.Lanes}}
	for i := range n {
		switch at := c.found + i; {
		case at%LowShare == LowShare-1:
			all[0].n++
		case at%NormalShare == NormalShare/2-1:
			all[1].n++
		default:
			all[2].n++
		}
	}
	return slices.DeleteFunc(all, func(s share) bool { return s.n == 0 })
}

// lookInto takes up to n messages of a lane from the classes, by turns: the one after
// the last that had a job is asked first, so that a full one does not starve the others.
// Where one was notified of, it takes one: the broker keeps a request until it has as many.
func (c *Claimers) lookInto(ctx context.Context, lane string, n int, woken places) ([]Delivery, error) {
	var found []Delivery
	first, count := c.next[lane], len(c.classes)
	for i := range count {
		at, left := (first+i)%count, count-i
		r := request{c.classes[at], lane, (n - len(found) + left - 1) / left, woken[place{c.classes[at], lane}]}
		if r.woken {
			r.n = 1
		} else if len(woken) > 0 {
			continue
		}
		got, err := c.pull(ctx, r)
		if len(got) > 0 {
			c.next[lane] = (at + 1) % count
		}
		if found = append(found, got...); err != nil || len(found) == n {
			return found, err
		}
	}
	return found, nil
}

func (c *Claimers) closed() error {
	if c.deliveries.conn.NC.IsClosed() {
		return fmt.Errorf("claim: %w", c.deliveries.conn.Closed())
	}
	return nil
}
