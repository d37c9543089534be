package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// keyPrefix begins the real key of these tests. What searches for it in a jail
// writes it as a pattern that does not match itself.
const keyPrefix = "sk-ant-accept"

// search looks for the real key wherever a program in the jail can look.
const search = `echo SEARCH BEGINS
all() { env; tr '\0' '\n' </proc/self/environ; for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ; tr '\0' ' ' <$p/cmdline; done; }
all 2>/dev/null | grep -s 'sk-ant-[a]ccept' | sed 's/^/FOUND /'
grep -rs 'sk-ant-[a]ccept' /home /root /tmp /run /var /etc /workspace /job "$HOME" | sed 's/^/FOUND /'
env | grep -c PENSTOCK_JOB= | sed 's/^/VARIABLES /'
ls -d /proc/[0-9]* | wc -l | sed 's/^/PROCESSES /'
ls /job | sed 's/^/JOB /'
echo SEARCH ENDS`

// A scripted model has one script for each issue: look for the key, read,
// edit, write, and say so.
func scripted(n int) *agenttest.Model {
	var scripts []agenttest.Script
	for i := 1; i <= n; i++ {
		file := fmt.Sprintf("/workspace/dir%d/file%d.txt", i%4, i%20)
		call := func(name string, input map[string]any) agenttest.Call {
			return agenttest.Call{Name: name, Input: input}
		}
		scripts = append(scripts, agenttest.Script{On: fmt.Sprintf("CASE-%03d", i), Steps: []agenttest.Step{
			func(agenttest.Request) agenttest.Reply {
				return agenttest.Reply{Text: fmt.Sprintf("Looking at %d.", i), Calls: []agenttest.Call{
					call("Bash", map[string]any{"command": search, "description": "look around"}),
					call("Read", map[string]any{"file_path": file}),
				}}
			},
			func(agenttest.Request) agenttest.Reply {
				return agenttest.Reply{Calls: []agenttest.Call{
					call("Edit", map[string]any{"file_path": file, "old_string": fmt.Sprintf("file %d\n", i%20), "new_string": fmt.Sprintf("file %d\nsolved %d\n", i%20, i)}),
					call("Write", map[string]any{"file_path": fmt.Sprintf("/workspace/solved/%d.txt", i), "content": fmt.Sprintf("and %d\n", i)}),
				}}
			},
			agenttest.Say(fmt.Sprintf("Issue %d is solved.", i)),
		}})
	}
	return agenttest.New(scripts...)
}

// Twenty issues for the real Claude Code, six at once, with a model that
// follows a script. Each gets its patch and a whole transcript, and the key of
// the model API is nowhere but upstream.
func TestTwentyClaudes(t *testing.T) {
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	const issues = 20
	f := newFixture(t)
	model := scripted(issues)
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	key := keyPrefix + rand.Text()
	f.env = []string{"ANTHROPIC_API_KEY=" + key, "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	file := f.issues(issues, func(i int) string { return fmt.Sprintf("Solve CASE-%03d.", i) })
	out := filepath.Join(t.TempDir(), "results")
	said, code, told := f.try("batch", "run", file, "--repo", f.repo, "--agent", "claude", "--max-parallel", "6", "--out", out, "--log-level", "debug")
	if code != 0 {
		t.Fatalf("batch run: exit code %d\n%s%s", code, said, told)
	}

	results := readResults(t, out)
	checkout := filepath.Join(t.TempDir(), "checkout")
	f.git("clone", "-q", f.repo, checkout)
	for i := 1; i <= issues; i++ {
		id := fmt.Sprint(i)
		if r := results[id]; r.FilesChanged != 2 || r.Usage.Output == 0 || r.Model == "" {
			t.Errorf("issue %d: %d files, %d output tokens, model %q", i, r.FilesChanged, r.Usage.Output, r.Model)
		}
		patch := filepath.Join(out, "patches", id+".patch")
		f.applies(checkout, patch, fmt.Sprintf("dir%d/file%d.txt", i%4, i%20), "solved "+id)
		f.applies(checkout, patch, fmt.Sprintf("solved/%d.txt", i), "and "+id)
		log, err := os.ReadFile(filepath.Join(out, "logs", id+".jsonl"))
		f.must(err)
		f.transcript(id, f.decode(string(log)))
	}
	f.upstream(model.Requests(), key, issues)
	f.absent(key, []byte(said+told), out, f.data)
	f.absent(base64.StdEncoding.EncodeToString([]byte(key)), nil, out, f.data)
}

// transcript fails unless a log has everything that Claude Code told.
func (f *fixture) transcript(id string, events []jobs.Event) {
	f.Helper()
	f.gapless(events)
	for kind, want := range map[jobs.Kind]int{
		jobs.SessionStarted: 1, jobs.ToolStarted: 4, jobs.ToolEnded: 4, jobs.TurnEnded: 1, jobs.RunExited: 1, jobs.JobFinished: 1,
		jobs.AgentRaw: 0,
	} {
		if got := count(events, kind); got != want {
			f.Errorf("issue %s: %d events %s, want %d", id, got, kind, want)
		}
	}
	lines := 0
	var last string
	for _, e := range events {
		if e.Raw == nil || e.Raw.Stream != "stdout" {
			continue
		}
		if lines++; e.Raw.N != lines || len(e.Raw.JSON) == 0 {
			f.Errorf("issue %s: line %d of the agent stands where line %d should: %s", id, e.Raw.N, lines, e.Raw.Text)
		}
		last += string(e.Raw.JSON)
	}
	if !strings.Contains(last, `"type":"result"`) || !strings.Contains(last, "Issue "+id+" is solved.") {
		f.Errorf("issue %s: the agent's own result is not among its %d lines", id, lines)
	}
}

// upstream fails unless each request came with the real key, and none of what
// the agents found in their jails has it.
func (f *fixture) upstream(requests []agenttest.Request, key string, issues int) {
	f.Helper()
	searched := 0
	for _, r := range requests {
		if got := r.Header.Get("X-Api-Key"); got != key {
			f.Errorf("a request came with the key %q, %v", got, r.Header)
		}
		if !strings.Contains(r.Last, "SEARCH ENDS") {
			continue
		}
		searched++
		if strings.Contains(r.Last, "FOUND") || strings.Contains(r.Last, keyPrefix) || strings.Contains(r.First, keyPrefix) {
			f.Errorf("the key is visible in the jail:\n%s", r.Last)
		}
		for _, proof := range []string{"VARIABLES 1", "JOB prompt.md", "PROCESSES "} {
			if !strings.Contains(r.Last, proof) {
				f.Errorf("the search did not see %q:\n%s", proof, r.Last)
			}
		}
	}
	if searched != issues {
		f.Errorf("%d searches for the key were told, want %d", searched, issues)
	}
}

// absent fails where a secret is in the output or in a file below the
// directories. To be sure that it would be found, so must a word of the jobs.
func (f *fixture) absent(secret string, output []byte, dirs ...string) {
	f.Helper()
	if bytes.Contains(output, []byte(secret)) {
		f.Errorf("the secret is in the output:\n%s", output)
	}
	for _, dir := range dirs {
		plain := false
		f.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(secret)) {
				f.Errorf("the secret is in %s", path)
			}
			plain = plain || bytes.Contains(data, []byte(`"kind":"job.finished"`))
			return err
		}))
		if !plain {
			f.Errorf("no events were found below %s: the search shows nothing", dir)
		}
	}
}
