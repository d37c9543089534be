package worker

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// callOnce fails unless a call of the model API succeeds at once.
const callOnce = `curl -sSf -m 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"claude-opus-5","max_tokens":1000,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages"`

// governed returns a worker whose gate keeps to the limits of a model that steps play.
func governed(t *testing.T, patience time.Duration, step agenttest.Step) (*field, *agenttest.Model) {
	exectest.Need(t, "curl")
	f := newField(t)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{step}})
	api := httptest.NewServer(model)
	t.Cleanup(api.Close)
	g, err := gate.New(gate.Config{Key: "real-key", Upstream: api.URL, Govern: true, Patience: patience})
	f.must(err)
	t.Cleanup(func() { f.must(g.Close()) })
	f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
	f.cfg.Agents = builtin.Agents(agent.Config{})
	return f, model
}

// delayed waits until a job waits for a time, and checks that nothing is counted against it.
func (f *field) delayed(id string, reason jobs.Reason) jobs.Record {
	f.Helper()
	var rec jobs.Record
	f.until("a job waits", func() bool {
		var err error
		rec, err = f.eye.queue.Get(f.Context(), id)
		f.must(err)
		return rec.State == jobs.Delayed || rec.State == jobs.Finished
	})
	if rec.State != jobs.Delayed || rec.Reason != reason || rec.Counted != 0 || rec.Lost != 0 || len(rec.Refusals) != 0 {
		f.Errorf("%s %s (%s), %d counted, %d lost, refusals %v", rec.State, rec.Reason, rec.Message, rec.Counted, rec.Lost, rec.Refusals)
	}
	return rec
}

// done waits for the end of a job.
func (f *field) done(id string) jobs.Record {
	rec, _ := f.ended(id)
	return rec
}

// "Try again in two hours" ends the attempts that met it, lets no other job of the model begin, and is counted
// against none. Jobs that need no model go on.
func TestAQuotaHoldsTheJobsOfItsKey(t *testing.T) {
	t.Parallel()
	two := agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "7200"}
	f, model := governed(t, time.Minute, func(agenttest.Request) agenttest.Reply { return two })
	f.cfg.Slots = 2
	begin := time.Now()
	defer f.work()()
	job := f.job(callOnce)
	job.Agent.Model = "opus"
	first := f.delayed(f.submit(job).ID, jobs.QuotaWaiting)
	calls := len(model.Requests())
	job.Key = "another"
	second := f.delayed(f.submit(job).ID, jobs.QuotaWaiting)
	for _, rec := range []jobs.Record{first, second} {
		if rec.NotBefore == nil || rec.NotBefore.Before(begin.Add(7199*time.Second)) || rec.NotBefore.After(time.Now().Add(7200*time.Second+time.Minute)) {
			t.Errorf("it goes on at %v", rec.NotBefore)
		}
	}
	if first.NotBefore.Equal(*second.NotBefore) {
		t.Error("both go on at the same time")
	}
	if n := len(model.Requests()); calls != 1 || n != 1 {
		t.Errorf("%d calls, then %d", calls, n)
	}
	standing := why.Of(why.Facts{Now: time.Now(), Record: second})
	if !strings.Contains(standing.Message, "quota_waiting") || !strings.Contains(standing.Message, "claude-opus-5") || strings.Contains(standing.Message, "real-key") {
		t.Errorf("why: %s", standing.Message)
	}
	other := f.job("true")
	other.Key = "other"
	if rec := f.done(f.submit(other).ID); rec.Outcome != jobs.Success {
		t.Errorf("a job without a model: %s (%s)", rec.Reason, rec.Message)
	}
}

// A key that is refused lets no other job begin; when it is accepted, all succeed, at their first
// counted attempt.
func TestJobsWaitForAKey(t *testing.T) {
	t.Parallel()
	var good atomic.Bool
	f, model := governed(t, time.Minute, func(agenttest.Request) agenttest.Reply {
		if good.Load() {
			return agenttest.Reply{Text: "ok"}
		}
		return agenttest.Reply{Status: 401, Error: "authentication_error"}
	})
	defer f.work()()
	job := f.job(callOnce)
	job.Agent.Model = "opus"
	first := f.delayed(f.submit(job).ID, jobs.KeyRefused)
	job.Key = "another"
	second := f.delayed(f.submit(job).ID, jobs.KeyRefused)
	if n := len(model.Requests()); n != 1 {
		t.Errorf("%d calls with a key that is refused", n)
	}
	standing := why.Of(why.Facts{Now: time.Now(), Record: second})
	if name := f.cfg.Gates["anthropic"].Governors("")[0].Name(); !strings.Contains(standing.Message, name) || !strings.Contains(first.Message, "authentication_error") || strings.Contains(standing.Message, "real-key") {
		t.Errorf("why: %s", standing.Message)
	}
}

