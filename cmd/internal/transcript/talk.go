package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// input writes what a person has sent. Its way through the agent is a detail.
func (s *Screen) input(d event.InputState) error {
	if d.State != control.Accepted {
		return nil
	}
	who := cmp.Or(d.By, "unknown")
	if d.Verb == control.Prompt {
		return s.marked(console.Cyan, "›", who+": "+d.Content())
	}
	said := slices.Clone(d.Options)
	if d.Text != "" {
		said = append(said, d.Text)
	}
	for number, answer := range d.Answers {
		said = append(said, number+"="+strings.Join(answer, ", "))
	}
	if len(d.ToolInput) > 0 {
		said = append(said, string(d.ToolInput))
	}
	slices.Sort(said)
	return s.marked(console.Cyan, "›", strings.TrimSpace(fmt.Sprintf("%s: %s %s", who, d.Verb, strings.Join(said, " "))))
}

// question writes what the agent asks, and what to type.
func (s *Screen) question(d control.Ask) error {
	var questions []control.Question
	_ = json.Unmarshal(d.Questions, &questions) // of a newer kind: then it is shown as a permission is
	if len(questions) == 0 || d.Type == "permission" {
		tool := event.Tool{Name: cmp.Or(d.Tool, d.Type, "something"), Input: d.Input}
		err := s.marked(console.Alert, "?", fmt.Sprintf("May the agent use %s: %s", tool.Name, summary.Use(tool, summary.Changes(tool))))
		if len(questions) > 0 && err == nil {
			err = s.block(look{indent: 4}, choices(questions[0]))
		}
		err = cmp.Or(err, s.command("answer", "", "allows it"), s.command("answer", "--deny", "refuses it"))
		if len(questions) > 0 && err == nil {
			err = s.command("answer", "--option N", "chooses one of these")
		}
		return err
	}
	for i, q := range questions {
		text := q.Question
		if len(questions) > 1 {
			text = fmt.Sprintf("%d. %s", i+1, text)
		}
		if q.Multi {
			text += " (several may be chosen)"
		}
		if err := s.marked(console.Alert, "?", text); err != nil {
			return err
		}
		if err := s.block(look{indent: 4}, choices(q)); err != nil {
			return err
		}
	}
	switch {
	case len(questions) > 1:
		return s.command("answer", `--answer 1="…" --answer 2="…"`, "")
	case len(questions[0].Options) > 0:
		return cmp.Or(s.command("answer", "--option 1", ""), s.command("answer", `--text "…"`, ""))
	}
	return s.command("answer", `--text "…"`, "")
}

// choices are the options of a question, by their numbers.
func choices(q control.Question) string {
	var lines []string
	for n, o := range q.Options {
		text := fmt.Sprintf("%d) %s", n+1, visible.Line(o.Label))
		if o.Description != "" {
			text += ": " + o.Description
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// command writes a command to type next, and what it does.
func (s *Screen) command(verb, flags, what string) error {
	line := "penstock " + verb + " " + s.id
	if flags != "" {
		line += " " + flags
	}
	spans := []console.Span{{Style: console.Bold, Text: "  " + line}}
	if what != "" && (s.w.Width() == 0 || console.Columns(line+what)+4 <= s.w.Width()) {
		spans = append(spans, console.Span{Style: console.Dim, Text: "  " + what})
	}
	return s.w.Row(spans...)
}
