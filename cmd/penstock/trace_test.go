package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
)

const (
	// sender is the span of a build that submits jobs, and modelSpan that of a model.
	sender    = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	modelSpan = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// says prints the trace that a program in a jail is part of.
func says(who string) string { return "echo " + who + ` "$TRACEPARENT" "$TRACESTATE".` }

// A job is part of the trace of whoever submits it, and each program of an attempt is
// part of the attempt.
func TestTraceFromTheSubmitterToTheAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	f.env = []string{"TRACEPARENT=" + sender, "TRACESTATE=a=1"}
	id := f.submit(says("agent"), "--setup", says("setup"), "--check", says("check"))
	f.run("wait", id)
	rec := f.record(id)
	if want := (jobs.Trace{Parent: sender, State: "a=1"}); rec.Trace != want {
		t.Errorf("the record has %+v, want %+v", rec.Trace, want)
	}
	events := f.run("logs", "-o", "jsonl", id)
	for _, who := range []string{"agent", "setup", "check"} {
		if want := fmt.Sprintf("%s %s a=1.", who, rec.Span(1).Parent); !strings.Contains(events, want) {
			t.Errorf("the events have no %q", want)
		}
	}
	if out := f.run("run", "--repo", f.repo, "-o", "json", "--", "sh", "-c", says("agent")); !strings.Contains(out, "agent 00-"+rec.Trace.TraceID()) {
		t.Errorf("run prints no agent in the trace:\n%s", out)
	}
	file := f.issues(2, func(int) string { return "x" })
	f.run("batch", "run", file, "--repo", f.repo, "--out", filepath.Join(t.TempDir(), "out"), "--", "true")
	for _, rec := range f.list() {
		if rec.Trace.Parent != sender {
			t.Errorf("job %s %s is part of %s", rec.ID, rec.Item, rec.Trace.Parent)
		}
	}
}

// A job begins a trace where its submitter has none, or none that can be read, and stays
// in it when it comes back. In the job itself a trace has to be right.
func TestTraceThatAJobBegins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	for name, env := range map[string][]string{
		"nothing": {"TRACEPARENT=", "TRACESTATE=a=1"}, "a line more": {"TRACEPARENT=" + sender + "\nX=1"}, "not hexadecimal": {"TRACEPARENT=" + strings.Replace(sender, "4bf9", "4bfg", 1)},
		"a long one": {"TRACEPARENT=" + strings.Repeat("0", 10_000), "TRACESTATE=" + strings.Repeat("x", 10_000)},
	} {
		f.env = env
		id := f.submit(says("agent")+"; exit 1", "--max-attempts", "1")
		f.try("wait", id)
		first := f.record(id)
		f.run("job", "retry", id)
		f.try("wait", id)
		rec := f.record(id)
		if rec.Trace != jobs.RootTrace(id) || first.Trace != rec.Trace {
			t.Errorf("%s: the record has %+v, and after a retry %+v, want %+v", name, first.Trace, rec.Trace, jobs.RootTrace(id))
		}
		events := f.run("logs", "-o", "jsonl", id)
		for attempt := range 2 {
			if want := fmt.Sprintf("agent %s .", rec.Span(attempt+1).Parent); !strings.Contains(events, want) {
				t.Errorf("%s: the events have no %q", name, want)
			}
		}
	}
	f.env = []string{"TRACEPARENT=" + sender}
	file := filepath.Join(t.TempDir(), "job.json")
	asks := func(parent string) {
		f.must(os.WriteFile(file, []byte(`{"agent":{"command":["true"]},"isolation":"none","trace":{"traceparent":"`+parent+`"}}`), 0o600))
	}
	asks("x")
	f.refused(2, []string{"trace.traceparent", "not a traceparent"}, "submit", "--job", file)
	asks(modelSpan)
	own := strings.TrimSpace(f.run("submit", "-o", "id", "--job", file))
	if got := f.record(own).Trace.Parent; got != modelSpan {
		t.Errorf("a job with a trace of its own is part of %s", got)
	}
}

// A model's client names the trace of a call, over standard input and over HTTP.
func TestTraceOfAModel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serveHTTP("--slots", "0", "--mcp-allow", "submit")
	overHTTP := f.modelOverHTTP(address, f.token(address, "desk", jobs.RoleSubmitter))
	f.env = []string{"TRACEPARENT=" + sender}
	local := f.modelClient("--allow", "submit", "--repo", f.repo, "--agent", "claude")
	for _, c := range []struct {
		name string
		meta mcp.Meta
		over *modelClient
		want string // empty: the job begins a trace
	}{
		{"named", mcp.Meta{"traceparent": modelSpan, "tracestate": "a=1"}, local, modelSpan},
		{"that of the environment", nil, local, sender},
		{"a bad one", mcp.Meta{"traceparent": "x"}, local, sender},
		{"a number", mcp.Meta{"traceparent": 1, "tracestate": []any{}}, local, sender},
		{"named over HTTP", mcp.Meta{"traceparent": modelSpan}, overHTTP, modelSpan},
		{"none over HTTP", nil, overHTTP, ""},
	} {
		result, err := c.over.CallTool(f.Context(), &mcp.CallToolParams{Meta: c.meta, Name: "submit_job", Arguments: map[string]any{"prompt": "x", "repo": f.repo, "agent": "claude"}})
		f.must(err)
		var made struct{ ID string }
		if text := result.Content[0].(*mcp.TextContent).Text; result.IsError || json.Unmarshal([]byte(text), &made) != nil {
			t.Fatalf("%s: %s", c.name, text)
		}
		want := jobs.RootTrace(made.ID).Parent
		if c.want != "" {
			want = c.want
		}
		if got := f.record(made.ID).Trace.Parent; got != want {
			t.Errorf("%s: the job is part of %s, want %s", c.name, got, want)
		}
	}
	f.eventually(time.Minute, "all are there", func() bool { return len(f.list()) == 6 })
}
