package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A job of a real agent has finished, and its worker is gone. What it is told
// then opens its next attempt, on another worker: the model sees the whole
// conversation and the new prompt, and the result has both changes. Two forks go
// on from there, each by itself.
func TestAFinishedJobGetsAPrompt(t *testing.T) {
	t.Parallel()
	for _, agent := range realAgents[:3] { // opencode, whose starts take long, goes on by its capsule in other tests
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, model := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				return []agenttest.Step{write("first"), func(r agenttest.Request) agenttest.Reply {
					_, wanted, _ := strings.Cut(r.Last, "now write ")
					if name := strings.Fields(wanted); len(name) > 0 {
						return agent.shell("cat out.txt; echo more > " + name[0])(r)
					}
					return agenttest.Reply{Text: "done"}
				}}
			})
			f.serve()
			w := f.worker("--slots", "1")
			k := agent.begin(f, "--deliver", "branch")
			f.run("wait", k.id)
			w.kill()
			first := f.record(k.id)
			f.run("send", k.id, "now write more.txt")
			if rec := f.record(k.id); rec.State != jobs.Pending || rec.Resume != first.Epoch {
				t.Errorf("it is %s, to go on from %d", rec.State, rec.Resume)
			}
			f.worker("--slots", "2")
			f.run("wait", k.id)
			k.goesOn(model, "more.txt", `"how":"resumed"`)
			out := f.run("review", "--reject", k.id, "--comment", "thank you")
			f.run("wait", k.id)
			if rec := f.record(k.id); strings.Contains(out, "finished") || rec.Reviewed() != jobs.Unreviewed || k.asked(model, "thank you") == 0 {
				t.Errorf("what was rejected is %s, and its agent was not told:\n%s", rec.Reviewed(), out)
			}
			if said := f.run("logs", k.id); strings.Count(said, "resumed by cli") != 2 {
				t.Errorf("the log says\n%s", said)
			}
			if n := k.asked(model, "now write more.txt"); n != 1 {
				t.Errorf("it was told %d times", n)
			}
			f.gapless(f.events(k.id))

			forks := strings.Fields(f.run("job", "fork", k.id, "-n", "2", "--prompt", "now write fork.txt", "-o", "id"))
			if len(forks) != 2 {
				t.Fatalf("forked %q", forks)
			}
			for _, id := range forks {
				f.run("wait", id)
				fork := talk{f, id}
				fork.goesOn(nil, "fork.txt", `"how":"forked"`, k.id)
				k.has(f.run("job", "diff", id), "more.txt")
			}
			for branch := range f.branches(f.repo) {
				k.has(f.git("-C", f.repo, "ls-tree", "--name-only", branch), "out.txt", "more.txt")
			}
			if got := len(f.branches(f.repo)); got != 3 {
				t.Errorf("%d branches, want one of each job", got)
			}
			if patch := f.run("job", "diff", k.id); strings.Contains(patch, "fork.txt") {
				t.Errorf("the origin has what a fork has done:\n%s", patch)
			}
		})
	}
}

// goesOn checks what came of a prompt that named a file.
func (k talk) goesOn(model *agenttest.Model, file string, how ...string) {
	k.Helper()
	k.has(k.seen(jobs.SessionContinued, 1), how...)
	k.has(k.all(jobs.ToolEnded), "first")
	k.has(k.run("job", "diff", k.id), "out.txt", file)
	if model == nil {
		return
	}
	if k.asked(model, "now write "+file) == 0 {
		k.Error("the model did not see the conversation with the new prompt")
	}
	rec := k.record(k.id)
	if rec.Outcome != jobs.Success || rec.Attempt != 2 {
		k.Errorf("%s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
}

// asked counts the requests with the whole conversation that ended with a text.
func (k talk) asked(model *agenttest.Model, text string) (n int) {
	for _, r := range model.Requests() {
		if r.Turn >= 2 && strings.Contains(r.First, "CARRY") && strings.Contains(r.Last, text) {
			n++
		}
	}
	return n
}

// A cancelled job is resumed, and continues instead of beginning anew. A job without a
// conversation is refused.
func TestACancelledJobIsResumed(t *testing.T) {
	t.Parallel()
	agent := realAgents[0]
	f, model := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
		return []agenttest.Step{write("first"), func(r agenttest.Request) agenttest.Reply {
			if strings.Contains(r.Last, "goes on in a new process") {
				return agenttest.Reply{Text: "resumed"}
			}
			return agenttest.Reply{Hang: true}
		}, func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} }}
	})
	f.serve("--slots", "1")
	k := agent.begin(f)
	k.before(model, 1)
	f.refused(6, []string{"only a finished job"}, "job", "resume", k.id)
	f.run("job", "cancel", k.id)
	f.try("wait", k.id)
	var rec jobs.Record
	f.must(json.Unmarshal([]byte(f.run("job", "resume", k.id, "-o", "json")), &rec))
	if rec.State != jobs.Pending || rec.Resume == 0 {
		t.Errorf("it is %s, to go on from %d", rec.State, rec.Resume)
	}
	f.eventually(60*time.Second, "it has ended", func() bool { return f.record(k.id).State == jobs.Finished })
	k.has(k.seen(jobs.SessionContinued, 1), `"how":"resumed"`)
	if rec = f.record(k.id); rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Errorf("%s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
	f.refused(6, []string{"no work left"}, "job", "resume", k.id)
	f.run("job", "resume", k.id, "--prompt", "Leave out the docs")
	f.run("wait", k.id)
	k.has(k.all(jobs.Message), "Leave out the docs")
	forks := strings.Fields(f.run("job", "fork", k.id, "-n", "3", "-o", "id"))
	f.run(append([]string{"job", "cancel"}, forks...)...)
	f.try(append([]string{"wait"}, forks...)...)
	if len(forks) != 3 {
		t.Errorf("forked %q", forks)
	}
	plain := f.submit("true")
	f.run("wait", plain)
	f.refused(6, []string{"nothing is kept of a conversation"}, "send", plain, "more")
	f.refused(2, []string{"nothing is kept of a conversation"}, "job", "fork", plain)
}
