package jobcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// Keys: the one that detaches, and the one that ends the input.
const (
	detachKey = 0x1d // Ctrl-]
	endKey    = 0x04 // Ctrl-D
)

// errDetached ends an attachment whose terminal stays open.
var errDetached = errors.New("detached")

// attach opens the terminal and joins it with the user's own.
func (s *attachment) attach(ctx context.Context) error {
	tty := ttyOf(s.In)
	open := s.ask
	open.Verb, open.Rows, open.Columns = terminal.Open, 24, 80
	if rows, columns, ok := sizeOf(tty); ok {
		open.Rows, open.Columns = rows, columns
	}
	answer, err := s.begin(ctx, open)
	if err != nil {
		return err
	}
	s.ask = terminal.Request{ID: s.ask.ID, Attempt: answer.Attempt, Terminal: answer.Terminals[0].Terminal}
	s.Err.Printf("penstock: terminal %d of job %s; Ctrl-] detaches\n", s.ask.Terminal, s.rec.ID)

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	restore, err := raw(tty, s.Out)
	if err != nil {
		return err
	}
	defer restore()
	keys := make(chan []byte, 64)
	if tty != nil || !s.readOnly {
		go listen(s.In, tty != nil, keys, end) // its last read ends with the process
	}
	if !s.readOnly {
		go s.enter(ctx, tty, keys)
	}
	exit, err := s.show(ctx)
	restore()
	switch {
	case errors.Is(err, errDetached):
		s.Err.Printf("penstock: detached; penstock attach %s --terminal %d attaches again\n", s.rec.ID, s.ask.Terminal)
		return nil
	case err != nil:
		return err
	case exit.Why != "":
		return cli.Fail(cli.ExitStopped, "", "the terminal has ended: %s", exit.Why)
	case exit.Code != 0:
		return cli.Fail(exit.Code, "", "")
	}
	return nil
}

// show writes what the terminal shows, until it has ended.
func (s *attachment) show(ctx context.Context) (terminal.Exit, error) {
	for r := s.request(terminal.Read); ; {
		answer, err := s.terminals.Ask(ctx, r)
		if ctx.Err() != nil {
			return terminal.Exit{}, context.Cause(ctx)
		}
		if err != nil {
			if err = s.outage(ctx, err); err != nil {
				return terminal.Exit{}, err
			}
			continue
		}
		s.away.Store(false)
		if gap := answer.From - r.From; gap > 0 && r.From > 0 {
			fmt.Fprintf(s.Err.Raw(), "\r\npenstock: %d bytes are missing here\r\n", gap)
		}
		if _, err := s.Out.Raw().Write(answer.Data); err != nil {
			return terminal.Exit{}, err
		}
		if r.From = answer.From + int64(len(answer.Data)); answer.Exit != nil {
			return *answer.Exit, nil
		}
	}
}

func (s *attachment) request(verb terminal.Verb) terminal.Request {
	r := s.ask
	r.Verb = verb
	return r
}

// outage says why nothing more comes. It is nil where the worker may come back.
func (s *attachment) outage(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*control.RefusedError](err)
	if !ok && !errors.Is(err, session.ErrNobody) {
		return err
	}
	over := cli.Fail(cli.ExitStopped, "", "the agent has ended, and the terminal with it")
	if ok && refused.Code != control.Busy {
		return over
	}
	rec, err := s.pool.Client.Get(ctx, s.rec.ID)
	if err == nil && (rec.State != jobs.Executing || rec.Attempt != s.ask.Attempt) {
		return over
	}
	pause.For(ctx, sendAgain)
	return nil
}

// listen hands on what is typed, up to the key that detaches.
func listen(in io.Reader, tty bool, keys chan<- []byte, end context.CancelCauseFunc) {
	for {
		b := make([]byte, 4096)
		n, err := in.Read(b)
		b = b[:n]
		if tty {
			if at := bytes.IndexByte(b, detachKey); at >= 0 {
				keys <- b[:at]
				end(errDetached)
				return
			}
		}
		if n > 0 {
			keys <- b
		}
		switch {
		case err == nil:
		case tty:
			end(errDetached) // the user has gone
			return
		default:
			keys <- []byte{endKey}
			return
		}
	}
}

// enter types what comes, and gives the terminal the size of the user's own.
func (s *attachment) enter(ctx context.Context, tty *os.File, keys <-chan []byte) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	t := typist{s.terminals.Ask, s.request(terminal.Write), func() (rows, columns uint16, ok bool) { return sizeOf(tty) }, changed}
	t.enter(ctx, keys)
}

// A typist sends what a user does to a terminal, in the order in which it was done: a
// program that is started by what was typed begins with the size that the user sees.
type typist struct {
	send    func(context.Context, terminal.Request) (terminal.Answer, error)
	write   terminal.Request // From: how many bytes were typed
	size    func() (rows, columns uint16, ok bool)
	changed <-chan os.Signal
}

func (t *typist) enter(ctx context.Context, keys <-chan []byte) {
	t.fit(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
			t.fit(ctx)
		case b := <-keys:
			if t.enterAll(ctx, b) != nil {
				return // show reports how it ended
			}
		}
	}
}

// enterAll types b. Each byte counts once, however often it is sent.
func (t *typist) enterAll(ctx context.Context, b []byte) error {
	for {
		// The size may change while the program reads nothing, too.
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.changed:
			t.fit(ctx)
		default:
		}
		if len(b) == 0 {
			return nil
		}
		t.write.Data = b[:min(len(b), terminal.MaxInput)]
		answer, err := t.send(ctx, t.write)
		if refused, ok := errors.AsType[*control.RefusedError](err); ok && refused.Code == control.Over {
			return err
		}
		taken := min(max(0, answer.From-t.write.From), int64(len(t.write.Data)))
		b, t.write.From = b[taken:], t.write.From+taken
		if taken == 0 { // the program does not read, or the worker is away for now
			pause.For(ctx, sendAgain/4)
		}
	}
}

func (t *typist) fit(ctx context.Context) {
	if rows, columns, ok := t.size(); ok {
		r := t.write
		r.Verb, r.Data, r.From, r.Rows, r.Columns = terminal.Resize, nil, 0, rows, columns
		_, _ = t.send(ctx, r) // it is over, then
	}
}

// ttyOf returns the terminal that a stream is, or nil.
func ttyOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func sizeOf(tty *os.File) (rows, columns uint16, ok bool) {
	if tty == nil {
		return 0, 0, false
	}
	w, h, err := term.GetSize(int(tty.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 0, 0, false
	}
	return uint16(min(h, 1000)), uint16(min(w, 1000)), true
}

// calm resets what a program may have changed in a terminal that is no longer shown:
// colors, a hidden cursor, reports of the mouse and of pastes.
const calm = "\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>"

// raw hands every key to the program, and returns what ends that.
func raw(tty *os.File, out *console.Writer) (restore func(), err error) {
	if tty == nil {
		return func() {}, nil
	}
	old, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	return sync.OnceFunc(func() {
		_ = term.Restore(int(tty.Fd()), old) // it is gone, then
		if out.Terminal() != nil {
			_, _ = io.WriteString(out.Raw(), calm+"\r\n") // it is gone, then
		}
	}), nil
}
