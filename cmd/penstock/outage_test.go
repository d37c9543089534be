package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Commands that wait for jobs outlive the pool's only dispatcher: the job that runs
// ends while there is none, and what comes next is submitted when there is one again.
func TestWaitingCommandsOutliveADispatcher(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	urls, _ := f.servers(1)
	f.env = append(f.env, "PENSTOCK_SERVER="+urls[0])
	serve := []string{"serve", "--admin", "", "--drain", "1s", "--slots", "0"}
	dispatcher := f.start("serving", serve...)
	f.worker("--slots", "1")

	out := filepath.Join(t.TempDir(), "out")
	batch := f.begin("batch", "run", f.issues(3, func(int) string { return "" }), "--repo", f.repo, "--out", out, "--max-parallel", "1", "--", "sh", "-c", `! grep -q '"number": 1\b' $PENSTOCK_ISSUE_FILE || `+stays(5)+"; echo x >new.txt")
	f.eventually(30*time.Second, "the first item runs", func() bool { return f.states()[jobs.Executing] == 1 })
	id := f.list()[0].ID
	nc, err := nats.Connect(urls[0])
	f.must(err)
	t.Cleanup(nc.Close)
	asked, err := nc.SubscribeSync("penstock.v1.api.get")
	f.must(err)
	f.must(nc.Flush())
	wait := f.begin("wait", id)
	for range 2 { // the first request asks whether there is such a job, and the second one begins to follow it
		for by := ""; by != "cli"; {
			request, err := asked.NextMsg(slowtest.Limit(20 * time.Second))
			f.must(err)
			by = request.Header.Get(operation.CallerHeader)
		}
	}
	watch := f.begin("watch", id)
	f.eventually(20*time.Second, "watch has begun", func() bool { return strings.Contains(watch.log.String(), "bwrap") })
	dispatcher.kill()
	for name, p := range map[string]*program{"batch run": batch, "wait": wait} {
		f.eventually(30*time.Second, name+" says that it waits", func() bool { return strings.Contains(p.log.String(), "waiting for one") })
	}
	f.start("serving", serve...)
	for name, p := range map[string]*program{"wait": wait, "watch": watch, "batch run": batch} {
		if code := f.ended(p, 120*time.Second); code != 0 { // the first item may stay that long
			t.Errorf("%s ended with %d:\n%s", name, code, p.log)
		}
	}
	if n := len(written(t, out)); n != 3 {
		t.Errorf("%d of 3 results", n)
	}
}
