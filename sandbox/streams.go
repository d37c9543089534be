package sandbox

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// keptOpen is how long a process that should have closed a pipe may keep it
// open.
const keptOpen = 5 * time.Second

// plumbing owns the pipes of a jail: the ends that go in, and the goroutines
// that copy to and from the others.
type plumbing struct {
	inside  [3]*os.File // closed once the program has them
	stdin   *stdin
	outputs []*output
	source  io.Reader
	copying sync.WaitGroup
	limit   *throttle // of both outputs; nil: none

	mu  sync.Mutex
	err error // the first that a writer returned; guarded by mu
}

// stdin is the writing end of standard input.
type stdin struct {
	f    *os.File
	once sync.Once
}

func (s *stdin) Write(p []byte) (int, error) { return s.f.Write(p) }

func (s *stdin) Close() (err error) {
	err = os.ErrClosed
	s.once.Do(func() { err = s.f.Close() })
	return err
}

type output struct {
	from *os.File
	to   io.Writer
}

func plumb(s Streams) (_ *plumbing, err error) {
	p := &plumbing{}
	defer func() {
		if err != nil {
			p.closeInside()
			p.closeOutside()
		}
	}()
	if s.Stdin == nil && !s.StdinPipe {
		if p.inside[0], err = os.Open(os.DevNull); err != nil {
			return nil, err
		}
	} else {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.inside[0], p.stdin = r, &stdin{f: w}
		if !s.StdinPipe {
			p.source = s.Stdin
		}
	}
	if p.inside[1], err = p.addOutput(s.Stdout); err != nil {
		return nil, err
	}
	if s.Stderr != nil && same(s.Stdout, s.Stderr) {
		p.inside[2] = p.inside[1]
		return p, nil
	}
	p.inside[2], err = p.addOutput(s.Stderr)
	return p, err
}

// addOutput makes a pipe even if the caller does not want the output: the
// mechanism also explains on standard error why there is no jail.
func (p *plumbing) addOutput(to io.Writer) (*os.File, error) {
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

func (p *plumbing) closeInside() {
	for i, f := range p.inside {
		if f != nil && (i != 2 || f != p.inside[1]) {
			f.Close()
		}
	}
}

func (p *plumbing) closeOutside() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range p.outputs {
		o.from.Close()
	}
}

// start begins to copy. The goroutine that reads the source is not waited
// for: its Read may never return, and the jail's end must not depend on it.
// It ends when the Read does.
func (p *plumbing) start() {
	if p.source != nil {
		go func() {
			_, _ = io.Copy(p.stdin, p.source) // the program may not want all of it
			p.stdin.Close()
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

func (p *plumbing) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// finish waits until the output is written, for as long as the writers need:
// all processes inside are dead, so the pipes end. Without a jail one may
// have escaped the search and keep a pipe open; bounded ends the wait soon
// after nothing is left to read.
func (p *plumbing) finish(bounded bool) error {
	if p.stdin != nil {
		p.stdin.Close()
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
			if !p.unread() {
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

// explanation reads what the mechanism said before it ended without a jail:
// its last line without the program's name, or all where it is the client of a service.
func (p *plumbing) explanation(c *Command) string {
	from := p.outputs[len(p.outputs)-1].from
	from.SetReadDeadline(time.Now().Add(keptOpen)) // another process may keep it open
	b, _ := io.ReadAll(io.LimitReader(from, 1<<16))
	if !c.Rendezvous {
		return lastLine(c.name(), string(b))
	}
	lines := strings.FieldsFunc(string(b), func(c rune) bool { return c == '\n' || c == '\r' })
	s := strings.Join(lines, "; ")
	return strings.ToValidUTF8(s[max(0, len(s)-1024):], "")
}
