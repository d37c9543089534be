package worker

import (
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// A program in the jail that calls the model API by itself, in a row and at once, costs no
// more than the job's budget and one answer. The job ends for that, and its session tells.
func TestAProgramOfTheJailSpendsTheBudget(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	for name, loop := range map[string]string{
		"in a row": `for n in $(seq 60); do call; done`,
		"at once":  `for n in $(seq 60); do call & done; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// 0.05 + 0.0125 dollars an answer, by the price of Opus 5. The body is as long as its
			// tokens are many: by it a call reserves what it may cost.
			f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 500})
			job := f.job(`x=$(printf %010000d 0)
				call() { curl -sS -m 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" \
				-d '{"model":"claude-opus-5","max_tokens":1000,"messages":[{"role":"user","content":"'"$x"'"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; }
				` + loop + `; sleep 60`)
			job.Budget.USD = 0.5
			var mu sync.Mutex
			var steps []bool
			f.cfg.Hooks.Budget = func(_ jobs.Record, spent bool) { mu.Lock(); defer mu.Unlock(); steps = append(steps, spent) }
			rec, events := f.run(job)
			const each = 0.0625
			if calls := len(model.Requests()); float64(calls)*each > 0.5+each {
				t.Errorf("%d calls cost %.3f dollars", calls, float64(calls)*each)
			}
			if rec.Outcome != jobs.Failure || rec.Reason != jobs.BudgetExceeded || !strings.Contains(rec.Message, "0.5 USD") {
				t.Errorf("%s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
			}
			if rec.LastAttempt.CostUSD < 0.5 || rec.LastAttempt.CostUSD > 0.5+each {
				t.Errorf("the record tells of %+v", rec.LastAttempt)
			}
			warned, exceeded := dataOf[event.BudgetWarned](t, events, jobs.BudgetWarned), dataOf[event.BudgetExceeded](t, events, jobs.BudgetSpent)
			if len(warned) != 1 || len(exceeded) != 1 || warned[0].USD < 0.4 || exceeded[0].USD < 0.5 || exceeded[0].LimitUSD != 0.5 || exceeded[0].Tokens < 80_000 {
				t.Errorf("warned %+v, exceeded %+v", warned, exceeded)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(steps) != 2 || steps[0] || !steps[1] {
				t.Errorf("hooks %v", steps)
			}
		})
	}
}

// newSpender returns a worker whose agents reach a model API that gives one answer.
func newSpender(t *testing.T, reply agenttest.Reply) (*field, *agenttest.Model) {
	f := newField(t)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(agenttest.Request) agenttest.Reply { return reply }}})
	api := httptest.NewServer(model)
	t.Cleanup(api.Close)
	g, err := gate.New(gate.Config{Key: "real-key", Upstream: api.URL})
	f.must(err)
	t.Cleanup(func() { f.must(g.Close()) })
	f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
	f.cfg.Agents = builtin.Agents(agent.Config{})
	return f, model
}

// What earlier attempts have cost counts, and what has no price is the dearest and told.
func TestABudgetIsOfAllAttempts(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 1000}) // 0.15 + 0.075 dollars, as Opus 4.1
	job := f.job(`curl -sS -m 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" \
		-d '{"model":"psychic","max_tokens":1000,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages"
		kill -9 $$`)
	job.Budget.USD, job.Retry.MaxAttempts = 0.4, 9
	rec, events := f.run(job)
	if rec.Reason != jobs.BudgetExceeded || rec.Attempt != 2 || len(model.Requests()) != 2 {
		t.Errorf("%s (%s) after %d attempts and %d calls, want two", rec.Reason, rec.Message, rec.Attempt, len(model.Requests()))
	}
	if all := rec.SpentBefore.Add(rec.LastAttempt); math.Abs(all.CostUSD-0.45) > 1e-9 {
		t.Errorf("it cost %+v", all)
	}
	told := 0
	for _, n := range dataOf[event.Notice](t, events, jobs.Notice) {
		if n.Type == "price" && strings.Contains(n.Text, "model psychic has no price") {
			told++
		}
	}
	if told != 2 {
		t.Errorf("in two attempts it was told %d times that the model has no price", told)
	}
	if exceeded := dataOf[event.BudgetExceeded](t, events, jobs.BudgetSpent); len(exceeded) != 1 || math.Abs(exceeded[0].USD-0.45) > 1e-9 {
		t.Errorf("exceeded %+v", exceeded)
	}
}
