package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// maxAsked is how many requests about its terminals a session has under way;
// most of them wait for something to be read.
const maxAsked = 128

// Terminal asks the worker that runs the session about its terminals. It repeats
// a request without an answer until ctx ends. An error is [ErrNobody], or a
// [*control.RefusedError].
func (l *Log) Terminal(ctx context.Context, session string, r terminal.Request) (terminal.Answer, error) {
	if err := errors.Join(jobs.CheckToken("session", session), r.Validate()); err != nil {
		return terminal.Answer{}, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return terminal.Answer{}, fmt.Errorf("request about a terminal: %w", err)
	}
	for {
		try, cancel := context.WithTimeout(ctx, terminal.Patience+wire.Patience)
		msg, err := l.conn.Request(try, &nats.Msg{Subject: l.names.Terminals(l.cfg.Tenant, session), Data: data})
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return terminal.Answer{}, ErrNobody
		case err != nil && ctx.Err() != nil:
			return terminal.Answer{}, fmt.Errorf("session %s: no answer: %w", session, context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
			continue
		case err != nil:
			return terminal.Answer{}, fmt.Errorf("session %s: %w", session, err)
		}
		var answer terminal.Answer
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return answer, fmt.Errorf("session %s: answer: %w", session, err)
		}
		if answer.Error != nil {
			return answer, answer.Error
		}
		return answer, nil
	}
}

// ServeTerminals has take answer requests about the session's terminals, many
// at once, until the function that it returns is called, which ends the context
// of those under way. If take reports false there is no answer: another attempt
// must give it.
func (l *Log) ServeTerminals(session string, take func(context.Context, terminal.Request) (terminal.Answer, bool)) (stop func(), err error) {
	if err := jobs.CheckToken("session", session); err != nil {
		return nil, err
	}
	messages := make(chan *nats.Msg, 2*maxAsked) // a flood of more is lost, and asked again
	sub, err := l.conn.NC.ChanSubscribe(l.names.Terminals(l.cfg.Tenant, session), messages)
	if err != nil {
		return nil, fmt.Errorf("listen to session %s: %w", session, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	slots := make(chan struct{}, maxAsked)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case msg := <-messages:
				select {
				case slots <- struct{}{}:
					all.Go(func() {
						defer func() { <-slots }()
						answerTerminal(ctx, msg, take)
					})
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return func() {
		_ = sub.Unsubscribe() // a connection that is closed has none
		cancel()
		all.Wait()
	}, nil
}

func answerTerminal(ctx context.Context, msg *nats.Msg, take func(context.Context, terminal.Request) (terminal.Answer, bool)) {
	if msg.Reply == "" {
		return
	}
	var answer terminal.Answer
	r, err := terminal.Decode(msg.Data)
	if err != nil {
		answer.Error = control.Refuse(control.Invalid, "%v", err)
	} else {
		var ours bool
		if answer, ours = take(ctx, r); !ours {
			return
		}
	}
	data, _ := json.Marshal(answer) // strings and numbers
	_ = msg.Respond(data)           // who asked asks again
}
