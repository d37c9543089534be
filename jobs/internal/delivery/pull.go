package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A request asks for up to n messages of a lane. Woken says that there should be one.
type request struct {
	class, lane string
	n           int
	woken       bool
}

// pull asks for the messages that are there; none where the lane is empty.
// That the lane does not exist yet, or that the broker is away, is the same as that it is
// empty. An error says that this client's role may not claim, and no wait helps.
func (c *Claimers) pull(ctx context.Context, r request) ([]Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	// A request to a consumer that does not exist is never answered, so the
	// lanes of a queue without jobs would cost a claimer its whole patience.
	if _, err := c.Lanes.Lease(ctx, r.class, r.lane); errors.Is(err, jobs.ErrForbidden) {
		return nil, fmt.Errorf("claim: %w", err)
	} else if err != nil {
		return nil, nil
	}
	if c.inbox == nil {
		inbox, err := c.openInbox()
		if err != nil {
			return nil, nil
		}
		c.inbox = inbox
	}
	next := map[string]any{"batch": r.n, "no_wait": true}
	if r.woken {
		next["expires"] = handOut
	}
	body, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	verb := c.deliveries.conn.API("CONSUMER.MSG.NEXT." + subject.QueueStream(r.class, r.lane) + "." + subject.Consumer)
	reply := c.inbox.reply()
	if err := c.deliveries.conn.NC.PublishRequest(verb, reply, body); err != nil {
		return nil, nil
	}
	var found []Delivery
	for len(found) < r.n {
		select {
		case <-ctx.Done():
			return found, nil
		case msg := <-c.inbox.messages:
			if d, ok := c.received(msg, r); ok {
				found = append(found, d)
			} else if msg.Subject == reply {
				return found, nil // there are no more
			}
		}
	}
	return found, nil
}

// An inbox is where the broker sends the messages that these claimers ask for. It stays
// open: a message that comes after its request was given up is taken by the next one.
type inbox struct {
	subject  string
	messages chan *nats.Msg
	requests int
}

func (c *Claimers) openInbox() (*inbox, error) {
	in := &inbox{subject: c.deliveries.conn.NC.NewInbox(), messages: make(chan *nats.Msg, inboxSize)}
	_, err := c.deliveries.conn.NC.ChanSubscribe(in.subject+".*", in.messages)
	return in, err
}

// reply is where the next request is answered. A message comes with the subject that it
// was published to, but what the broker says about a request comes with this one.
func (in *inbox) reply() string {
	in.requests++
	return in.subject + "." + strconv.Itoa(in.requests)
}

// received returns the delivery that a message of an inbox is, if it is one. It may be of
// another lane than the one that was asked last. One whose subject is not a job's is
// refused by what decides about it.
func (c *Claimers) received(msg *nats.Msg, r request) (Delivery, bool) {
	if msg.Header.Get("Status") != "" || msg.Reply == "" {
		return Delivery{}, false
	}
	d := Delivery{Class: r.class, Lane: r.lane, Subject: msg.Subject, Reply: msg.Reply}
	if class, lane, _, _, err := c.deliveries.names.ParseQueue(msg.Subject); err == nil {
		d.Class, d.Lane = class, lane
	}
	if meta, err := msg.Metadata(); err == nil {
		d.Again = meta.NumDelivered > 1
	}
	return d, true
}
