package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// servers starts n servers of their own, as operators do, and returns where
// they are; several are a cluster.
func (f *fixture) servers(n int) (urls []string, running []*program) {
	return f.cluster("c", n, func(int) string { return f.store() })
}

// store is the line of a server that keeps streams.
func (f *fixture) store() string {
	return fmt.Sprintf("jetstream { store_dir: %q, sync_interval: always }\n", f.TempDir())
}

// cluster starts n servers, each with more lines in its configuration.
func (f *fixture) cluster(name string, n int, more func(server int) string) (urls []string, running []*program) {
	f.Helper()
	var clients, routes []string
	for range n {
		clients, routes = append(clients, freeAddress(f)), append(routes, freeAddress(f))
	}
	dir := f.TempDir()
	for i, client := range clients {
		server := fmt.Sprint(name, i)
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nauthorization { user: penstock, password: chosen }\n", server, client) + more(i)
		if n > 1 {
			text += fmt.Sprintf("cluster { name: %s, listen: %q, routes: [\"nats://%s\"] }\n", name, routes[i], strings.Join(routes, `", "nats://`))
		}
		file := filepath.Join(dir, server+".conf")
		f.must(os.WriteFile(file, []byte(text), 0o600))
		running = append(running, f.begin("nats", "server", file))
		urls = append(urls, "nats://penstock:chosen@"+client)
	}
	for _, p := range running {
		f.eventually(30*time.Second, "a server listens", func() bool { return strings.Contains(p.log.String(), "NATS server at") })
	}
	return urls, running
}

// A pool moves from the broker inside to a server, and from there to three, by
// backup and restore: what had ended has its result, what waited is done there.
func TestAPoolMovesToACluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = []string{"PENSTOCK_LEASE=10s"} // servers choose a leader meanwhile
	serve, _ := f.serve("--slots", "1", "--queues", "default,slow")
	done := f.submit("echo done >new.txt", "--key", "done")
	f.run("wait", "--timeout", patience(60), done)
	var waiting []string
	f.run("queue", "pause", "slow")
	for i := range 2 {
		waiting = append(waiting, f.submit("echo waited >new.txt", "--key", fmt.Sprint("waits", i), "--queue", "slow"))
	}
	for i, n := range []int{1, 3} {
		file := filepath.Join(t.TempDir(), "pool.backup")
		f.run("backup", file)
		serve.end()
		urls, running := f.servers(n)
		f.env = append(f.env, "PENSTOCK_SERVER="+strings.Join(urls, ",")) // the last one counts
		f.run("restore", file, "--replicas", fmt.Sprint(n))
		if n == 3 {
			running[0].kill() // one of three may be away, from now on
		}
		f.run("nats", "diff", "--replicas", fmt.Sprint(n))
		if out, code, told := f.try("restore", file); code != cli.ExitUnexpected || !strings.Contains(told, "the pool is not empty") {
			t.Errorf("restored twice: %d, %s%s", code, out, told)
		}
		serve = f.start("serving", "serve", "--admin", "", "--slots", "1", "--queues", "default,slow", "--drain", "1s")
		if out, code, told := f.try("restore", file, "--replace"); code != cli.ExitUnexpected || !strings.Contains(told, "the pool runs: [a dispatcher") {
			t.Errorf("restored while the pool runs: %d, %s%s", code, out, told)
		}
		if id := f.submit("false", "--key", "done"); id != done {
			t.Errorf("on %d servers the key of job %s leads to %s", n, done, id)
		}
		if rec := f.record(waiting[i]); rec.State != jobs.Pending && n == 1 {
			t.Errorf("a job of a paused queue is %s", rec.State)
		}
	}
	f.run("queue", "resume", "slow")
	f.run(append([]string{"wait", "--timeout", patience(90)}, waiting...)...)
	f.kept(map[string]string{done: "+done", waiting[0]: "+waited", waiting[1]: "+waited"})

	// And home again, from three.
	file := filepath.Join(t.TempDir(), "pool.backup")
	f.run("backup", file)
	f.env = append(f.env, "PENSTOCK_SERVER=")
	f.run("restore", file, "--replace")
	f.kept(map[string]string{done: "+done", waiting[0]: "+waited", waiting[1]: "+waited"})
}

// kept looks for what jobs that have ended have left.
func (f *fixture) kept(patches map[string]string) {
	f.Helper()
	for id, text := range patches {
		if rec := f.record(id); rec.Outcome != jobs.Success {
			f.Errorf("job %s is %s, %s", id, rec.State, rec.Outcome)
		}
		if patch := f.run("job", "diff", id); !strings.Contains(patch, text) {
			f.Errorf("the patch of job %s is\n%s", id, patch)
		}
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			f.Errorf("job %s finished %d times", id, got)
		}
	}
}
