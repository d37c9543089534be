package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/internal/socket"
	"github.com/penstock-run/penstock/jobs/operation/route"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// Terminals asks about the terminals in the jail of a job's agent. Its methods may be
// called from any goroutine.
type Terminals struct {
	ask   func(context.Context, terminal.Request) (terminal.Answer, error)
	close func()
}

// Terminals returns what asks about the terminals of a job. Close it.
func (c *Client) Terminals(rec jobs.Record) *Terminals { return c.transport.terminals(c, rec) }

// Ask brings a request to the worker that has the job's session. It repeats a request
// without an answer until ctx ends: none has an effect twice. An error is a
// [session.ErrNobody], where no worker has the session now; a [*control.RefusedError]; or
// why no worker can be asked.
func (t *Terminals) Ask(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
	if err := r.Validate(); err != nil {
		return terminal.Answer{}, err
	}
	return t.ask(ctx, r)
}

// Close gives back what the requests needed. Terminals stay open.
func (t *Terminals) Close() { t.close() }

func (b *bus) terminals(_ *Client, rec jobs.Record) *Terminals {
	ask := func(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
		return b.log.Terminal(ctx, rec.Session, r)
	}
	return &Terminals{ask: ask, close: func() {}}
}

func (w *web) terminals(c *Client, rec jobs.Record) *Terminals {
	s := socket.New(socket.Config{
		Request: func(ctx context.Context) (*http.Request, error) {
			return w.newRequest(ctx, route.Attach, fields("id", rec.ID), nil)
		},
		Refusal: func(answer *http.Response) error {
			return cmp.Or(w.refusal(answer), error(&ForeignServerError{w.base, answer.Status + " in place of a WebSocket"}))
		},
		Unsent:    func(err error) error { return w.unsent(call{row: route.Attach.Row}, err) },
		Transport: w.http.Transport.(*http.Transport), Within: answerWithin, Silence: maxSilence,
	})
	ask := func(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
		for {
			answer, err := s.Ask(ctx, r)
			switch {
			case err == nil:
				return answer, refusedByWorker(answer)
			case ctx.Err() != nil:
				return answer, fmt.Errorf("terminals of job %s: no answer: %w", rec.ID, errors.Join(context.Cause(ctx), err))
			case errors.Is(err, jobs.ErrFinished):
				return answer, control.Refuse(control.Finished, "%v", err)
			case !away(err):
				return answer, err
			}
			if c.waits != nil {
				c.waits(err)
			}
			pause.For(ctx, askAgainAfter)
		}
	}
	return &Terminals{ask: ask, close: s.Close}
}

// refusedByWorker is the error of an answer that refuses.
func refusedByWorker(answer terminal.Answer) error {
	switch {
	case answer.Error == nil:
		return nil
	case answer.Error.Code == terminal.Away:
		return fmt.Errorf("%w: %s", session.ErrNobody, printable(answer.Error.Message))
	}
	return answer.Error
}
