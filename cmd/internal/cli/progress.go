package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
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

// heartbeat is how often plain progress says something although nothing has
// finished, so that a log shows that work goes on.
const heartbeat = 30 * time.Second

// Progress shows how far long work has come. Its methods may be called by
// several goroutines.
type Progress struct {
	w      *console.Writer
	quiet  bool
	status atomic.Value // string
	bars   *mpb.Progress
	bar    *mpb.Bar

	mu   sync.Mutex
	last time.Time
}

// NewProgress begins to show progress towards total on w.
func NewProgress(w *console.Writer, mode ProgressMode, total int) *Progress {
	p := &Progress{w: w, quiet: mode == ProgressQuiet, last: time.Now()}
	p.status.Store("")
	if mode == ProgressTTY || mode == ProgressAuto && IsTerminal(w.Terminal()) {
		p.bars = mpb.New(mpb.WithOutput(w.Raw()), mpb.WithWidth(32), mpb.WithRefreshRate(200*time.Millisecond), mpb.WithAutoRefresh())
		p.bar = p.bars.AddBar(int64(total),
			mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ", decor.WCSyncWidth)),
			mpb.AppendDecorators(
				decor.Elapsed(decor.ET_STYLE_GO, decor.WC{W: 8}),
				decor.Any(func(decor.Statistics) string { s, _ := p.status.Load().(string); return "  " + console.Line(s) }),
			))
	}
	return p
}

// IsTerminal reports whether a stream is a terminal that understands more than
// lines.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Status replaces the words beside the bar.
func (p *Progress) Status(words string) {
	p.status.Store(words)
	if p.bar != nil || p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) > heartbeat {
		p.last = time.Now()
		p.w.Printf("%s\n", words)
	}
}

// Step counts one thing done and says which, in one line.
func (p *Progress) Step(line string) {
	p.Say(line)
	if p.bar != nil {
		p.bar.Increment()
	}
}

// Say writes a line that stays.
func (p *Progress) Say(line string) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	if p.bars != nil {
		_, _ = io.WriteString(p.bars, console.Line(line)+"\n")
		return
	}
	p.w.Printf("%s\n", line)
}

// Close takes the bar away, or leaves it full, and waits until it is drawn.
func (p *Progress) Close() {
	if p.bar == nil {
		return
	}
	if !p.bar.Completed() {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}