// Jobs of a few agents that together ask for more than is allowed all succeed: refusals reach none
// of them, no attempt is lost, and nothing is a dead letter.
func TestAThrottledFleet(t *testing.T) {
	t.Parallel()
	var asked, refused atomic.Int32
	f, model := governed(t, time.Minute, func(agenttest.Request) agenttest.Reply {
		switch n := asked.Add(1); {
		case n == 10:
			refused.Add(1)
			return agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "0.05"}
		case n%4 == 0:
			refused.Add(1)
			return agenttest.Reply{Status: 529, Error: "overloaded_error", After: "0.05"}
		}
		return agenttest.Reply{Text: "ok"}
	})
	f.cfg.Slots = 4
	defer f.work()()
	var ids []string
	for range 6 {
		ids = append(ids, f.submit(f.job("set -e; "+strings.Repeat(callOnce+"\n", 3))).ID)
	}
	for _, id := range ids {
		if rec := f.done(id); rec.Outcome != jobs.Success || rec.Attempt != 1 {
			t.Errorf("%s in attempt %d (%s: %s)", rec.Outcome, rec.Attempt, rec.Reason, rec.Message)
		}
	}
	if n := len(model.Requests()); n != 18+int(refused.Load()) || refused.Load() < 4 {
		t.Errorf("%d requests, %d refused", n, refused.Load())
	}
}

// A session that meets a quota within its turn goes on with its conversation when that is over; the
// agent never hears of it.
func TestASessionGoesOnAfterAQuota(t *testing.T) {
	t.Parallel()
	for _, is := range []struct{ agent, api, model, refusal, tool, argument string }{
		{"claude", "anthropic", "", "rate_limit_error", "Bash", "command"},
		{"codex", "openai", "", "rate_limit_error", "exec_command", "cmd"},
		// Without a model it first asks a small one which to take.
		{"gemini", "google", "gemini-2.5-flash", "RESOURCE_EXHAUSTED", "run_shell_command", "command"},
	} {
		t.Run(is.agent, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			var over atomic.Pointer[time.Time]
			const told = 5 * time.Second
			model := f.real(is.agent, is.api, agenttest.Script{On: "COUNT", Steps: []agenttest.Step{
				agenttest.Use(is.tool, map[string]any{is.argument: "echo one >> log", "description": "count"}),
				func(agenttest.Request) agenttest.Reply {
					if now := time.Now(); over.CompareAndSwap(nil, &now) {
						return agenttest.Reply{Status: 429, Error: is.refusal, After: fmt.Sprint(told.Seconds())}
					}
					return agenttest.Reply{Text: "done"}
				},
			}})
			api := httptest.NewServer(model)
			t.Cleanup(api.Close)
			g, err := gate.New(gate.Config{API: is.api, Key: "real-key", Upstream: api.URL, Govern: true, Patience: time.Second})
			f.must(err)
			t.Cleanup(func() { f.must(g.Close()) })
			f.cfg.Gates = map[string]*gate.Gate{is.api: g}
			f.restores()
			rec, events := f.run(jobs.Job{Prompt: "COUNT one", Repo: jobs.Repo{URL: f.repo}, Agent: jobs.Agent{Name: is.agent, Model: is.model}, Timeout: jobs.Duration(3 * time.Minute)})
			if rec.Outcome != jobs.Success || rec.Attempt != 2 || rec.Counted != 0 || rec.Lost != 0 {
				t.Errorf("%s %s (%s) in attempt %d, %d counted, %d lost", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, rec.Counted, rec.Lost)
			}
			again := dataOf[event.JobRequeued](t, events, jobs.JobRequeued)
			if len(again) != 1 || again[0].Reason != jobs.QuotaWaiting || again[0].NotBefore == nil || again[0].NotBefore.Before(over.Load().Add(told)) {
				t.Errorf("refused at %v, requeued %+v", over.Load(), again)
			}
			turns := []int{}
			for _, r := range model.Requests() {
				if strings.Contains(r.First, "COUNT") {
					turns = append(turns, r.Turn)
				}
			}
			t.Logf("turns of the requests: %v", turns)
			if len(turns) != 3 || turns[2] == 0 {
				t.Errorf("the requests were of the turns %v", turns)
			}
		})
	}
}

