package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A lot is a pool of one slot in which a session is parked.
type lot struct {
	talk
	serve, worker *program
	args          []string // of serve
}

// enter submits the job to a broker and a worker of their own.
func (f *fixture) enter(submit func() string) *lot {
	f.Helper()
	l := &lot{}
	l.serve, l.args = f.serve()
	l.worker = f.worker("--slots", "1")
	l.talk = talk{f, submit()}
	return l
}

// parked waits until the session is parked, and runs another job in its slot.
func (l *lot) parked(attempt int) jobs.Record {
	l.Helper()
	var rec jobs.Record
	l.eventually(60*time.Second, "it is parked", func() bool { rec = l.record(l.id); return rec.Asking() })
	if rec.Attempt != attempt || rec.Counted+rec.Lost > 0 {
		l.Errorf("parked in attempt %d, want %d, and charged to nothing: %+v", rec.Attempt, attempt, rec)
	}
	l.run("wait", "--timeout", patience(60), l.submit("true"))
	return rec
}

// crash kills the worker and the broker, and starts both again.
func (l *lot) crash() {
	l.Helper()
	l.worker.kill()
	l.serve.kill()
	l.serve = l.start("serving", l.args...)
	l.worker = l.fixture.worker("--slots", "1")
}

// A program of the user's own asks, and gives its slot up. After the answers it is
// started again, and gets each answer when it asks again; the broker and its worker
// were killed meanwhile.
func TestAProgramIsParked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.enter(func() string {
		return f.submit(`
echo run >>runs
a=$(penstock ask "Which one?" --option Red --option Blue) || exit 9
b=$(penstock ask "And why?"); echo "why $?"
test "$(cat runs)" = run && penstock result "\"$a because $b\""`, "--park-after", "1s")
	})
	l.seen(jobs.AskOpened, 1)
	l.parked(1)
	l.crash()
	if why := l.run("why", l.id); !strings.Contains(why, "Which one?") || !strings.Contains(why, "penstock answer "+l.id) {
		t.Errorf("why says %s", why)
	}
	if list := l.run("job", "ls", "--state", "waiting", "-o", "id"); strings.TrimSpace(list) != l.id {
		t.Errorf("waiting: %s", list)
	}
	l.refused(6, []string{"Red, Blue"}, "answer", l.id, "--option", "Green")
	l.refused(6, []string{"takes no prompts"}, "send", l.id, "more")
	l.run("answer", l.id, "--option", "2")
	l.eventually(30*time.Second, "it asks more", func() bool { return len(l.opened(l.id)) == 2 })
	l.parked(2)
	l.run("answer", l.id, "--text", "it burns")
	l.run("wait", "--timeout", patience(60), l.id)
	var result jobs.Result
	for _, e := range l.events(l.id) {
		if e.Kind == jobs.JobFinished {
			l.must(json.Unmarshal(e.Data, &result))
		}
	}
	if result.Outcome != jobs.Success || string(result.Value) != `"Blue because it burns"` || result.Attempts != 3 {
		t.Errorf("ended with %+v", result)
	}
	events := l.events(l.id)
	if count(events, jobs.AskOpened) != 2 || count(events, jobs.AskClosed) != 2 || count(events, jobs.JobWaiting) != 2 {
		t.Errorf("asked %d times, closed %d, parked %d", count(events, jobs.AskOpened), count(events, jobs.AskClosed), count(events, jobs.JobWaiting))
	}
	l.gapless(events)
	if text := l.run("logs", l.id); !strings.Contains(text, "parked: the job holds no slot") {
		t.Errorf("the log shows %s", text)
	}
}

// A parked session can be ended, and what was made by then is kept.
func TestAParkedSessionIsStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.enter(func() string {
		return f.submit(`echo mine >made; penstock ask "Go on?"; echo never`, "--park-after", "1s")
	})
	l.parked(1)
	l.run("job", "stop", l.id)
	if _, code, _ := l.try("wait", "--timeout", patience(60), l.id); code != 3 {
		t.Errorf("wait ended with %d", code)
	}
	if rec := l.record(l.id); rec.Outcome != jobs.Cancellation || rec.Attempt != 1 {
		t.Errorf("ended as %+v", rec)
	}
	if saved := l.run("job", "salvage", l.id, "-o", "json"); !strings.Contains(saved, `"files_changed": 1`) {
		t.Errorf("saved: %s", saved)
	}
}

