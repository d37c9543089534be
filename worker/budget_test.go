package worker

import (
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/amend"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/why"
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

// A job that is to be parked waits with its own budget spent, and counts against nothing. A worker that
// takes it before the budget is larger parks it again without a call. With a larger one it goes on, as
// its conversation does.
func TestAJobParksOnItsOwnBudget(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 500})
	job := f.job(callAlways)
	job.Budget.Tokens, job.Budget.OnSpent = 100_000, jobs.SpentParks // ten calls
	defer f.work()()
	id := f.submit(job).ID
	rec := f.delayed(id, jobs.BudgetParked)
	calls := len(model.Requests())
	if rec.Attempt != 1 || rec.NotBefore == nil || time.Until(*rec.NotBefore) < time.Hour || calls != 10 || !rec.Reason.Continues() {
		t.Errorf("attempt %d, until %v, after %d calls", rec.Attempt, rec.NotBefore, calls)
	}
	standing := why.Of(why.Facts{Now: time.Now(), Record: rec})
	if standing.Constraint != why.KeptBudget || standing.Until != nil || !strings.Contains(standing.Message, "100000 tokens is spent") || !strings.Contains(standing.Change, "--max-tokens") {
		t.Errorf("why: %+v", standing)
	}
	again := dataOf[event.JobRequeued](t, f.events(id), jobs.JobRequeued)
	if len(again) != 1 || again[0].Reason != jobs.BudgetParked || len(dataOf[event.BudgetExceeded](t, f.events(id), jobs.BudgetSpent)) != 1 {
		t.Errorf("told %+v", again)
	}
	next := func(attempt int) {
		t.Helper()
		_, err := f.eye.queue.Wake(t.Context(), rec)
		f.must(err)
		f.until("the next attempt is parked", func() bool {
			rec, err = f.eye.queue.Get(t.Context(), id)
			f.must(err)
			return rec.Attempt == attempt && rec.State == jobs.Delayed
		})
		if rec.Reason != jobs.BudgetParked || rec.Counted != 0 || rec.Lost != 0 {
			t.Errorf("attempt %d: %s (%s), %d counted, %d lost", attempt, rec.Reason, rec.Message, rec.Counted, rec.Lost)
		}
	}
	if next(2); len(model.Requests()) != calls || count(f.events(id), jobs.JailStarted) != 1 {
		t.Errorf("without a larger budget it made %d calls, and started %d jails", len(model.Requests())-calls, count(f.events(id), jobs.JailStarted))
	}
	var err error
	rec, err = amend.Raise(t.Context(), f.eye.queue, rec, jobs.Allowance{Tokens: 200_000})
	f.must(err)
	if next(3); len(model.Requests()) != 2*calls {
		t.Errorf("with a larger budget it made %d calls", len(model.Requests())-calls)
	}
}

// A job that is to end when a budget is spent ends also with one that it shares.
func TestAJobEndsOnASharedBudget(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 500})
	f.must(ledger.Of(f.eye.queue.Workers()).SetBudgets(t.Context(), ledger.Budgets{{Key: "pool", Amount: ledger.Amount{Tokens: 100_000}, Per: "month"}}))
	job := f.job(callAlways)
	job.Budget.OnSpent = jobs.SpentEnds
	for range 2 { // the second one does not begin
		rec, _ := f.run(job)
		if rec.Reason != jobs.BudgetExceeded || rec.Outcome != jobs.Failure || !strings.Contains(rec.Message, "pool=100000tokens/month") || len(model.Requests()) != 10 {
			t.Errorf("%s %s (%s) after %d calls", rec.Outcome, rec.Reason, rec.Message, len(model.Requests()))
		}
		job.Key = "another"
	}
}
