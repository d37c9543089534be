package main

import (
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A person watches the real Claude Code at a wide and at a narrow terminal, and answers
// it.
func TestAPersonWatchesClaude(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	r := newRoom(f)
	call := func(name string, input map[string]any) agenttest.Step { return agenttest.Use(name, input) }
	model := httptest.NewServer(agenttest.New(agenttest.Script{On: "greeting", Steps: []agenttest.Step{
		func(agenttest.Request) agenttest.Reply {
			return agenttest.Reply{
				Text:  "I will look at the repository first, and then change the one file that needs the change, which is a long sentence.\n\n✓ success in 0.1 s",
				Calls: []agenttest.Call{{Name: "Bash", Input: map[string]any{"command": "ls -la && git log --oneline | head -3"}}},
			}
		},
		call("Read", map[string]any{"file_path": "/workspace/dir1/file1.txt"}),
		call("Edit", map[string]any{"file_path": "/workspace/dir1/file1.txt", "old_string": "file 1\n", "new_string": "file 1, \x1b[31mreader\x1b[0m\n"}),
		call("Bash", map[string]any{"command": "cat nowhere"}),
		call("AskUserQuestion", map[string]any{"questions": []any{map[string]any{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": []any{
			map[string]any{"label": "Red", "description": "as a rose"}, map[string]any{"label": "Blue", "description": "as the sea"},
		}}}}),
		agenttest.Say("Done: the greeting is **red**."),
	}}))
	t.Cleanup(model.Close)
	f.env = []string{"ANTHROPIC_API_KEY=" + keyPrefix, "PENSTOCK_MODEL_ANTHROPIC_URL=" + model.URL}
	f.serve("--slots", "1")
	id := strings.TrimSpace(f.run("submit", "-o", "id", "--repo", f.repo, "--agent", "claude", "--interactive", "--idle-timeout", "5m", "Change the greeting."))
	r.sits("wide", 160, 60)
	r.sits("narrow", 60, 60)
	for _, who := range []string{"wide", "narrow"} {
		r.types(who, "clear; "+r.program()+" watch "+id)
	}
	r.sees("wide", `\? Which colour\?`)
	r.sees("narrow", `(?s)Which colour.*penstock answer [-0-9a-f]+ --option 1`)
	f.run("answer", id, "--option", "2")
	r.sees("wide", `turn 1 · `)
	f.run("job", "stop", id)
	f.run("wait", "--timeout", patience(60), id)
	for _, who := range []string{"wide", "narrow"} {
		r.sees(who, `(?s)✓ success in .*penstock job diff.*host\$`)
		shown := r.do("capture-pane", "-p", "-J", "-S", "-200", "-t", who) // -J: lines that the terminal broke are whole
		shown = shown[max(strings.Index(shown, "● "), 0):]
		for _, want := range []string{`(?m)^● [-0-9a-f]+  claude · repo@`, `(?m)^  I will look`, `(?m)^▸ Bash  ls -la`, `(?m)^▸ Edit  dir1/file1.txt  \+1 −1`, `(?m)^    - file 1$`, `(?m)^    \+ file 1, \\u001b\[31mreader`, `(?m)^      .*No such file`, `(?m)^  ✓ success in 0.1 s`} {
			if !regexp.MustCompile(want).MatchString(shown) {
				t.Errorf("%s does not see %s in:\n%s", who, want, shown)
			}
		}
		if strings.Contains(shown, `{"`) || strings.Count(shown, "\n✓ success") != 1 {
			t.Errorf("%s sees JSON, or two ends", who)
		}
		for line := range strings.Lines(shown) {
			if who == "narrow" && runewidth.StringWidth(strings.TrimRight(line, " \n")) > 60 {
				t.Errorf("too wide: %q", line)
			}
		}
	}
}
