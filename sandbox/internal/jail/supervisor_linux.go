package jail

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
)

// A supervisor is a jailinit that stays as the parent of the agent and tells how
// that ends.
type supervisor struct {
	link   *link
	silent chan struct{} // closed when it has said all

	mu      sync.Mutex
	met     bool // guarded by mu; it takes requests
	exited  bool
	code    int
	signal  syscall.Signal
	reached []string      // limits that a control group ran into
	groups  *cgroup.Watch // guarded by mu; those of a service's jail, nil where they are not watched
}

func newSupervisor(l *link) *supervisor { return &supervisor{link: l, silent: make(chan struct{})} }

// meet waits until it runs the agent.
func (s *supervisor) meet() (hello, error) {
	h, err := s.link.receive(func() error { return nil })
	if err == nil && !h.stays {
		h.close()
		err = errors.New("the first program inside did not stay to supervise the agent")
	}
	if err != nil {
		return hello{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met = true
	return h, nil
}

func (s *supervisor) hasMet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met
}

// hasExited reports whether it has said how the agent ended, after it had ended
// all that the agent left.
func (s *supervisor) hasExited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited
}

// terminate lets it ask the agent to end: it knows the agent better, and may have
// rights over it that we lack.
func (s *supervisor) terminate() {
	if s.hasMet() {
		_, _ = s.link.conn.Write([]byte("terminate"))
	}
}

// release tells it to end everything.
func (s *supervisor) release() { _ = s.link.conn.CloseWrite() }

// listen takes what it says until its end, or ours.
func (s *supervisor) listen() {
	defer close(s.silent)
	word := make([]byte, 256)
	for {
		n, err := s.link.conn.Read(word)
		if os.IsTimeout(err) {
			// An interrupt of the start that came too late.
			_ = s.link.conn.SetReadDeadline(time.Time{}) // it has deadlines
			continue
		}
		if err != nil || n == 0 {
			s.readGroups() // it may have been ended by a limit itself
			return
		}
		if s.note(strings.Split(string(word[:n]), "\x00")) {
			s.readGroups()
			s.release() // it waits for this, so that its groups can be read
		}
	}
}

// note reports whether the agent has ended.
func (s *supervisor) note(said []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case said[0] == "exited" && len(said) == 3:
		s.exited, s.code, s.signal = true, atoi(said[1])&0xff, syscall.Signal(atoi(said[2])&0x7f)
	case said[0] == "reached" && len(said) == 2:
		if said[1] == cgroup.Memory || said[1] == cgroup.PIDs {
			s.reached = append(s.reached, said[1])
		}
	}
	return s.exited
}

// watch lets it read, at the end, the control groups that a process is in.
func (s *supervisor) watch(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = cgroup.Follow(pid)
}

// readGroups notes, once, which limits were reached: a service removes the groups
// with the jail.
func (s *supervisor) readGroups() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		return
	}
	for _, r := range s.groups.Reached() {
		if !slices.Contains(s.reached, r) {
			s.reached = append(s.reached, r)
		}
	}
	s.groups = nil
}

// report is what it has said, if it has said how the agent ended, or else a guess.
func (s *supervisor) report(guess Report) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited {
		guess.Code, guess.Signal = s.code, s.signal
	}
	guess.Reached = append(guess.Reached, s.reached...)
	return guess
}
