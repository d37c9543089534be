package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// maxReceipts is how many messages a listener remembers, so that one that
// comes twice is taken once.
const maxReceipts = 1024

// reply is the answer to a control message: a receipt, or the refusal.
type reply struct {
	*control.Receipt
	Error *control.RefusedError `json:"error,omitempty"`
}

// ErrNobody says that no worker listens to the session's control messages.
var ErrNobody = errors.New("no worker has the session")

// Send gives a message to the worker that runs the session, and returns its
// receipt. What is not answered is sent again until ctx ends: its id keeps it
// from having a second effect. An error is [ErrNobody], or a
// [*control.RefusedError]: the message had no effect.
func (l *Log) Send(ctx context.Context, session string, c control.Message) (control.Receipt, error) {
	if err := errors.Join(jobs.CheckToken("session", session), c.Validate()); err != nil {
		return control.Receipt{}, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return control.Receipt{}, fmt.Errorf("control message: %w", err)
	}
	for {
		try, cancel := context.WithTimeout(ctx, wire.Patience)
		msg, err := l.conn.NC.RequestWithContext(try, l.names.Control(l.cfg.Tenant, session), data)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return control.Receipt{}, ErrNobody
		case err != nil && ctx.Err() != nil:
			return control.Receipt{}, fmt.Errorf("session %s: no answer: %w", session, context.Cause(ctx))
		case errors.Is(err, nats.ErrMaxPayload):
			return control.Receipt{}, control.Refuse(control.Invalid, "it has %d bytes, and a message of this broker at most %d: raise its max_payload, or scale images down", len(data), l.conn.NC.MaxPayload())
		case errors.Is(err, nats.ErrConnectionClosed):
			return control.Receipt{}, fmt.Errorf("session %s: %w", session, jobs.ErrUnavailable)
		case err != nil:
			continue
		}
		var answer reply
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return control.Receipt{}, fmt.Errorf("session %s: answer: %w", session, err)
		}
		if answer.Error != nil {
			return control.Receipt{}, answer.Error
		}
		if answer.Receipt == nil {
			return control.Receipt{}, fmt.Errorf("session %s: the answer is neither a receipt nor a refusal", session)
		}
		return *answer.Receipt, nil
	}
}

// Listen has take answer the session's control messages, one after the other
// in the order in which they come, until the function that it returns is
// called. One that was accepted, here or as known tells, is not taken again:
// its receipt is. An error of take is sent as the refusal.
func (l *Log) Listen(session string, known []control.Receipt, take func(control.Message) (control.Receipt, error)) (stop func(), err error) {
	if err := jobs.CheckToken("session", session); err != nil {
		return nil, err
	}
	messages := make(chan *nats.Msg, 256)
	sub, err := l.conn.NC.ChanSubscribe(l.names.Control(l.cfg.Tenant, session), messages)
	if err != nil {
		return nil, fmt.Errorf("listen to session %s: %w", session, err)
	}
	// Messages that are sent from now on arrive. A broker that is away learns of the subscription when it is back.
	_ = l.conn.NC.FlushTimeout(wire.Patience)
	listener := listener{take: take}
	for _, r := range known {
		listener.keep(r)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case msg := <-messages:
				listener.answer(msg)
			}
		}
	}()
	return func() {
		_ = sub.Unsubscribe() // a connection that is closed has none
		close(quit)
		<-done
	}, nil
}

// A listener remembers what it has accepted.
type listener struct {
	take     func(control.Message) (control.Receipt, error)
	receipts map[string]control.Receipt
	order    []string
}

func (l *listener) keep(r control.Receipt) {
	if l.receipts == nil {
		l.receipts = map[string]control.Receipt{}
	}
	if _, there := l.receipts[r.ID]; !there {
		l.order = append(l.order, r.ID)
	}
	l.receipts[r.ID] = r
	if len(l.order) > maxReceipts {
		delete(l.receipts, l.order[0])
		l.order = l.order[1:]
	}
}

// answer answers a message. One that expects no answer only wakes the worker,
// and is not for us.
func (l *listener) answer(msg *nats.Msg) {
	if msg.Reply == "" {
		return
	}
	var r reply
	if receipt, err := l.receipt(msg.Data); err != nil {
		r.Error = refusal(err)
	} else {
		r.Receipt = &receipt
	}
	data, _ := json.Marshal(r) // strings and a number
	_ = msg.Respond(data)      // who asked asks again
}

func (l *listener) receipt(data []byte) (control.Receipt, error) {
	c, err := control.Decode(data)
	if err != nil {
		return control.Receipt{}, err
	}
	if r, again := l.receipts[c.ID]; again {
		return r, nil
	}
	r, err := l.take(c)
	if err == nil {
		l.keep(r)
	}
	return r, err
}

func refusal(err error) *control.RefusedError {
	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
		return refused
	}
	if _, ok := errors.AsType[*jobs.InvalidError](err); ok {
		return control.Refuse(control.Invalid, "%v", err)
	}
	return control.Refuse(control.Lost, "%v", err)
}
