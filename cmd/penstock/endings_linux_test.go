package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox"
)

// running lists the processes with a word in their command line.
func running(word string) (found []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(line), word) && strings.HasPrefix(string(line), "sh\x00") {
			found = append(found, filepath.Base(filepath.Dir(name)))
		}
	}
	return found
}

// A record says that a job has finished when nothing of its agent is alive any
// more, however the agent takes it to be asked to end.
func TestFinishedMeansThatNothingLives(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.env = []string{"PENSTOCK_WORKER_STEP_TIMEOUT=1s"}
	f.serve("--slots", "6")
	const deaf = `trap '' TERM INT HUP; (trap '' TERM INT HUP; while :; do sleep 0.1; done) & echo up; while :; do sleep 0.1; done`
	for _, backend := range []string{"bwrap", "none"} {
		for name, end := range map[string]func(id string){
			"cancel":  func(id string) { f.run("job", "cancel", id) },
			"stop":    func(id string) { f.run("job", "stop", id) },
			"timeout": func(string) {},
		} {
			t.Run(backend+" "+name, func(t *testing.T) {
				t.Parallel()
				mark := "mark-" + backend + "-" + name
				flags := []string{"--backend", backend}
				if name == "timeout" {
					flags = append(flags, "--timeout", "2s", "--max-attempts", "1")
				}
				id := f.submit(": "+mark+"; "+deaf, flags...)
				f.eventually(60*time.Second, "the agent is up", func() bool { return strings.Contains(f.run("logs", id), "up") })
				waiting := f.begin("wait", id)
				if len(running(mark)) == 0 {
					t.Error("the agent was not found while it ran")
				}
				end(id)
				_ = waiting.Wait() // it ends with what the job ended with
				if left := running(mark); len(left) > 0 {
					t.Errorf("the job has finished, and %v are alive", left)
				}
				if rec := f.record(id); rec.State != jobs.Finished {
					t.Errorf("it is %s", rec.State)
				}
			})
		}
	}
}

// A worker ends the jails that were left by its own pool. Those of another data
// directory on the same host stay, for that one's worker.
func TestAWorkerSweepsItsOwnPool(t *testing.T) {
	f, other := newField(t), newField(t)
	left := func(f *field) (found []string) {
		all, err := sandbox.Leftovers(context.Background(), f.record(f.list()[0].ID).ID)
		f.must(err)
		for _, l := range all {
			found = append(found, l.Label)
		}
		return found
	}
	const script = `trap '' TERM; echo up; while :; do sleep 0.1; done`
	for _, f := range []*field{f, other} {
		pool, args := f.serve("--slots", "1")
		id := f.submit(script, "--backend", "none")
		f.eventually(60*time.Second, "the agent is up", func() bool { return strings.Contains(f.run("logs", id), "up") })
		pool.kill()
		f.start("serving", append(args, "--slots", "0")...) // no worker
	}
	for _, f := range []*field{f, other} {
		if len(left(f)) != 1 {
			t.Fatalf("left are %v, want one jail", left(f))
		}
	}
	f.worker("--slots", "1")
	f.eventually(60*time.Second, "its own is ended", func() bool { return len(left(f)) == 0 })
	if len(left(other)) != 1 {
		t.Error("that of another pool was ended, too")
	}
	if said := f.run("clean", "--dry-run"); strings.Contains(said, other.list()[0].ID) {
		t.Errorf("clean would end that of another pool:\n%s", said)
	}
	other.worker("--slots", "1")
	f.eventually(60*time.Second, "the other pool's worker ends it", func() bool { return len(left(other)) == 0 })
}

// Health and metrics are there until the last: while it drains, serve says that it
// is not ready.
func TestServeShowsThatItDrains(t *testing.T) {
	t.Parallel()
	f := newField(t)
	admin := fmt.Sprint("127.0.0.1:", jobstest.FreePort(f))
	pool := f.start("serving", "serve", "--listen", "127.0.0.1:0", "--admin", admin, "--slots", "1", "--drain", "3s")
	id := f.submit("echo up; sleep 300")
	f.eventually(60*time.Second, "the agent is up", func() bool { return strings.Contains(f.run("logs", id), "up") })
	ready := func(path string) int {
		res, err := http.Get("http://" + admin + path)
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := ready("/readyz"); got != 200 {
		t.Errorf("before: got %d", got)
	}
	f.must(pool.Process.Signal(syscall.SIGTERM))
	f.eventually(10*time.Second, "readyz says 503", func() bool { return ready("/readyz") == 503 })
	if live, numbers := ready("/livez"), ready("/metrics"); live != 200 || numbers != 200 {
		t.Errorf("while it drains: livez %d, metrics %d", live, numbers)
	}
	if code := f.ended(pool, 60*time.Second); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// Without a terminal SIGHUP has a service read its settings again; with one, which
// is closed, it drains.
func TestHangup(t *testing.T) {
	t.Parallel()
	f := newField(t)
	settings := filepath.Join(t.TempDir(), "penstock.yaml")
	f.must(os.WriteFile(settings, []byte("log: {level: warn}\n"), 0o644))
	// Whoever runs the tests may have them ignore it, as nohup does, and what they start
	// would do the same.
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	cmd := f.command("serve", "--config", settings, "--listen", "127.0.0.1:0", "--admin", "", "--drain", "1s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pool := f.launch(cmd, "serving")
	f.must(os.WriteFile(settings, []byte("log: {level: info}\n"), 0o644))
	f.must(pool.Process.Signal(syscall.SIGHUP))
	f.eventually(20*time.Second, "it has read the settings", func() bool { return strings.Contains(pool.log.String(), "log.level is info") })
	f.must(os.WriteFile(settings, []byte("log: {level: loud}\n"), 0o644))
	f.must(pool.Process.Signal(syscall.SIGHUP))
	f.eventually(20*time.Second, "it keeps what it had", func() bool { return strings.Contains(pool.log.String(), "stay as they are") })

	master, slave := terminalPair(f)
	cmd = f.command("worker", "--admin", "", "--drain", "1s", "--slots", "1")
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	worker := f.launch(cmd, "slots on")
	id := f.submit("echo up; sleep 300")
	f.eventually(60*time.Second, "the agent is up", func() bool { return strings.Contains(f.run("logs", id), "up") })
	f.must(slave.Close())
	f.must(master.Close())
	if code := f.ended(worker, 60*time.Second); code != 0 {
		t.Errorf("the worker ended with %d, not in order:\n%s", code, worker.log)
	}
	if rec := f.record(id); rec.State != jobs.Pending || rec.Reason != jobs.WorkerDrained {
		t.Errorf("the job is %s, %s; want it handed back", rec.State, rec.Reason)
	}
	if err := exec.Command("kill", "-0", fmt.Sprint(pool.Process.Pid)).Run(); err != nil {
		t.Error("serve did not live on")
	}
}

func terminalPair(f *field) (master, slave *os.File) {
	f.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	f.must(err)
	f.must(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	f.must(err)
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	f.must(err)
	return master, slave
}
