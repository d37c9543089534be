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
	agents := slices.Clone(describedReals)
	for _, agent := range realAgents {
		agents = append(agents, describedReal{realAgent: agent})
	}
	for _, agent := range agents {
		if some && agent.name != "claude" {
			continue // their starts take too long for a run of all tests
		}
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			var config []string
			if agent.settings != nil {
				config = []string{"--config", agent.config(t)}
			}
			var watched []string
			for turn := 2; turn <= kills+2; turn++ {
				watched = append(watched, turnAsked(turn), turnDone(turn))
			}
			f, model := agent.fixture(t, func(func(string) agenttest.Step) []agenttest.Step { return []agenttest.Step{agent.worksOff(kills + 2)} })
			model.Watch(watched...)
			f.serve()
			agent.killWorkers(f, kills, config...)
		})
	}
}

// turnAsked is what the prompt of a turn has.
func turnAsked(turn int) string { return fmt.Sprintf("TURN %d of some", turn) }

// turnDone is what its command says when it has run.
func turnDone(turn int) string { return fmt.Sprintf("written %d.", turn) }

// worksOff is a step of the model that has the last turn's command run, unless it sees anywhere in
// the conversation that it has.
func (d describedReal) worksOff(last int) agenttest.Step {
	return func(r agenttest.Request) agenttest.Reply {
		turn := last
		for turn > 0 && !slices.Contains(r.Words, turnAsked(turn)) {
			turn--
		}
		if turn == 0 || slices.Contains(r.Words, turnDone(turn)) {
			return agenttest.Reply{Text: "done"}
		}
		return d.shell(fmt.Sprintf("echo line %d >> log; echo written $((%d)).", turn, turn))(r)
	}
}

// killWorkers has a conversation, in which each turn but the first and the last has a kill.
func (d describedReal) killWorkers(f *fixture, kills int, config ...string) {
	f.Helper()
	as := f.credentials()[jobs.RoleWorker]
	elsewhere := func() *program {
		return f.worker(append([]string{"--slots", "1", "--server", as[1], "--creds", as[3], "--data", f.TempDir()}, config...)...)
	}
	w, began := elsewhere(), time.Now()
	k := d.begin(f, append(config, "--interactive", "--max-attempts", "20")...)
	k.answered(1)
	takes := min(time.Since(began), 10*time.Second)
	if d.permits != "" {
		f.run("job", "set", k.id, "--mode", d.permits)
	}
	want := ""
	for prompt := 2; prompt <= kills+2; prompt++ {
		f.run("send", k.id, turnAsked(prompt))
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
