package terminals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/sandbox"
)

// shell is what runs in a terminal for which the request names no program.
var shell = []string{"sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh"}

// A Set is the terminals of one run of an agent.
type Set struct {
	cfg Config

	mu      sync.Mutex
	all     []*screen
	asked   map[string]*screen // by the id of the request; nil: it is being opened
	opening int
	opens   int // of them, the agent's own
	opened  int
	closed  bool

	working sync.WaitGroup // of the screens, and of those that are being opened
}

// New returns a Set without terminals.
func New(cfg Config) *Set { return &Set{cfg: cfg, asked: map[string]*screen{}} }

// Opened is how many terminals there have been.
func (s *Set) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// InUse reports whether a terminal is open, or being opened.
func (s *Set) InUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opening > 0 || slices.ContainsFunc(s.all, func(t *screen) bool { return !t.over() })
}

// Close ends all terminals, and returns when they are recorded.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, t := range all {
		t.end()
	}
	s.working.Wait()
}

// Answer answers a request, and reports whether that is for this attempt to do.
func (s *Set) Answer(ctx context.Context, r terminal.Request) (terminal.Answer, bool) {
	if r.Attempt > s.cfg.Attempt {
		return terminal.Answer{}, false
	}
	answer, err := s.answer(ctx, r)
	if errors.Is(err, jobs.ErrFenced) {
		return terminal.Answer{}, false
	}
	if err != nil {
		refused, ok := errors.AsType[*control.RefusedError](err)
		if !ok {
			refused = control.Refuse(control.Lost, "%v", err)
		}
		return terminal.Answer{Error: refused}, true
	}
	answer.Attempt = s.cfg.Attempt
	return answer, true
}

func (s *Set) answer(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
	if r.Attempt != 0 && r.Attempt != s.cfg.Attempt {
		return terminal.Answer{}, control.Refuse(control.Over, "attempt %d, which had the terminal, has ended", r.Attempt)
	}
	switch r.Verb {
	case terminal.List:
		return s.list(), nil
	case terminal.Open:
		t, err := s.open(ctx, r)
		if err != nil {
			return terminal.Answer{}, err
		}
		return terminal.Answer{Terminals: []terminal.Info{t.info()}}, nil
	}
	t, err := s.find(r.Terminal)
	if err != nil {
		return terminal.Answer{}, err
	}
	switch r.Verb {
	case terminal.Read:
		return t.read(ctx, r), nil
	case terminal.Write:
		return t.write(r)
	case terminal.Resize:
		return terminal.Answer{}, t.resize(r.Rows, r.Columns)
	}
	t.end()
	return terminal.Answer{}, nil
}

func (s *Set) list() terminal.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := terminal.Answer{Terminals: []terminal.Info{}}
	for _, t := range s.all {
		answer.Terminals = append(answer.Terminals, t.info())
	}
	return answer
}

func (s *Set) find(number int) (*screen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if t.about.Terminal == number {
			return t, nil
		}
	}
	return nil, control.Refuse(control.Nothing, "the agent's jail has no terminal %d", number)
}

// open opens a terminal, or begins to look at one. That it does is in the log
// first, where no attempt can write that another one has followed.
func (s *Set) open(ctx context.Context, r terminal.Request) (*screen, error) {
	if r.Terminal != 0 {
		t, err := s.find(r.Terminal)
		if err != nil {
			return nil, err
		}
		return t, s.cfg.Prove(ctx, event.New(event.TerminalAttached{Terminal: t.about.Terminal, By: r.By}))
	}
	number, t, err := s.admit(r)
	if t != nil || err != nil {
		return t, err
	}
	defer s.working.Done()
	t, err = s.create(ctx, number, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if r.By == Own {
		s.opens--
	}
	delete(s.asked, r.ID)
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, t)
	s.asked[r.ID] = t
	t.run(s.cfg, &s.working)
	if s.closed {
		t.end()
	}
	return t, nil
}

// admit returns the terminal that was asked for before, or the number of a new
// one, for which there is a place then.
func (s *Set) admit(r terminal.Request) (number int, there *screen, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, again := s.asked[r.ID]; again {
		if t == nil {
			return 0, nil, control.Refuse(control.Busy, "that terminal is being opened")
		}
		return 0, t, nil
	}
	open, own := s.opening, s.opens
	for _, t := range s.all {
		if !t.over() {
			open++
			if t.about.By == Own {
				own++
			}
		}
	}
	switch {
	case s.closed:
		return 0, nil, control.Refuse(control.NotReady, "the agent has ended")
	case open >= terminal.MaxOpen:
		return 0, nil, control.Refuse(control.Busy, "%d terminals are open, as many as there may be; close one", open)
	case r.By == Own && own >= maxOwn:
		return 0, nil, control.Refuse(control.Busy, "%d terminals of the agent are open, as many as there may be; close one", own)
	case s.opened >= maxEver:
		return 0, nil, control.Refuse(control.Over, "this run of the agent has had %d terminals, as many as there may be", maxEver)
	}
	s.opening++
	s.opened++
	if r.By == Own {
		s.opens++
	}
	s.asked[r.ID] = nil
	s.working.Add(1)
	return s.cfg.First + s.opened - 1, nil, nil
}

func (s *Set) create(ctx context.Context, number int, r terminal.Request) (*screen, error) {
	args := r.Args
	if len(args) == 0 {
		args = shell
	}
	t := newScreen(terminal.Info{
		Terminal: number, Args: args, By: r.By, Rows: cmp.Or(r.Rows, 24), Columns: cmp.Or(r.Columns, 80), Opened: time.Now().UTC(),
	})
	data := event.Terminal{Terminal: number, Args: args, By: r.By, Rows: t.about.Rows, Columns: t.about.Columns}
	if err := s.cfg.Prove(ctx, event.New(event.TerminalCreated(data))); err != nil {
		return nil, err
	}
	inner, err := s.cfg.Start(ctx, args, []string{"TERM=xterm-256color", "COLORTERM=truecolor"}, t.about.Rows, t.about.Columns)
	if err != nil {
		s.cfg.Output(event.Make(event.TerminalExited{Terminal: number, Why: err.Error()}))
		return nil, cannot(err)
	}
	t.inner = inner
	return t, nil
}

// cannot says in whose power it is that there is no terminal.
func cannot(err error) error {
	if _, ok := errors.AsType[*sandbox.FieldError](err); ok || errors.Is(err, net.ErrClosed) {
		return control.Refuse(control.Cannot, "this jail has no terminals: %v", err)
	}
	return control.Refuse(control.Cannot, "%v", fmt.Errorf("start the terminal's program: %w", err))
}
