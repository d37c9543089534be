package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// Users who watch a worker see what its agents hung in, and how they ended.
func TestHangsAreCounted(t *testing.T) {
	t.Parallel()
	jail, err := backends.New(t.Context(), backends.Auto)
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Require(t, jail, sandbox.FeatureCPU) // control groups, which name the limit that ended a program
	f := newFixture(t)
	f.serve()
	w := f.start("slots on", "worker", "--slots", "1", "--admin", "127.0.0.1:0", "--drain", "1s")
	admin := regexp.MustCompile(`http://[^/]+/`).FindString(w.log.String())
	id := f.submit("exec sleep 60", "--idle-timeout", "1s", "--max-attempts", "1")
	full := f.submit("head -c 400m /dev/zero | tail", "--memory", "64MiB", "--max-attempts", "1")
	f.try("wait", "--timeout", patience(60), id, full)
	if rec := f.record(id); rec.Reason != jobs.IdleLimit {
		t.Errorf("it ended with %s: %s", rec.Reason, rec.Message)
	}
	for _, line := range []string{
		`penstock_agent_hangs_total{step="term",what="idle"} 1`,
		`penstock_agent_exits_total{agent="command",class="other"} 0`,
		`penstock_sandbox_oom_kills_total{isolation="worktree"} 1`,
	} {
		f.eventually(20*time.Second, line, func() bool { return strings.Contains(f.page(admin+"metrics"), "\n"+line+"\n") })
	}
}
