package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/penstock-run/penstock/cmd/internal/console"
)

// ProgressMode says how progress is shown on standard error.
type ProgressMode string

// The modes of --progress. Auto is a bar on a terminal and lines elsewhere.
const (
	ProgressAuto  ProgressMode = "auto"
	ProgressTTY   ProgressMode = "tty"
	ProgressPlain ProgressMode = "plain"
	ProgressQuiet ProgressMode = "quiet"
)

// String, Set and Type make ProgressMode a flag.
func (m *ProgressMode) String() string { return string(*m) }

// Type names the flag's value in help texts.
func (m *ProgressMode) Type() string { return "mode" }

// Set accepts one of the four modes.
func (m *ProgressMode) Set(s string) error {
	switch v := ProgressMode(s); v {
	case ProgressAuto, ProgressTTY, ProgressPlain, ProgressQuiet:
		*m = v
		return nil
	}
	return fmt.Errorf("%q is not a mode: use auto, tty, plain or quiet", s)
}

// Moving reports whether progress on w is drawn instead of written in lines.
func (m *ProgressMode) Moving(w *console.Writer) bool {
	return *m == ProgressTTY || *m == ProgressAuto && IsTerminal(w.Terminal())
}

// heartbeat is how often plain progress writes a line although nothing has finished, so
// that a log shows activity.
const heartbeat = 30 * time.Second

// Progress reports the progress of long work in lines. Several goroutines may call its
// methods.
type Progress struct {
	w     *console.Writer
	quiet bool

	mu   sync.Mutex
	last time.Time
}

// NewProgress begins to show progress on w.
func NewProgress(w *console.Writer, mode ProgressMode) *Progress {
	return &Progress{w: w, quiet: mode == ProgressQuiet, last: time.Now()}
}

// IsTerminal reports whether a stream is a terminal that understands more than
// lines.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Status reports the state of the work, if nothing was reported for long.
func (p *Progress) Status(words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.quiet && time.Since(p.last) > heartbeat {
		p.last = time.Now()
		p.w.Printf("%s\n", words)
	}
}

// Say writes a line.
func (p *Progress) Say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.quiet {
		p.last = time.Now()
		p.w.Printf("%s\n", line)
	}
}
