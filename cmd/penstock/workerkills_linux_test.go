package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// Workers of real agents are killed with -9 at random moments of a turn, and after it. Another
// worker, with another directory, goes on with the same conversation: no turn is lost, and none is
// done twice. PENSTOCK_TEST_AGENT_KILLS says how often, for all agents; without it Claude Code's
// worker is killed twice.
func TestWorkersOfRealAgentsAreKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_AGENT_KILLS"))
	some := err != nil
	if some {
		kills = 2
	}
	for _, agent := range realAgents {
		if some && agent.name != "claude" {
			continue // their starts take too long for a run of all tests
		}
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, _ := agent.fixture(t, func(func(string) agenttest.Step) []agenttest.Step {
				return []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
					// What a command of a turn that was cut has returned may come in one message with the prompt.
					if i := strings.LastIndex(r.Last, "TURN "); i >= 0 {
						return agent.shell("echo line " + strings.Fields(r.Last[i:])[1] + " >> log; echo written")(r)
					}
					if r.Turn == 0 {
						return agent.shell("echo line 1 >> log; echo written")(r)
					}
					return agenttest.Reply{Text: "done"}
				}}
			})
			f.serve()
			killWorkers(f, agent, kills)
		})
	}
}

// killWorkers has a conversation, in which each turn but the first and the last has a kill.
func killWorkers(f *fixture, agent realAgent, kills int) {
	f.Helper()
	as := f.credentials()[jobs.RoleWorker]
	elsewhere := func() *program {
		return f.worker("--slots", "1", "--server", as[1], "--creds", as[3], "--data", f.TempDir())
	}
	w, began := elsewhere(), time.Now()
	k := agent.begin(f, "--interactive", "--max-attempts", "20")
	k.answered(1)
	takes := min(time.Since(began), 10*time.Second)
	want := "+line 1\n"
	for prompt := 2; prompt <= kills+2; prompt++ {
		f.run("send", k.id, fmt.Sprintf("TURN %d of some", prompt))
		if prompt <= kills+1 {
			time.Sleep(rand.N(takes))
			w.kill()
			w = elsewhere()
		}
		k.answered(prompt)
		want += fmt.Sprintf("+line %d\n", prompt)
	}
	f.run("job", "stop", k.id)
	f.run("wait", k.id)
	w.end()
	if patch := f.run("job", "diff", k.id); !strings.HasSuffix(patch, " @@\n"+want) {
		f.Errorf("the turns wrote\n%s", patch)
	}
	events := f.events(k.id)
	f.gapless(events)
	for _, e := range events {
		if e.Kind == jobs.SessionContinued && !strings.Contains(string(e.Data), `"how":"resumed"`) {
			f.Errorf("a conversation began anew: %s", e.Data)
		}
	}
	if rec := f.record(k.id); rec.Outcome != jobs.Success || rec.Attempt != kills+1 || rec.Deaths != 0 {
		f.Errorf("%s %s (%s) in attempt %d, with %d deaths since a prompt was answered", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, rec.Deaths)
	}
}

// answered waits until the conversation is stored with the answers to so many prompts.
func (k talk) answered(prompts int) {
	k.Helper()
	k.eventually(120*time.Second, fmt.Sprintf("prompt %d is answered, and stored", prompts), func() bool {
		return slices.ContainsFunc(k.events(k.id), func(e jobs.Event) bool {
			var stored jobs.Capsule
			if e.Kind == jobs.CapsuleStored {
				k.must(json.Unmarshal(e.Data, &stored))
			}
			return stored.Turn > 0 && !stored.Open && len(stored.Heard) >= prompts-1
		})
	})
}
