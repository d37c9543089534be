package transcript

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
)

// A header is what is known of an attempt when its jail has started.
type header struct {
	Worker   string
	Base     string `json:"base_commit"`
	Dir      string `json:"original_dir"`
	Strategy string
	Seconds  float64
	Backend  string
	Weaker   []string
	Previous *jobs.Ended
}

func (s *Screen) beginning(e jobs.Event) error {
	switch e.Kind {
	case jobs.JobClaimed:
		s.header = data[header](e)
		if was := s.header.Previous; was != nil && e.Attempt > 1 {
			return s.marked(console.Yellow, "↻", fmt.Sprintf("attempt %d, because the last one ended: %s", e.Attempt, was.Reason))
		}
	case jobs.WorkspaceDone:
		found := data[header](e)
		s.header.Base, s.header.Dir, s.header.Strategy, s.header.Seconds = found.Base, found.Dir, found.Strategy, found.Seconds
	case jobs.JailStarted:
		found := data[header](e)
		s.header.Backend, s.header.Weaker = found.Backend, found.Weaker
		return s.begin(e)
	case jobs.SessionStarted:
		d := data[struct{ Model, Version string }](e)
		if words := join(d.Model, d.Version); words != "" {
			return s.block(look{indent: 2, style: console.Dim}, words)
		}
	}
	return nil
}

// begin writes the line that an attempt begins with.
func (s *Screen) begin(e jobs.Event) error {
	h := s.header
	where := ""
	if h.Base != "" {
		where = fmt.Sprintf("%s@%.7s", path.Base(cmp.Or(h.Dir, "repository")), h.Base)
	}
	ready := ""
	if h.Strategy != "" {
		ready = fmt.Sprintf("%s %s", h.Strategy, took(h.Seconds))
	}
	text := join(cmp.Or(e.Agent, "agent"), where, ready, h.Backend)
	if err := s.marked(console.Bold, "●", s.id+"  "+text); err != nil || len(h.Weaker) == 0 {
		return err
	}
	return s.block(look{indent: 2, style: console.Yellow}, "not enforced on this host: "+strings.Join(h.Weaker, ", "))
}

// join joins the words that are there.
func join(words ...string) string {
	var there []string
	for _, w := range words {
		if w != "" {
			there = append(there, w)
		}
	}
	return strings.Join(there, " · ")
}

// took is a time span in seconds, as people say it.
func took(seconds float64) string {
	switch {
	case seconds >= 3600:
		return fmt.Sprintf("%d h %d min", int(seconds)/3600, int(seconds)%3600/60)
	case seconds >= 60:
		return fmt.Sprintf("%d min %d s", int(seconds)/60, int(seconds)%60)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

func (s *Screen) speech(e jobs.Event) error {
	switch e.Kind {
	case jobs.Milestone:
		return s.marked(console.Cyan, "◆", data[jobs.MilestoneData](e).Text)
	case jobs.OutputLine:
		d := data[jobs.LineData](e)
		style := console.Plain
		if d.Stream == "stderr" {
			style = console.Dim
		}
		return s.block(look{indent: 2, style: style}, d.Text)
	}
	d := data[jobs.MessageData](e)
	indent := 2
	if d.Parent != "" { // a subagent's
		indent = 6
	}
	switch {
	case e.Kind == jobs.Thought:
		return s.block(look{indent: indent, style: console.Dim, most: thoughtLines}, d.Text)
	case d.Role == "user" && d.Parent == "":
		return s.marked(console.Cyan, "›", d.Text)
	}
	return s.block(look{indent: indent}, d.Text)
}
