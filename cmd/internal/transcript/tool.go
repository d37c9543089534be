package transcript

import (
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// asks is the kind of the tools by which agents ask people.
const asks = "ask"

func (s *Screen) toolStarted(e jobs.Event, d event.Tool) error {
	if len(d.Input) == 0 && e.Raw != nil {
		d.Input = summary.Patches(e.Raw.JSON)
	}
	s.calls[d.Call] = call{d, e.Time}
	if d.Kind == asks {
		return nil // ask.opened and ask.closed tell it
	}
	return s.used(d)
}

func (s *Screen) file(d event.FileChanged) error {
	if _, described := s.calls[d.Call]; described {
		return nil
	}
	return s.block(look{indent: 2, style: console.Dim}, fmt.Sprintf("%s: %s", summary.InWorkspace(d.Path), d.Change))
}

// used writes what a tool is used for.
func (s *Screen) used(d event.Tool) error {
	s.last = d.Call
	changes := summary.Changes(d)
	what := visible.Block(summary.Use(d, changes))
	if len(what) == 0 {
		what = []string{""}
	}
	counts := ""
	for _, c := range changes {
		if n := c.Counts(); n != "" {
			counts += "  " + n
		}
	}
	lead := "▸ "
	if d.Parent != "" {
		lead = "  ▸ " // a subagent's
	}
	lead += d.Name + "  "
	first := console.Cut(what[0], max(s.room(console.Columns(visible.Line(lead))+console.Columns(counts)+2), 0))
	if s.w.Width() == 0 {
		first = what[0]
	}
	err := s.w.Row(console.Span{Style: console.Bold, Text: lead}, console.Span{Text: first}, console.Span{Style: console.Dim, Text: counts})
	if err == nil && len(what) > 1 {
		err = s.block(look{indent: 6, most: inputLines}, strings.Join(what[1:], "\n"))
	}
	for _, c := range changes {
		if err == nil {
			err = s.diff(c)
		}
	}
	return err
}

// toolEnded writes what came out.
func (s *Screen) toolEnded(e jobs.Event, d event.Tool) error {
	began, known := s.calls[d.Call]
	if known && began.Kind == asks {
		return nil
	}
	if !known || s.last != d.Call { // others were shown since
		name := d.Name
		if known {
			name = began.Name
			d.Input, d.Kind, d.Title = began.Input, began.Kind, began.Title
		}
		line, _, _ := strings.Cut(strings.TrimSpace(summary.Use(d, nil)), "\n")
		text := console.Cut(visible.Line(name+"  "+line), s.room(2))
		if err := s.w.Row(console.Span{Style: console.Dim, Text: "◂ " + text}); err != nil {
			return err
		}
	}
	s.last = d.Call
	seconds := 0.0
	if known && !began.began.IsZero() {
		seconds = e.Time.Sub(began.began).Seconds()
	}
	how := look{indent: 6, style: console.Dim, most: outputLines}
	if seconds >= 1 {
		how.after = summary.Took(seconds)
	}
	output := d.Output
	switch {
	case d.OK != nil && !*d.OK:
		how.style, how.after = console.Red, summary.Join("failed", exitCode(d), how.after)
	case known && len(summary.Changes(began.Tool)) > 0, d.Kind == "edit":
		output = "" // that it was done; what was done was shown
	}
	return s.block(how, output)
}

func exitCode(d event.Tool) string {
	if d.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("exit code %d", *d.ExitCode)
}

func (s *Screen) plan(d event.PlanUpdated) error {
	for _, step := range summary.Steps(d) {
		if err := s.block(look{indent: 2, style: console.Dim, mark: step.Mark + " "}, step.Text); err != nil {
			return err
		}
	}
	return nil
}
