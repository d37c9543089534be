package contract

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/gate"
)

// failures are the checks of runs that cannot end well, and of those that nearly do not.
var failures = []check{
	{"", "failure", "a model API that refuses the key is a failure, and soon", nil, refusedWith(401, "authentication_error")},
	{"", "unknown_model", "a model that the API does not know is a failure, and soon", nil, refusedWith(404, "not_found_error")},
	{"", "bad_request", "a request that the API does not take is a failure, and soon", nil, refusedWith(400, "invalid_request_error")},
	{"", "server_error", "it asks again after an error of the model API's server", hasTurns, asksAgain(agenttest.Reply{Status: 500, Error: "api_error"})},
	{"", "rate_limit", "it asks again after the model API has told it to wait", hasTurns, asksAgain(agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "1"})},
	{"", "budget", "it ends when the job's budget is spent", nil, budget},
	{"", "killed", "kill -9 of its program within a turn is a crash", nil, signalled("KILL")},
	{"", "terminated", "SIGTERM within a turn ends it, and is no success", nil, signalled("TERM")},
}

// refusedWith is a check with a model API that refuses each call.
func refusedWith(status int, kind string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		s, err := t.run(ctx, task{model: agenttest.Fail(status, kind), all: true})
		if err != nil {
			return err
		}
		if s.End.Outcome == jobs.Success {
			return fmt.Errorf("it ended with success")
		}
		if s.Count(jobs.RunExited) != 1 {
			return fmt.Errorf("its exit is not among the events: %s", kinds(s.Run))
		}
		return nil
	}
}

// asksAgain is a check with a model API that fails once.
func asksAgain(reply agenttest.Reply) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		s, err := t.run(ctx, task{model: func(r agenttest.Request) agenttest.Reply {
			if r.Try == 0 {
				return reply
			}
			return answer(r)
		}})
		switch {
		case err != nil:
			return err
		case s.ended() == nil && !s.says(answerWord):
			return fmt.Errorf("it ended with success after an error of the model API and without an answer")
		case s.ended() != nil && len(s.requests) < 2:
			return &cannotError{"it does not ask again: the worker does"}
		}
		return s.ended()
	}
}

// budget has the agent run commands until the gate refuses its calls.
func budget(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{
		limits: gate.Limits{Tokens: 400_000},
		model: func(r agenttest.Request) agenttest.Reply {
			reply := shell(r, "true")
			reply.Input = 150_000
			return reply
		},
	})
	switch {
	case err != nil:
		return err
	case s.hasShell() != nil:
		return s.hasShell()
	case s.meter.Refused == 0:
		return fmt.Errorf("the budget was not spent in %d calls; it ended with %s", s.meter.Calls, s.how())
	case s.End.Outcome == jobs.Success:
		return fmt.Errorf("it ended with success, after %d calls that were refused", s.meter.Refused)
	}
	return nil
}

// endTime is how long an agent may take from its model's answer to its end after a signal.
const endTime = 30 * time.Second

// signalled has the agent run a command that sends a signal to all processes of the jail.
func signalled(signal string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		c := &harness.Conversation{}
		var late atomic.Bool
		var waiting atomic.Pointer[time.Timer]
		s, err := t.run(ctx, task{with: c, model: func(r agenttest.Request) agenttest.Reply {
			if r.Turn > 0 {
				return agenttest.Reply{Hang: true}
			}
			if r.Try == 0 {
				waiting.Store(time.AfterFunc(endTime, func() {
					late.Store(true)
					c.Abort()
				}))
			}
			return shell(r, "kill -"+signal+" -1; exec sleep 600")
		}})
		if timer := waiting.Load(); timer != nil {
			timer.Stop()
		}
		switch {
		case err != nil:
			return err
		case s.hasShell() != nil:
			return s.hasShell()
		case late.Load():
			return fmt.Errorf("it had not ended %v after SIG%s", endTime, signal)
		case s.End.Outcome == jobs.Success:
			return fmt.Errorf("it ended with success")
		case signal == "KILL" && s.End.Reason != jobs.AgentCrashed:
			return fmt.Errorf("it ended with reason %s, not %s: %s", s.End.Reason, jobs.AgentCrashed, s.End.Message)
		}
		return nil
	}
}
