package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// Agents that do not trust the workspace still read the instructions of its repository.
func TestInstructionsOfTheRepositoryAreRead(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"codex": "AGENTS.md", "gemini": "GEMINI.md"} {
		agent := realAgents[slices.IndexFunc(realAgents, func(a realAgent) bool { return a.name == name })]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, model := agent.fixture(t, func(func(string) agenttest.Step) []agenttest.Step { return []agenttest.Step{agenttest.Say("done")} })
			f.must(os.WriteFile(filepath.Join(f.repo, file), []byte("Know about "+skillWord+".\n"), 0o644))
			f.git("-C", f.repo, "add", file)
			f.git("-C", f.repo, "commit", "-qm", "instructions")
			f.serve("--slots", "1")
			f.run("wait", "--timeout", patience(90), agent.begin(f).id)
			if !slices.ContainsFunc(model.Requests(), func(r agenttest.Request) bool { return slices.Contains(r.Words, skillWord) }) {
				t.Errorf("%s did not come to the model", file)
			}
		})
	}
}
