// Package stdio carries the standard streams of a jail.
package stdio

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// keptOpen is how long a process that should have closed a pipe may keep it
// open.
const keptOpen = 5 * time.Second

// Pipes are the pipes of a jail: the ends that go in, and the goroutines
// that copy to and from the others.
type Pipes struct {
	Inside  [3]*os.File // closed once the program has them
	Stdin   *Stdin      // nil where nothing is written to standard input
	outputs []*output
	source  io.Reader
	copying sync.WaitGroup
	limit   *throttle // of both outputs; nil: none

	mu  sync.Mutex
	err error // the first that a writer returned; guarded by mu
}

// Stdin is the writing end of standard input.
type Stdin struct {
	f    *os.File
	once sync.Once
}

// Write writes for the program to read.
func (s *Stdin) Write(p []byte) (int, error) { return s.f.Write(p) }

// Close ends the standard input.
func (s *Stdin) Close() (err error) {
	err = os.ErrClosed
	s.once.Do(func() { err = s.f.Close() })
	return err
}

type output struct {
	from *os.File
	to   io.Writer
}

// Streams are what the pipes lead to, as in package sandbox.
type Streams struct {
	Stdin     io.Reader
	Stdout    io.Writer
	Stderr    io.Writer
	StdinPipe bool
}

// Plumb makes the pipes. Both outputs together are slowed to rate bytes per second;
// 0: they are not.
func Plumb(s Streams, rate int64) (_ *Pipes, err error) {
	p := &Pipes{limit: newThrottle(rate)}
	defer func() {
		if err != nil {
			p.CloseInside()
			p.CloseOutside()
		}
	}()
	if s.Stdin == nil && !s.StdinPipe {
		if p.Inside[0], err = os.Open(os.DevNull); err != nil {
			return nil, err
		}
	} else {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.Inside[0], p.Stdin = r, &Stdin{f: w}
		if !s.StdinPipe {
			p.source = s.Stdin
		}
	}
	if p.Inside[1], err = p.addOutput(s.Stdout); err != nil {
		return nil, err
	}
	if p.limit == nil { // else what is too fast would come at once
		enlarge(p.Inside[1])
	}
	if s.Stderr != nil && same(s.Stdout, s.Stderr) {
		p.Inside[2] = p.Inside[1]
		return p, nil
	}
	p.Inside[2], err = p.addOutput(s.Stderr)
	return p, err
}

// addOutput makes a pipe even if the caller does not want the output: the
// mechanism also explains on standard error why there is no jail.
func (p *Pipes) addOutput(to io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if to == nil {
		to = io.Discard
	}
	p.outputs = append(p.outputs, &output{r, to})
	return w, nil
}

// same compares writers, which may have types that cannot be compared.
func same(a, b io.Writer) (equal bool) {
	defer func() { _ = recover() }()
	return a == b
}

// CloseInside closes the ends that the program has, or will never have.
func (p *Pipes) CloseInside() {
	for i, f := range p.Inside {
		if f != nil && (i != 2 || f != p.Inside[1]) {
			f.Close()
		}
	}
}

// CloseOutside closes our ends.
func (p *Pipes) CloseOutside() {
	if p.Stdin != nil {
		p.Stdin.Close()
	}
	for _, o := range p.outputs {
		o.from.Close()
	}
}

// Start begins to copy. The goroutine that reads the source is not waited
// for: its Read may never return, and the jail's end must not depend on it.
// It ends when the Read does.
func (p *Pipes) Start() {
	if p.source != nil {
		go func() {
			_, _ = io.Copy(p.Stdin, p.source) // the program may not want all of it
			p.Stdin.Close()
		}()
	}
	for _, o := range p.outputs {
		p.copying.Go(func() {
			err := p.limit.copy(o.to, o.from)
			if err != nil && !errors.Is(err, os.ErrClosed) {
				p.note(err)
				// A writer that fails must not block the agent.
				_, _ = io.Copy(io.Discard, o.from)
			}
		})
	}
}

func (p *Pipes) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Finish waits until the output is written, for as long as the writers need:
// all processes inside are dead, so the pipes end. Without a jail one may
// have escaped the search and keep a pipe open; bounded ends the wait soon
// after nothing is left to read.
func (p *Pipes) Finish(bounded bool) error {
	if p.Stdin != nil {
		p.Stdin.Close()
	}
	p.limit.open()
	done := make(chan struct{})
	go func() {
		p.copying.Wait()
		close(done)
	}()
	for waiting := true; waiting; {
		var expired <-chan time.Time
		if bounded {
			expired = time.After(keptOpen)
		}
		select {
		case <-done:
			waiting = false
		case <-expired:
			if !p.Unread() {
				p.note(errors.New("output: a process that left the jail keeps it open"))
				waiting = false
			}
		}
	}
	for _, o := range p.outputs {
		o.from.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Slowed reports whether the program was slowed for more than a moment.
func (p *Pipes) Slowed() bool { return p.limit.reached() }

// Said reads what was written to standard error, instead of Start: by a mechanism
// that ended without a jail.
func (p *Pipes) Said() string {
	from := p.outputs[len(p.outputs)-1].from
	from.SetReadDeadline(time.Now().Add(keptOpen)) // another process may keep it open
	b, _ := io.ReadAll(io.LimitReader(from, 1<<16))
	return string(b)
}
