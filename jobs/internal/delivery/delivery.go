// Package delivery takes messages from the broker and answers for them: those of lanes, which
// offer jobs to the claimers of this process, and those of consumers, one at a time.
//
//	Claimers.Wait, Consume ──▶ a message ──▶ Ack, Nak or Again
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// A Delivery is a message that the broker has handed to this process.
type Delivery struct {
	Class, Lane string // of a job's
	Subject     string
	Reply       string                        // where it is acknowledged
	Again       bool                          // it was handed out before
	Caps        func() (schedule.Caps, error) // as they were since; nil: unknown
}

// Of returns the delivery that a message of a consumer is.
func Of(msg *nats.Msg) Delivery { return Delivery{Subject: msg.Subject, Reply: msg.Reply} }

// Deliveries are those of the work queues of a pool. The methods may be called from any goroutine.
type Deliveries struct {
	conn  *wire.Conn
	names subject.Names
}

// New returns the deliveries that a connection leads to.
func New(conn *wire.Conn, names subject.Names) Deliveries { return Deliveries{conn, names} }

// Ack removes the message. An acknowledgement whose answer is lost is sent
// again; one that is lost for good costs a redelivery of a terminal record.
func (d Deliveries) Ack(ctx context.Context, m Delivery) error {
	var err error
	for range 2 {
		try, cancel := context.WithTimeout(ctx, wire.Patience)
		_, err = d.conn.NC.RequestWithContext(try, m.Reply, []byte("+ACK"))
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("acknowledge %s: %w", m.Subject, err)
}

// Nak gives the message back, to be delivered again after the delay.
func (d Deliveries) Nak(m Delivery, delay time.Duration) error {
	body, err := json.Marshal(map[string]int64{"delay": int64(delay)})
	if err != nil {
		return err
	}
	return d.conn.NC.Publish(m.Reply, append([]byte("-NAK "), body...))
}

// Again gives the message back at once, and tells waiting claimers so.
func (d Deliveries) Again(m Delivery) error {
	if err := d.conn.NC.Publish(m.Reply, []byte("-NAK")); err != nil {
		return err
	}
	return d.conn.NC.PublishMsg(lane.Again(d.names, m.Class, m.Lane))
}

// Term removes a message that nothing can be done with. Where that is lost, it comes again.
func (d Deliveries) Term(m Delivery, why error) {
	_ = d.conn.NC.Publish(m.Reply, []byte("+TERM "+why.Error()))
}

// Consume hands the messages of a consumer to do, one at a time, until ctx
// ends. What do fails on comes again after a while.
func (d Deliveries) Consume(ctx context.Context, stream, consumer string, do func(context.Context, *nats.Msg) error) error {
	// It is short, because a broker that restarts silently forgets the request.
	const hold = 3 * time.Second
	request := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, hold)
	verb := d.conn.API("CONSUMER.MSG.NEXT." + stream + "." + consumer)
	// An inbox of its own: when it is gone the broker forgets the request that
	// is open, and gives the next message to a process that is there.
	inbox := d.conn.NC.NewInbox()
	sub, err := d.conn.NC.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("consume %s: %w", stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	for ctx.Err() == nil {
		if err := d.conn.NC.PublishRequest(verb, inbox, request); errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("consume %s: %w: the connection is closed", stream, jobs.ErrUnavailable)
		}
		try, cancel := context.WithTimeout(ctx, hold+time.Second)
		msg, err := sub.NextMsgWithContext(try)
		cancel()
		switch {
		case err != nil || msg.Header.Get("Status") != "" && msg.Header.Get("Status") != "408":
			pause.For(ctx, time.Second)
		case msg.Header.Get("Status") == "":
			d.handle(ctx, msg, do)
		}
	}
	return nil
}

func (d Deliveries) handle(ctx context.Context, msg *nats.Msg, do func(context.Context, *nats.Msg) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
	defer cancel()
	if do(ctx, msg) != nil {
		// Best effort: without it the message comes again when its time is up.
		_ = d.Nak(Of(msg), 2*time.Second)
	}
}
