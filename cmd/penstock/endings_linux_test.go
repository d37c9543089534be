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
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
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

// ignoreSignals is an agent that does not end when it is asked to, and that has a child of the
// same kind.
const ignoreSignals = `trap '' TERM INT HUP; (while :; do sleep 0.1; done) & while :; do sleep 0.1; done`

// submitIgnoringSignals returns when the job's agent and its child run.
func (f *fixture) submitIgnoringSignals(mark string, flags ...string) (id string) {
	f.Helper()
	id = f.submit(": "+mark+"; "+ignoreSignals, flags...)
	f.eventually(60*time.Second, "the agent runs, or the job has ended", func() bool {
		return len(running(mark)) > 1 || f.record(id).State == jobs.Finished
	})
	return id
}

// jailsHere lists the flags of submit for each jail that this host has, by the jail's
// name. Containers are missing, since they need a program that is linked statically.
func jailsHere() map[string][]string {
	jails := map[string][]string{"bwrap": {"--backend", "bwrap"}, "none": {"--backend", "none"}}
	if systemdRuns() {
		jails["systemd"] = []string{"--backend", "systemd"}
	}
	return jails
}

func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

var inContainer = map[string][]string{"oci": {"--isolation", "container", "--image", containerImage}}

// A record says that a job has finished when nothing of its agent is alive any
// more, however the agent takes it to be asked to end.
func TestFinishedMeansThatNothingLives(t *testing.T) {
	t.Parallel()
	finishedMeansThatNothingLives(newFixture(t), jailsHere())
}

func TestFinishedMeansThatNoContainerLives(t *testing.T) {
	t.Parallel()
	f := containerFixture(t)
	finishedMeansThatNothingLives(f, inContainer)
}

func finishedMeansThatNothingLives(f *fixture, jails map[string][]string) {
	f.env = append(f.env, "PENSTOCK_WORKER_STEP_TIMEOUT=1s")
	f.serve("--slots", fmt.Sprint(3*len(jails)))
	for jail, flags := range jails {
		for name, end := range map[string]func(id string){
			"cancel":  func(id string) { f.run("job", "cancel", id) },
			"stop":    func(id string) { f.run("job", "stop", id) },
			"timeout": nil,
		} {
			f.Run(jail+" "+name, func(t *testing.T) {
				t.Parallel()
				mark := fmt.Sprint("mark-", os.Getpid(), "-", jail, "-", name)
				var id string
				if end != nil {
					id = f.submitIgnoringSignals(mark, flags...)
				}
				// On a slow machine a jail takes seconds to start, which count.
				for limit := 2 * time.Second; end == nil && len(running(mark)) == 0; limit *= 2 {
					id = f.submitIgnoringSignals(mark, append([]string{"--timeout", limit.String(), "--max-attempts", "1"}, flags...)...)
				}
				waiting := f.begin("wait", id)
				if len(running(mark)) == 0 {
					t.Error("the agent was not found while it ran")
				}
				if end != nil {
					end(id)
				}
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
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("what a jail of backend none leaves is its control group, and only root has one here")
	}
	sandboxtest.Require(t, &none.Backend{}, sandbox.FeatureCPU) // by groups alone
	f, other := newFixture(t), newFixture(t)
	left := func(id string) (found []string) {
		all, err := sandbox.Leftovers(context.Background(), id)
		f.must(err)
		for _, l := range all {
			found = append(found, l.Label)
		}
		return found
	}
	sweepsItsOwnPool(f, other, left, func(string) {}, "--backend", "none")
}

// A container ends itself when its worker is killed. One that cannot, since it is
// paused, is left.
func TestAWorkerSweepsItsOwnContainers(t *testing.T) {
	t.Parallel()
	f := containerFixture(t)
	other := newFixture(t)
	other.env, other.program = f.env, f.program
	pause := func(id string) {
		for _, token := range f.containers(id) {
			out, err := exec.Command("docker", "pause", "penstock-"+token).CombinedOutput()
			if err != nil {
				f.Fatalf("pause: %v: %s", err, out)
			}
		}
	}
	sweepsItsOwnPool(f, other, f.containers, pause, inContainer["oci"]...)
}

// A unit ends itself when its worker is killed. One that cannot, since its processes
// were stopped, is left.
func TestAWorkerSweepsItsOwnUnits(t *testing.T) {
	t.Parallel()
	if !systemdRuns() {
		t.Skip("this machine was not booted with systemd: TestEndingsUnderSystemd boots a container")
	}
	f, other := newFixture(t), newFixture(t)
	units := func(id string) []string {
		out, err := exec.Command("systemctl", "list-units", "--plain", "--no-legend", "penstock-"+id+"*").Output()
		f.must(err)
		var found []string
		for line := range strings.Lines(string(out)) {
			found = append(found, strings.Fields(line)[0])
		}
		return found
	}
	stop := func(id string) {
		for _, unit := range units(id) {
			if out, err := exec.Command("systemctl", "kill", "--signal=STOP", unit).CombinedOutput(); err != nil {
				f.Fatalf("stop: %v: %s", err, out)
			}
		}
	}
	sweepsItsOwnPool(f, other, units, stop, "--backend", "systemd")
}

// sweepsItsOwnPool kills the workers of two pools and starts others. What is left of a
// job is found by left; holds has its jail survive the worker.
func sweepsItsOwnPool(f, other *fixture, left func(id string) []string, hold func(id string), jail ...string) {
	ids := map[*fixture]string{}
	for _, f := range []*fixture{f, other} {
		pool, args := f.serve("--slots", "1")
		mark := fmt.Sprintf("mark-%d-%p", os.Getpid(), f)
		ids[f] = f.submitIgnoringSignals(mark, jail...)
		hold(ids[f])
		pool.kill()
		f.start("serving", append(args, "--slots", "0")...) // no worker
	}
	for _, f := range []*fixture{f, other} {
		if found := left(ids[f]); len(found) != 1 {
			f.Fatalf("left are %v, want one jail", found)
		}
	}
	f.worker("--slots", "1")
	f.eventually(60*time.Second, "its own is ended", func() bool { return len(left(ids[f])) == 0 })
	if len(left(ids[other])) != 1 {
		f.Error("that of another pool was ended, too")
	}
	if said := f.run("clean", "--dry-run"); strings.Contains(said, ids[other]) {
		f.Errorf("clean would end that of another pool:\n%s", said)
	}
	other.worker("--slots", "1")
	f.eventually(60*time.Second, "the other pool's worker ends it", func() bool { return len(left(ids[other])) == 0 })
}

// Health and metrics are there until the last: while it drains, serve says that it
// is not ready.
func TestServeShowsThatItDrains(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	admin := freeAddress(f)
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
	if got := f.run("job", "get", id, "-o", "json"); !strings.Contains(got, `"state": "executing"`) {
		t.Errorf("while it drains, a job is %s", got)
	}
	if code := f.ended(pool, 60*time.Second); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// Without a terminal SIGHUP has a service read its settings again; with one, which
// is closed, it drains.
func TestHangup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	settings := filepath.Join(t.TempDir(), "penstock.yaml")
	f.must(os.WriteFile(settings, []byte("log: {level: warn}\n"), 0o644))
	// The tests may run with the signal ignored, as under nohup, and the processes that
	// they start would inherit that.
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
	if err := syscall.Kill(pool.Process.Pid, 0); err != nil {
		t.Error("serve did not live on")
	}
}

func terminalPair(f *fixture) (master, slave *os.File) {
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