// A model that the worker's policy does not name is not called, and the session tells of it.
func TestAModelThatThePolicyDoesNotName(t *testing.T) {
	t.Parallel()
	f, model := governed(t, time.Minute, agenttest.Say("ok"))
	f.cfg.Policy.Models = []string{"claude-sonnet-*"}
	rec, events := f.run(f.job(callOnce + " && exit 1; " + strings.Replace(callOnce, "opus", "sonnet", 1)))
	if rec.Outcome != jobs.Success || len(model.Requests()) != 1 {
		t.Errorf("%s (%s) after %d calls", rec.Outcome, rec.Message, len(model.Requests()))
	}
	if told := dataOf[event.JailViolation](t, events, jobs.JailViolation); len(told) != 1 || !strings.Contains(told[0].Reason, "claude-opus-5") {
		t.Errorf("told %+v", told)
	}
}

// A job allows fewer models than the policy does, and never more.
func TestAModelThatTheJobDoesNotAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow  []string
		passes bool // the call of Sonnet
		why    string
	}{
		{[]string{"claude-opus-5", "claude-sonnet-*"}, true, "claude-opus-5\" is not among those of the policy"},
		{[]string{"claude-sonnet-*"}, true, "claude-opus-5\" is not among those of the policy"},
		{[]string{"claude-opus-*"}, false, "is not among those that the job allows"},
	} {
		f, model := governed(t, time.Minute, agenttest.Say("ok"))
		f.cfg.Policy.Models = []string{"claude-sonnet-*"}
		job := f.job(callOnce + " && exit 1; " + strings.Replace(callOnce, "opus", "sonnet", 1))
		job.Agent.AllowModels = c.allow
		rec, events := f.run(job)
		if passed := rec.Outcome == jobs.Success && len(model.Requests()) == 1; passed != c.passes || !c.passes && len(model.Requests()) > 0 {
			t.Errorf("%q: %s (%s) after %d calls", c.allow, rec.Outcome, rec.Message, len(model.Requests()))
		}
		told := dataOf[event.JailViolation](t, events, jobs.JailViolation)
		if len(told) == 0 || !strings.Contains(told[len(told)-1].Reason, c.why) {
			t.Errorf("%q: told %+v", c.allow, told)
		}
	}
}

// What a job does not allow its calls to ask for is not called, and the event names the field.
func TestWhatTheJobDoesNotAllow(t *testing.T) {
	t.Parallel()
	f, model := governed(t, time.Minute, agenttest.Say("ok"))
	f.cfg.Policy.ServiceTiers, f.cfg.Policy.InferenceGeos = []string{"standard_only", "auto"}, []string{"global", "us"}
	with := func(more string) string { return strings.Replace(callOnce, `-d '{`, `-d '{`+more+`,`, 1) }
	job := f.job(with(`"service_tier":"auto"`) + " && exit 1; " + with(`"container":"c"`) + " && exit 1; " + with(`"inference_geo":"us"`) + " && exit 1; " + with(`"inference_geo":"eu"`) + " && exit 1; " +
		with(`"service_tier":"flex"`) + " && exit 1; " + with(`"inference_geo":"global","service_tier":"standard_only"`))
	job.Agent.AllowServiceTiers, job.Agent.AllowContainerIDs, job.Agent.AllowInferenceGeos = []string{"standard_only", "flex"}, []string{"none"}, []string{"global", "eu"}
	rec, events := f.run(job)
	if rec.Outcome != jobs.Success || len(model.Requests()) != 1 {
		t.Errorf("%s (%s) after %d calls", rec.Outcome, rec.Message, len(model.Requests()))
	}
	told := dataOf[event.JailViolation](t, events, jobs.JailViolation)
	if len(told) != 5 || told[0].Field != "service_tier" || told[1].Field != "container_id" || !strings.Contains(told[0].Reason, "that the job allows") ||
		told[2].Field != "inference_geo" || !strings.Contains(told[2].Reason, `"us" is not among those that the job allows`) ||
		told[3].Field != "inference_geo" || !strings.Contains(told[3].Reason, `"eu" is not among those of the policy`) ||
		told[4].Field != "service_tier" || !strings.Contains(told[4].Reason, `"flex" is not among those of the policy`) {
		t.Errorf("told %+v", told)
	}
}
