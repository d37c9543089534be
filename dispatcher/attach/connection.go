package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// An ended is why a server closes a connection, as the viewer is told.
type ended struct {
	code   websocket.StatusCode
	reason string
}

func (e ended) Error() string { return e.reason }

var (
	errServer     = ended{websocket.StatusGoingAway, "the server ends; connect again"}
	errCredential = ended{websocket.StatusPolicyViolation, "the credential is not valid any more"}
	errUnused     = ended{websocket.StatusPolicyViolation, "no request has come for too long"}
	errText       = ended{websocket.StatusUnsupportedData, "a message is a call, as text in JSON"}
	// errSlow is not told: its viewer takes nothing.
	errSlow = errors.New("the viewer does not take what it asked for, or does not answer a ping")
)

// A connection is a viewer's.
type connection struct {
	cfg    Config
	socket *websocket.Conn
	viewer *viewer
	calls  chan struct{} // has a value for each call that is under way
	asked  atomic.Int64  // when the last call came
}

func newConnection(cfg Config, socket *websocket.Conn, v *viewer) *connection {
	socket.SetReadLimit(terminal.MaxCall)
	return &connection{cfg: cfg, socket: socket, viewer: v, calls: make(chan struct{}, Calls)}
}

// run answers calls until the connection ends, and returns why it has.
func (c *connection) run(ctx context.Context, ending <-chan struct{}, again func() error) error {
	ctx, end := context.WithCancelCause(ctx)
	c.asked.Store(time.Now().UnixNano())
	var all sync.WaitGroup
	all.Go(func() { end(c.read(ctx, end, &all)) })
	all.Go(func() { end(c.watch(ctx, again)) })
	select {
	case <-ending:
		end(errServer)
	case <-ctx.Done():
	}
	why := context.Cause(ctx)
	if told, ok := errors.AsType[ended](why); ok {
		_ = c.socket.Close(told.code, told.reason) // it may be gone already
	}
	_ = c.socket.CloseNow() // likewise
	all.Wait()
	return why
}

// read begins the calls that come. The socket is read without ctx, whose end would close
// it before the viewer is told why.
func (c *connection) read(ctx context.Context, end context.CancelCauseFunc, all *sync.WaitGroup) error {
	for {
		kind, data, err := c.socket.Read(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		call, err := terminal.DecodeCall(data)
		if kind != websocket.MessageText || call.Number == 0 {
			return errText
		}
		c.asked.Store(time.Now().UnixNano())
		select {
		case c.calls <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		all.Go(func() {
			defer func() { <-c.calls }()
			answer := terminal.Answer{}
			if err != nil {
				answer.Error = control.Refuse(control.Invalid, "%v", err)
			} else {
				answer = c.viewer.ask(ctx, call.Request)
			}
			if ctx.Err() != nil {
				return
			}
			if err := c.reply(ctx, terminal.Reply{Number: call.Number, Answer: answer}); err != nil {
				end(err)
			}
		})
	}
}

func (c *connection) reply(ctx context.Context, reply terminal.Reply) error {
	data, err := json.Marshal(reply)
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	limited, done := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Patience)
	defer done()
	err = c.socket.Write(limited, websocket.MessageText, data)
	if limited.Err() != nil {
		return errSlow
	}
	return err
}

// watch ends a connection that is not used, whose viewer is gone, or whose credential has
// been removed.
func (c *connection) watch(ctx context.Context, again func() error) error {
	tick := time.NewTicker(c.cfg.Quiet)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if errors.Is(again(), httpapi.ErrUnauthenticated) {
			return errCredential
		}
		if time.Since(time.Unix(0, c.asked.Load())) > c.cfg.Unused {
			return errUnused
		}
		limited, done := context.WithTimeout(ctx, c.cfg.Patience)
		err := c.socket.Ping(limited)
		late := limited.Err() != nil
		done()
		switch {
		case ctx.Err() != nil:
			return nil
		case late:
			return errSlow
		case err != nil:
			return err
		}
	}
}
