package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/event"
)

// A change is what a tool does to one file, as far as its input says it.
type change struct {
	path     string
	old, new []string // lines
	minus    int      // of the whole change
	plus     int
}

// changesOf reads the inputs of the tools that edit. Each agent has its own.
func changesOf(d event.Tool) []change {
	var in struct {
		FilePath  string          `json:"file_path"`
		Camel     string          `json:"filePath"`
		OldCamel  *string         `json:"oldString"`
		NewCamel  *string         `json:"newString"`
		Path      string          `json:"path"`
		OldString *string         `json:"old_string"`
		NewString *string         `json:"new_string"`
		Content   *string         `json:"content"`
		Edits     json.RawMessage `json:"edits"`
		Changes   json.RawMessage `json:"changes"`
	}
	if json.Unmarshal(d.Input, &in) != nil {
		return filesOf(d.Input) // a list of files
	}
	file := firstOf(in.FilePath, in.Camel, in.Path)
	in.OldString, in.NewString = cmp.Or(in.OldString, in.OldCamel), cmp.Or(in.NewString, in.NewCamel)
	var edits []struct {
		Old string `json:"old_string"`
		New string `json:"new_string"`
	}
	switch {
	case len(in.Changes) > 0:
		return filesOf(in.Changes)
	case file == "":
		return nil
	case json.Unmarshal(in.Edits, &edits) == nil && len(edits) > 0:
		var all []change
		for _, e := range edits {
			all = append(all, between(file, e.Old, e.New))
		}
		return all
	case in.OldString != nil && in.NewString != nil:
		return []change{between(file, *in.OldString, *in.NewString)}
	case in.Content != nil && d.Kind == "edit":
		return []change{between(file, "", *in.Content)}
	}
	return nil
}

// filesOf reads changes that come as unified diffs, one for each file.
func filesOf(list json.RawMessage) []change {
	var files []struct{ Path, Diff string }
	if json.Unmarshal(list, &files) != nil {
		return nil
	}
	var all []change
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		c := change{path: f.Path}
		unified := strings.Contains(f.Diff, "@@")
		for _, line := range lines(f.Diff) {
			switch {
			case !unified:
				c.new = append(c.new, line)
			case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---"):
				c.old = append(c.old, line[1:])
			case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++"):
				c.new = append(c.new, line[1:])
			}
		}
		c.minus, c.plus = len(c.old), len(c.new)
		all = append(all, c)
	}
	return all
}

// patches finds the changes in an agent's own line, where its events have none:
// Codex names the files there, and shows what changes in them.
func patches(line json.RawMessage) json.RawMessage {
	type item struct{ Changes json.RawMessage }
	var own struct {
		Item   item
		Params struct{ Item item }
	}
	if json.Unmarshal(line, &own) != nil {
		return nil
	}
	if len(own.Item.Changes) > 0 {
		return own.Item.Changes
	}
	return own.Params.Item.Changes
}

// between leaves out what two texts have in common at their ends.
func between(file, before, after string) change {
	c := change{path: file, old: lines(before), new: lines(after)}
	for len(c.old) > 0 && len(c.new) > 0 && c.old[0] == c.new[0] {
		c.old, c.new = c.old[1:], c.new[1:]
	}
	for len(c.old) > 0 && len(c.new) > 0 && c.old[len(c.old)-1] == c.new[len(c.new)-1] {
		c.old, c.new = c.old[:len(c.old)-1], c.new[:len(c.new)-1]
	}
	c.minus, c.plus = len(c.old), len(c.new)
	return c
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func (c change) counts() string {
	if c.plus+c.minus == 0 {
		return ""
	}
	return fmt.Sprintf("  +%d −%d", c.plus, c.minus)
}

// diff writes the lines that a change takes away and adds.
func (s *Screen) diff(c change) error {
	left := len(c.old) + len(c.new) - diffLines
	old, added := c.old, c.new
	if left > 1 { // as many of either as fit
		n := max(diffLines-len(added), diffLines/2)
		old = old[:min(len(old), n)]
		added = added[:min(len(added), diffLines-len(old))]
		left = len(c.old) + len(c.new) - len(old) - len(added)
	} else {
		left = 0
	}
	err := s.sided("-", console.Red, old)
	if err == nil {
		err = s.sided("+", console.Green, added)
	}
	if err == nil && left > 0 {
		err = s.w.Row(console.Span{Style: console.Dim, Text: fmt.Sprintf("    … %d more lines", left)})
	}
	return err
}

func (s *Screen) sided(mark string, style console.Style, lines []string) error {
	for _, line := range lines {
		// Not as a block: that a program writes colours is part of its change.
		text := strings.TrimRight(mark+" "+strings.ReplaceAll(console.Visible(line), "\t", "    "), " ")
		for _, part := range console.Wrap(text, s.room(4)) {
			if err := s.w.Row(console.Span{Style: style, Text: "    " + part}); err != nil {
				return err
			}
		}
	}
	return nil
}
