package jobpage_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

var shots = flag.String("shots", "", "directory for pictures of every page")

// replay makes the events of what a real agent wrote, by its decoder.
func replay(t *testing.T, adapter, from, name string) []jobs.Event {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "..", "worker", "agent", "internal", adapter, "testdata", from, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	launch := agent.Launch{ID: "j", Session: "s"}
	launch.Job.Agent.Interactive = strings.Contains(from, "-")
	made, err := builtin.Agents(agent.Config{}).Get(adapter)
	if err != nil {
		t.Fatal(err)
	}
	decoder := made.Decoder(launch)
	var events []jobs.Event
	for line := range bytes.Lines(file) {
		var rec struct{ Out json.RawMessage }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		var text string
		if json.Unmarshal(rec.Out, &text) != nil {
			text = string(rec.Out)
		}
		if rec.Out == nil {
			continue
		}
		for _, e := range decoder.Line(agent.Line{Stream: agent.Stdout, N: len(events) + 1, Bytes: []byte(text)}).Events {
			events = append(events, e.Event)
		}
	}
	return events
}

// asking is a session of real agents, whose last question is open.
func (p *pool) asking(t *testing.T) running {
	t.Helper()
	job := p.run()
	ctx := jobstest.Context(t)
	job.say(
		event.WorkspaceReady{Isolation: jobs.IsolationWorktree, Base: "59cac621d2b0", Strategy: "overlay", Seconds: 0.21}, event.JailStarted{Backend: "bwrap", Command: []string{"claude"}},
		event.SetupEnded{Cached: true, Saved: 31}, event.SessionContinued{How: "anew", Why: "the capsule is gone"},
	)
	for _, from := range [][3]string{{"claude", "claude", "recommended-1"}, {"claude", "claude", "todo"}, {"claude", "claude", "subagent"}, {"codex", "codex-app", "plain"}} {
		if err := job.Append(ctx, replay(t, from[0], from[1], from[2])...); err != nil {
			t.Fatal(err)
		}
	}
	ok := false
	code := 1
	job.say(
		event.Thought{Text: "The failing test expects the old wording.\nI should change the message, and not the test, since the documentation has the new one."},
		event.ToolStarted{Call: "edit", Name: "Edit", Kind: "edit", Input: json.RawMessage(`{"file_path":"/workspace/internal/greet/greet.go","old_string":"func Greet() string {\n\treturn \"hello\"\n}","new_string":"func Greet(name string) string {\n\treturn \"hello, \" + name\n}"}`)},
		event.ToolEnded{Call: "edit", Name: "Edit", Output: "done"},
		event.ToolStarted{Call: "test", Name: "Bash", Kind: "execute", Input: json.RawMessage(`{"command":"go test ./..."}`)},
		event.ToolEnded{Call: "test", Name: "Bash", OK: &ok, ExitCode: &code, Output: "\x1b[31m--- FAIL: TestGreet\x1b[0m\n    greet_test.go:9: got \"hello, \", want \"hello\"\nFAIL"},
		event.JailViolation{Kind: "network", Method: "CONNECT", Host: "registry.example.com", Port: 443, Reason: "not-listed"},
		event.Retry{Attempt: 2, Max: 10, HTTP: 529, Class: "overloaded", DelayMS: 2000},
		event.CheckEnded{Check: jobs.Check{Command: "make test", Exit: 2, Seconds: 12.5}, Output: "FAIL\tgithub.com/penstock-run/example/internal/greet\t0.004s"},
		event.CheckReturned{Check: jobs.Check{Command: "make test", Exit: 2}, Round: 1, Of: 3},
		event.Notice{Text: "Files that others' tools execute have changed", RunsCode: []string{"Makefile", ".github/workflows/ci.yml"}},
		event.AskOpened{Ask: "p1", Type: "permission", Tool: "Bash", Input: json.RawMessage(`{"command":"rm -rf node_modules && npm install"}`)},
		event.AskOpened{Ask: "q1", Type: "question", Questions: json.RawMessage(`[{"question":"Which database should the service use?","header":"Database","options":[{"label":"PostgreSQL","description":"as the other services do"},{"label":"SQLite","description":"no server to run"}]}]`)},
		event.AskOpened{Ask: "q2", Type: "question", Questions: json.RawMessage(`[{"question":"Which platforms?","header":"Platforms","multiSelect":true,"options":[{"label":"Linux"},{"label":"macOS"},{"label":"Windows"}]},{"question":"And the license?","header":"License","options":[{"label":"MIT"},{"label":"Apache-2.0"}]}]`)},
	)
	return job
}

// A real browser finds nothing to complain about on any part of the page, in light and
// dark, on a desk and on a phone; the keyboard reaches all that can be used.
func TestBrowser(t *testing.T) {
	node, chromium := browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	p := open(t)
	done := p.run()
	patch, err := os.ReadFile("testdata/example.patch")
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	if _, err := p.store.Put(ctx, done.id, done.claim.Epoch(), jobs.PatchName, bytes.NewReader(patch)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.PutSent(ctx, done.id, done.claim.Epoch(), "coverage.html", strings.NewReader("<h1>81 %</h1>")); err != nil {
		t.Fatal(err)
	}
	done.say(event.Message{Role: "assistant", Text: "I have changed the greeting.\n\nThe test still fails, because it expects the old words."},
		event.CheckEnded{Check: jobs.Check{Command: "make test", Exit: 2, Seconds: 12.5}, Output: "FAIL"}, event.CheckEnded{Check: jobs.Check{Command: "make lint", Seconds: 4}, Output: ""})
	done.finish(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: "make test: exit code 2"})
	job := p.asking(t)
	base := "/ui/jobs/" + done.id
	task, err := browsertest.Task(chromium, map[string]any{
		"url": p.url, "token": "operator", "shots": *shots, "look": true,
		"pages": map[string]string{
			"job-session": "/ui/jobs/" + job.id, "job-failed": base, "job-diff": base + "/diff", "job-checks": base + "/checks", "job-review": base + "/review", "job-attempts": base + "/attempts",
			"job-artifacts": base + "/artifacts", "job-events": base + "/events", "job-job": base + "/job",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Browse(t, node, "../testdata/browse.cjs", task)
}
