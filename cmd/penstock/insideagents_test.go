package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// tells is a model that has its agent's shell run the command penstock.
func tells(tool, argument string) *agenttest.Model {
	return agenttest.New(agenttest.Script{On: "TELL-IT", Steps: []agenttest.Step{
		agenttest.Use(tool, map[string]any{
			argument:      `penstock milestone half && penstock result '{"risk":"low"}' && echo told`,
			"description": "tell",
		}),
		func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} },
	}})
}

// The shells of real agents find the command penstock, and what they tell by it
// is the job's.
func TestAgentsTellTheirWorker(t *testing.T) {
	t.Parallel()
	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object","required":["risk"],"properties":{"risk":{"enum":["low","high"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		agent, api, model string
		upstream          *agenttest.Model
	}{
		{"claude", "ANTHROPIC", "claude-sonnet-4-5", tells("Bash", "command")},
		{"codex", "OPENAI", "gpt-5.5", tells("exec_command", "cmd")},
	} {
		t.Run(tt.agent, func(t *testing.T) {
			if _, err := exec.LookPath(tt.agent); err != nil {
				skip(t, tt.agent, "no %s in PATH", tt.agent)
			}
			f := newFixture(t)
			upstream := httptest.NewServer(tt.upstream)
			t.Cleanup(upstream.Close)
			f.env = []string{tt.api + "_API_KEY=sk-real-" + rand.Text(), "PENSTOCK_MODEL_" + tt.api + "_URL=" + upstream.URL}
			said, code, told := f.try("run", "TELL-IT", "--repo", f.repo, "--agent", tt.agent, "--model", tt.model,
				"--result-schema", schema, "--max-attempts", "1", "-o", "json")
			lines := strings.Split(strings.TrimSpace(said), "\n")
			var result jobs.Result
			f.must(json.Unmarshal([]byte(lines[len(lines)-1]), &result))
			if code != 0 || string(result.Value) != `{"risk":"low"}` {
				t.Errorf("exit code %d, %+v\n%s\n%s", code, result, said, told)
			}
			if events := f.decode(strings.Join(lines[:len(lines)-1], "\n")); count(events, jobs.Milestone) != 1 || count(events, jobs.ResultSet) != 1 {
				t.Errorf("told were:\n%s", said)
			}
		})
	}
}
