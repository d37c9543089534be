package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A pool's streams are in one region, and a worker and its commands in another one, each
// with servers of its own: a super-cluster. A running job outlives servers of both.
func TestAPoolInTwoRegions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = []string{"PENSTOCK_LEASE=" + slowtest.Pace(30*time.Second).String()} // servers choose a leader meanwhile
	regions := f.regions(map[string]int{"east": 3, "west": 1})
	east, kept := f.cluster("east", 3, func(server int) string { return f.store() + regions["east"][server] })
	west, passing := f.cluster("west", 1, func(server int) string { return regions["west"][server] })
	f.env = append(f.env, "PENSTOCK_SERVER="+strings.Join(east, ","))
	f.eventually(30*time.Second, "the servers of the east keep streams", func() bool {
		_, code, _ := f.try("nats", "apply", "--replicas", "3")
		return code == 0
	})
	f.start("serving", "serve", "--admin", "", "--drain", "1s", "--slots", "0")
	away := newFixture(t)
	away.env = append(away.env, f.env[0], "PENSTOCK_SERVER="+west[0])
	away.worker("--slots", "2")

	short := strings.TrimSpace(away.run("submit", "-o", "id", "--isolation", "none", "--queue", "made-from-the-west", "--", "echo", "from afar"))
	away.worker("--slots", "1", "--queues", "made-from-the-west")
	away.run("wait", "--timeout", patience(60), short)
	if out := away.run("logs", short); !strings.Contains(out, "from afar") {
		t.Errorf("logs:\n%s", out)
	}
	long := strings.TrimSpace(away.run("submit", "-o", "id", "--isolation", "none", "--", "sh", "-c", "i=0; while [ $i -lt 12 ]; do i=$((i+1)); echo line $i; sleep 0.5; done"))
	f.eventually(60*time.Second, "it runs", func() bool { return f.record(long).State == jobs.Executing })
	kept[1].kill()
	passing[0].kill()
	f.start("NATS server at", passing[0].Args[1:]...)
	away.run("wait", "--timeout", patience(90), long)
	if rec := f.record(long); rec.Outcome != jobs.Success || rec.Attempt != 1 {
		t.Errorf("the job is %s, %s, at attempt %d", rec.State, rec.Outcome, rec.Attempt)
	}
	f.gapless(f.events(long))
	if out := away.run("logs", long); strings.Count(out, "| line") != 12 {
		t.Errorf("logs:\n%s", out)
	}
	if out := f.run("nats", "diff", "--replicas", "3"); out != "" {
		t.Errorf("what differs:\n%s", out)
	}
}

// regions returns, for each server of each region, the line that connects the regions. They
// are 100 ms apart.
func (f *fixture) regions(servers map[string]int) map[string][]string {
	f.Helper()
	listen, advertise := map[string][]string{}, map[string][]string{}
	var all []string
	for region, n := range servers {
		for range n {
			at := freeAddress(f)
			way, err := flaky.Listen(at)
			f.must(err)
			f.Cleanup(way.Close)
			way.Move(flaky.Distance{RoundTrip: 100 * time.Millisecond})
			listen[region] = append(listen[region], at)
			advertise[region] = append(advertise[region], strings.TrimPrefix(way.URL(), "nats://"))
		}
		all = append(all, fmt.Sprintf("{ name: %s, urls: [\"nats://%s\"] }", region, strings.Join(advertise[region], `", "nats://`)))
	}
	lines := map[string][]string{}
	for region, own := range listen {
		for i, at := range own {
			lines[region] = append(lines[region], fmt.Sprintf("gateway { name: %s, listen: %q, advertise: %q, gateways: [%s] }\n", region, at, advertise[region][i], strings.Join(all, ", ")))
		}
	}
	return lines
}
