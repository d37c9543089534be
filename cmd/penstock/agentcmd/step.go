package agentcmd

import (
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// stepEvery is how often a step that takes long says that it goes on.
const stepEvery = 10 * time.Second

// A step tells people what is being done, and for how long.
type step struct {
	shell cli.Shell
	of    string

	mu    sync.Mutex
	what  string // empty: nothing
	began time.Time
	timer *time.Timer
}

func newStep(shell cli.Shell, of string) *step {
	s := &step{shell: shell, of: of}
	s.timer = time.AfterFunc(stepEvery, s.again)
	return s
}

// begin ends the step before, and begins one.
func (s *step) begin(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what, s.began = what, time.Now()
	s.timer.Reset(stepEvery)
	s.shell.Progressf("%s: %s", s.of, what)
}

// again says that the step goes on.
func (s *step) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what != "" {
		s.shell.Progressf("%s: %s, for %v", s.of, s.what, time.Since(s.began).Round(time.Second))
		s.timer.Reset(stepEvery)
	}
}

// end ends the step, if there is one.
func (s *step) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what = ""
	s.timer.Stop()
}
