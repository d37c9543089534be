package harness_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold runs a script as an agent.
func hold(t *testing.T, script string, limit time.Duration, c *harness.Conversation) (harness.Run, error) {
	t.Helper()
	exectest.Need(t, "bwrap")
	adapter, err := builtin.Agents(agent.Config{}).Get("command")
	if err != nil {
		t.Fatal(err)
	}
	l := agent.Launch{
		Job: jobs.Job{Prompt: "x", Env: map[string]string{"WORD": "of the job"}, Agent: jobs.Agent{Name: "command", Command: []string{"sh", "-c", script}}}.WithDefaults(),
		ID:  jobs.NewID(), Attempt: 1, Cwd: t.TempDir(),
	}
	jail := harness.Jail{Backend: &bwrap.Backend{}, Limit: limit, Spec: sandbox.Spec{Env: []string{"PATH=/usr/bin:/bin"}}}
	return jail.Run(t.Context(), adapter, l, harness.Gated{}, c)
}

func TestRun(t *testing.T) {
	t.Parallel()
	r, err := hold(t, `echo "$WORD in $PWD"; exit 3`, slowtest.Limit(time.Minute), &harness.Conversation{})
	if out := r.Output(); err != nil || r.Code != 3 || r.End.Outcome == jobs.Success || !strings.Contains(out, "of the job in "+sandbox.WorkspacePath) {
		t.Errorf("%v, exit %d, ended %+v: %s", err, r.Code, r.End, out)
	}
}

// A run ends with its limit, or when who watches it ends it; what was seen until then is there.
func TestRunsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit time.Duration
		kill  bool
	}{
		"in time":   {2 * time.Second, false},
		"by a kill": {slowtest.Limit(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &harness.Conversation{}
			c.OnEvent = func(e event.Event) [][]byte {
				if e.Kind == jobs.OutputLine && tt.kill {
					c.Kill()
				}
				return nil
			}
			r, err := hold(t, `echo begun; sleep 1000`, tt.limit, c)
			_, limited := errors.AsType[*harness.LimitError](err)
			if limited == tt.kill || r.End.Outcome == jobs.Success || !strings.Contains(r.Output(), "begun") {
				t.Errorf("%v, ended %+v: %s", err, r.End, r.Output())
			}
		})
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "bwrap")
	output := func(limit time.Duration, script string) (string, sandbox.Exit, error) {
		jail := harness.Jail{Backend: &bwrap.Backend{}, Limit: limit}
		out, exit, err := jail.Output(context.Background(), agent.Plan{Args: []string{"/bin/sh", "-c", script}})
		return string(out), exit, err
	}
	if out, exit, err := output(slowtest.Limit(time.Minute), "echo said; exit 4"); out != "said\n" || exit.Code != 4 || err != nil {
		t.Errorf("%q, %v, %v", out, exit, err)
	}
	if _, _, err := output(time.Second, "sleep 1000"); err == nil {
		t.Error("a program that does not end has no error")
	} else if _, limited := errors.AsType[*harness.LimitError](err); !limited {
		t.Errorf("a program that does not end: %v", err)
	}
}
