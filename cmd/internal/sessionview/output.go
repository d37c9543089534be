// Package sessionview shows the events of a session to a person: each as a line of words,
// or, where the terminal can show it, as a [transcript.Screen].
package sessionview

import (
	"fmt"
	"io"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/visible"
)

// An Output shows the events of one session as its stream can: live on a terminal,
// or as lines.
type Output struct {
	w      *console.Writer
	lines  io.Writer          // where lines go: to w, unless they are collected
	screen *transcript.Screen // nil until the first event, and for lines
}

// New returns an output that has shown nothing yet.
func New(w *console.Writer) *Output { return &Output{w: w, lines: w} }

// Collect has lines written to out, for a caller that has many at once.
func (o *Output) Collect(out io.Writer) { o.lines = out }

// Show shows an event.
func (o *Output) Show(event jobs.Event) error {
	if !o.w.Rich() {
		return writeLines(o.lines, event)
	}
	if o.screen == nil {
		o.screen = transcript.New(o.w, Summary)
	}
	return o.screen.Show(event)
}

// Over reports whether a terminal has shown the end of the job.
func (o *Output) Over() bool { return o.screen != nil && o.screen.Over() }

// writeLines writes an event for a person: one line, or a few of a message.
func writeLines(w io.Writer, e jobs.Event) error {
	line := Summary(e)
	if line == "" {
		return nil
	}
	lines := visible.Block(line)
	if len(lines) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s %5d  %s\n", e.Time.Local().Format("15:04:05.000"), e.Seq, lines[0])
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "  ") {
			line = "  " + line // whatever it says, it is no line of ours
		}
		text += line + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
