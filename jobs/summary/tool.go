package summary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs/event"
)

// A Change is what a tool does to one file, as far as its input says it.
type Change struct {
	Path     string
	Old, New []string // lines
}

// Changes reads the inputs of the tools that edit. Each agent has its own.
func Changes(d event.Tool) []Change {
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
		var all []Change
		for _, e := range edits {
			all = append(all, between(file, e.Old, e.New))
		}
		return all
	case in.OldString != nil && in.NewString != nil:
		return []Change{between(file, *in.OldString, *in.NewString)}
	case in.Content != nil && d.Kind == "edit":
		return []Change{between(file, "", *in.Content)}
	}
	return nil
}

// filesOf reads changes that come as unified diffs, one for each file.
func filesOf(list json.RawMessage) []Change {
	var files []struct{ Path, Diff string }
	if json.Unmarshal(list, &files) != nil {
		return nil
	}
	var all []Change
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		c := Change{Path: f.Path}
		unified := strings.Contains(f.Diff, "@@")
		for _, line := range lines(f.Diff) {
			switch {
			case !unified:
				c.New = append(c.New, line)
			case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---"):
				c.Old = append(c.Old, line[1:])
			case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++"):
				c.New = append(c.New, line[1:])
			}
		}
		all = append(all, c)
	}
	return all
}

// Patches finds the changes in an agent's own line, where its events have none:
// Codex names the files there, and shows what changes in them.
func Patches(line json.RawMessage) json.RawMessage {
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
func between(file, before, after string) Change {
	c := Change{Path: file, Old: lines(before), New: lines(after)}
	for len(c.Old) > 0 && len(c.New) > 0 && c.Old[0] == c.New[0] {
		c.Old, c.New = c.Old[1:], c.New[1:]
	}
	for len(c.Old) > 0 && len(c.New) > 0 && c.Old[len(c.Old)-1] == c.New[len(c.New)-1] {
		c.Old, c.New = c.Old[:len(c.Old)-1], c.New[:len(c.New)-1]
	}
	return c
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// Counts says how many lines a change adds and takes away.
func (c Change) Counts() string {
	if len(c.New)+len(c.Old) == 0 {
		return ""
	}
	return fmt.Sprintf("+%d −%d", len(c.New), len(c.Old))
}

// Use is what a person wants to know of a tool's input: the command, the file,
// the words that are looked for.
func Use(d event.Tool, changes []Change) string {
	if len(changes) > 0 {
		var paths []string
		for _, c := range changes {
			paths = append(paths, InWorkspace(c.Path))
		}
		return strings.Join(paths, ", ")
	}
	var input map[string]any
	if json.Unmarshal(d.Input, &input) == nil {
		for _, key := range []string{"command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "skill", "prompt", "description"} {
			if text, ok := input[key].(string); ok && text != "" {
				if key == "pattern" && input["path"] != nil {
					text += " in " + InWorkspace(fmt.Sprint(input["path"]))
				}
				return InWorkspace(text)
			}
		}
	}
	if d.Title != "" && d.Title != d.Name {
		return d.Title
	}
	return Fields(d.Input)
}

// InWorkspace shortens a path of the workspace, which is where the agent is.
func InWorkspace(p string) string { return strings.TrimPrefix(p, "/workspace/") }

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