// A real agent that was set to ask for permissions does so in its next process, too. What was
// granted while its session was parked, with another input where the agent takes one, is not asked
// again; the rest of what it wants is.
func TestARealPermissionIsParked(t *testing.T) {
	t.Parallel()
	modes := map[string]string{"claude": "default", "codex": "untrusted", "gemini": "default", "opencode": "ask"}
	for _, agent := range realAgents {
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, _ := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				then := func(r agenttest.Request) agenttest.Reply {
					switch {
					case strings.Contains(r.Last, "It is granted"):
						return agent.shell("touch first.txt")(r)
					case strings.Contains(r.Last, "what else"):
						return agent.shell("touch second.txt")(r)
					case strings.Contains(r.Last, "FIRST FILE"):
						return agent.shell("touch first.txt")(r)
					}
					return agenttest.Reply{Text: "LAST done"}
				}
				return []agenttest.Step{write("one"), agenttest.Say("FIRST done"), then, then, then, then, then}
			})
			l := f.enter(func() string { return agent.begin(f, "--interactive", "--park-after", "1s").id })
			l.eventually(60*time.Second, "its first turn is over", func() bool { return strings.Contains(l.all(jobs.Message), "FIRST done") })
			l.rests(l.id)
			l.run("job", "set", l.id, "--mode", modes[agent.name])
			l.run("send", l.id, "FIRST FILE")
			l.parked(1)
			l.crash()
			granted := []string{"answer", l.id}
			if agent.name == "claude" { // the only one that takes another input
				granted = append(granted, "--tool-input", `{"command":"touch first.txt granted.txt","description":"x"}`)
			}
			l.run(granted...)
			l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`)
			l.eventually(60*time.Second, "it goes on with the permission", func() bool { return strings.Contains(l.all(jobs.Message), "LAST done") })
			l.rests(l.id)
			if events := l.events(l.id); count(events, jobs.AskOpened) != 2 || count(events, jobs.AskClosed) != 2 {
				t.Errorf("it asked %d times, and %d were closed; want its request and the one that was made again", count(events, jobs.AskOpened), count(events, jobs.AskClosed))
			}
			l.run("send", l.id, "what else")
			l.eventually(60*time.Second, "it asks for more", func() bool { return count(l.events(l.id), jobs.AskOpened) == 3 })
			if agent.name != "claude" {
				l.refused(6, []string{"no other input"}, "answer", l.id, "--tool-input", `{"command":"touch granted.txt"}`)
			}
			l.run("answer", l.id, "--deny")
			l.rests(l.id)
			l.run("job", "stop", l.id)
			l.run("wait", "--timeout", patience(60), l.id)
			if rec, patch := l.record(l.id), l.run("job", "diff", l.id); rec.Counted+rec.Lost > 0 || !strings.Contains(patch, "first.txt") || strings.Contains(patch, "second.txt") ||
				strings.Contains(patch, "granted.txt") != (agent.name == "claude") {
				t.Errorf("%+v, with\n%s", rec, patch)
			}
		})
	}
}

// A real agent asks and gives its slot up, the broker and the worker are killed
// with -9, and the answer finds it in another process: with its conversation and
// its files.
func TestARealAgentIsParked(t *testing.T) {
	t.Parallel()
	for _, agent := range realAgents {
		if agent.ask == nil {
			continue
		}
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, _ := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				then := func(r agenttest.Request) agenttest.Reply {
					switch {
					case strings.Contains(r.Last, "The answer is: Green"):
						return agent.shell("echo Green >> out.txt; cat out.txt")(r)
					case strings.Contains(r.Last, "Green"):
						return agenttest.Reply{Text: "LAST painted"}
					}
					return agent.ask(choices("Paint it?", false))(r)
				}
				return []agenttest.Step{write("one"), then, then, then, then}
			})
			l := f.enter(func() string { return agent.begin(f, "--interactive", "--park-after", "1s").id })
			l.parked(1)
			l.crash()
			l.run("answer", l.id, "--option", "Green")
			l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`)
			l.eventually(60*time.Second, "it goes on with the answer", func() bool { return strings.Contains(l.all(jobs.Message), "LAST painted") })
			l.rests(l.id)
			l.run("job", "stop", l.id)
			l.run("wait", "--timeout", patience(60), l.id)
			if rec, patch := l.record(l.id), l.run("job", "diff", l.id); rec.Attempt != 2 || rec.Counted+rec.Lost > 0 || !strings.Contains(patch, "+one") || !strings.Contains(patch, "+Green") {
				t.Errorf("%+v, with\n%s", rec, patch)
			}
			events := l.events(l.id)
			if count(events, jobs.AskOpened) != 1 {
				t.Errorf("it asked %d times", count(events, jobs.AskOpened))
			}
			l.gapless(events)
		})
	}
}
