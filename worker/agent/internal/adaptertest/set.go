package adaptertest

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
)

// Set are the lines that set an agent to something that it may not refuse.
func Set(t *testing.T, speaker agent.Speaker, to control.Settings) [][]byte {
	t.Helper()
	lines, err := speaker.Set(jobs.NewID(), to)
	if err != nil {
		t.Error(err)
	}
	return lines
}
