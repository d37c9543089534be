package transcript

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
)

// claimed begins an attempt. One that follows another says why.
func (s *Screen) claimed(e jobs.Event, d event.JobClaimed) error {
	s.ready = event.WorkspaceReady{}
	if d.Lost == nil || e.Attempt < 2 {
		return nil
	}
	return s.marked(console.Yellow, "↻", fmt.Sprintf("attempt %d, because the last one ended: %s", e.Attempt, d.Lost.Reason))
}

// begin writes the line that an attempt begins with.
func (s *Screen) begin(e jobs.Event, d event.JailStarted) error {
	h := s.ready
	where := ""
	if h.Base != "" {
		where = fmt.Sprintf("%s@%.7s", path.Base(cmp.Or(h.OriginalDir, "repository")), h.Base)
	}
	ready := ""
	if h.Strategy != "" {
		ready = fmt.Sprintf("%s %s", h.Strategy, summary.Took(h.Seconds))
	}
	text := summary.Join(cmp.Or(e.Agent, "agent"), where, ready, d.Backend)
	if err := s.marked(console.Bold, "●", s.id+"  "+text); err != nil || len(d.Weaker) == 0 {
		return err
	}
	return s.block(look{indent: 2, style: console.Yellow}, "not enforced on this host: "+strings.Join(d.Weaker, ", "))
}

func (s *Screen) line(d event.OutputLine) error {
	style := console.Plain
	if d.Stream == "stderr" {
		style = console.Dim
	}
	return s.block(look{indent: 2, style: style}, d.Text)
}

// below is the indent of what an agent says, or a subagent of a tool call.
func below(call string) int {
	if call != "" {
		return 6
	}
	return 2
}

func (s *Screen) message(d event.Message) error {
	if d.Role == "user" && d.Parent == "" {
		return s.marked(console.Cyan, "›", d.Text)
	}
	return s.block(look{indent: below(d.Parent)}, d.Text)
}
