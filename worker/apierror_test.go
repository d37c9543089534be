package worker

import (
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// real gives the worker a real agent, in the jail, whose model plays scripts.
func (f *field) real(program, api string, scripts ...agenttest.Script) *agenttest.Model {
	f.Helper()
	exectest.Need(f, program)
	model := agenttest.New(scripts...)
	upstream := httptest.NewServer(model)
	f.Cleanup(upstream.Close)
	g, err := gate.New(gate.Config{API: api, Key: "key", Upstream: upstream.URL})
	f.must(err)
	f.Cleanup(func() { f.must(g.Close()) })
	f.cfg.Gates = map[string]*gate.Gate{api: g}
	f.cfg.Agents = builtin.Agents(agent.Config{Path: os.Getenv("PATH")})
	return model
}

// What a model API can answer instead of doing its work, and how an attempt
// ends then, whatever its agent makes of it.
var apiErrors = []struct {
	name   string
	reply  agenttest.Reply
	reason jobs.Reason
	silent time.Duration // what ends an agent that waits; long for one that has to begin
}{
	{"400", agenttest.Reply{Status: 400, Error: "invalid_request_error"}, jobs.AgentFailed, 0},
	{"401", agenttest.Reply{Status: 401, Error: "authentication_error"}, jobs.Unauthorized, 0},
	{"403", agenttest.Reply{Status: 403, Error: "permission_error"}, jobs.Unauthorized, 0},
	{"429", agenttest.Reply{Status: 429, Error: "rate_limit_error"}, jobs.RateLimited, 0},
	{"429, in a second", agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "1"}, jobs.RateLimited, 0},
	{"429, in two hours", agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "7200"}, jobs.RateLimited, 30 * second},
	{"500", agenttest.Reply{Status: 500, Error: "api_error"}, jobs.ModelUnavailable, 0},
	{"529", agenttest.Reply{Status: 529, Error: "overloaded_error"}, jobs.ModelUnavailable, 0},
	{"drop", agenttest.Reply{Text: "half of", Drop: true}, jobs.ModelUnavailable, 0},
	{"hang", agenttest.Reply{Text: "half of", Hang: true}, jobs.IdleLimit, 8 * second},
	{"no answer", agenttest.Reply{Delay: time.Hour}, jobs.IdleLimit, 8 * second},
}

// fewRetries are for codex; the real number takes half a minute.
var fewRetries = []string{"-c", "model_providers.penstock.request_max_retries=1", "-c", "model_providers.penstock.stream_max_retries=1"}

// The real agents, in the jail, meet each error of a model API: the attempt ends for
// the right reason, and does not wait for an agent that waits.
func TestErrorsOfAModelAPI(t *testing.T) {
	t.Parallel()
	for _, meets := range []struct {
		name, api string
		agent     jobs.Agent
	}{
		{"claude", "anthropic", jobs.Agent{Name: "claude"}},
		{"codex", "openai", jobs.Agent{Name: "codex", Model: "gpt-5.5", Args: fewRetries}},
		{"codex app-server", "openai", jobs.Agent{Name: "codex", Model: "gpt-5.5", Args: fewRetries, Interactive: true}},
		{"gemini server", "google", jobs.Agent{Name: "gemini", Model: "gemini-2.5-flash", Interactive: true}},
	} {
		t.Run(meets.name, func(t *testing.T) {
			t.Parallel()
			f := leasedField(t, time.Minute)
			var scripts []agenttest.Script
			for _, e := range apiErrors {
				scripts = append(scripts, agenttest.Script{On: "MEET " + e.name + ".", Steps: []agenttest.Step{
					func(agenttest.Request) agenttest.Reply { return e.reply },
				}})
			}
			f.real(meets.agent.Name, meets.api, scripts...)
			f.cfg.Slots, f.cfg.Hangs = 6, Hangs{Exit: 2 * second, Step: second}
			var first sync.Map // how the first attempt of each job ended
			var open sync.WaitGroup
			open.Add(len(apiErrors))
			f.cfg.Hooks.Settled = func(rec jobs.Record, _ jobs.Result) {
				if _, again := first.LoadOrStore(rec.ID, rec); !again {
					open.Done()
				}
			}
			var ids []string
			for _, e := range apiErrors {
				job := jobs.Job{Prompt: "MEET " + e.name + ".", Repo: jobs.Repo{URL: f.repo}, Agent: meets.agent}
				job.IdleTimeout, job.Retry.MaxAttempts = jobs.Duration(e.silent), 1
				if job.Agent.Interactive {
					// It is kept after its turn, so all run at once, and each takes long to begin.
					job.IdleTimeout, f.cfg.Slots = jobs.Duration(45*second), len(apiErrors)
				}
				job.Timeout, job.Env = jobs.Duration(3*time.Minute), map[string]string{"CLAUDE_CODE_MAX_RETRIES": "2"}
				ids = append(ids, f.submit(job).ID)
			}
			stop := f.work()
			open.Wait()
			for i, e := range apiErrors {
				got, _ := first.Load(ids[i])
				if rec := got.(jobs.Record); rec.Reason != e.reason || rec.Attempt != 1 {
					t.Errorf("%s: %s in attempt %d, %s %s (%s), want %s: %s", e.name, rec.State, rec.Attempt, rec.Outcome, rec.Reason, rec.Message, e.reason, kinds(f.events(ids[i])))
				}
			}
			stop()
		})
	}
}
