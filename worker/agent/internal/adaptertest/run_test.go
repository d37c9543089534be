package adaptertest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A run has the lines of both streams, and the verdict on the exit.
func TestTalk(t *testing.T) {
	l := adaptertest.Prompted(t, "command", "hello", agent.Program{})
	l.Job.Agent.Command = []string{"sh", "-c", `echo "$PENSTOCK_PROMPT"; echo broken >&2; exit 3`}
	r := adaptertest.Talk(t, agent.New(agent.Config{}, command.Adapter{}), l, &adaptertest.Conversation{})
	if r.Count(jobs.OutputLine) != 2 || r.Count(jobs.RunExited) != 1 || r.End.Message != "sh ended with status 3: broken" {
		t.Errorf("ended %+v", r.End)
		adaptertest.Log(t, r)
	}
}
