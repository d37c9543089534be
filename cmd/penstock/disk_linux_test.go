package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// small mounts a disk of that many MiB at a directory, to be filled.
func (f *fixture) small(dir string, mib int) {
	f.Helper()
	if err := f.mountSmall(dir, mib); err != nil {
		f.Skip(err)
	}
}

// mountSmall is small where a test has something else to do on a host that mounts nothing.
func (f *fixture) mountSmall(dir string, mib int) error {
	f.Helper()
	f.must(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount(smallDisk, dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		return fmt.Errorf("no small disk can be mounted: %w", err)
	}
	f.Cleanup(func() { f.must(syscall.Unmount(dir, 0)) })
	return nil
}

// A workspace that fills the disk ends its own attempt with that reason, and no
// other begins there. What is in it stays until there is room to store it.
func TestAFullWorkspace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	work := filepath.Join(f.data, "work")
	f.small(work, 48)
	f.serve("--slots", "1")
	// The agent leaves less room than its result needs to be collected.
	id := f.submit("head -c 40000000 /dev/urandom >big.bin", "--max-attempts", "1")
	f.eventually(60*time.Second, "the attempt ends", func() bool { return f.record(id).Reason != "" })
	if rec := f.record(id); rec.State != jobs.Delayed && rec.State != jobs.Pending || rec.Reason != jobs.DiskFull || rec.Attempt != 1 {
		t.Errorf("attempt %d, %s, reason %s: %s", rec.Attempt, rec.State, rec.Reason, rec.Message)
	}
	f.run("job", "cancel", id)
	f.gapless(f.events(id))
	if left := f.workspaces(); len(left) != 1 {
		t.Errorf("workspaces are %q, want the one whose work is not stored", left)
	}
	f.must(syscall.Mount(smallDisk, work, "tmpfs", syscall.MS_REMOUNT, "size=256m"))
	f.eventually(60*time.Second, "the workspace is salvaged", func() bool {
		f.run("clean") // which leaves it to the worker, if that is at it
		return len(f.workspaces()) == 0
	})
	if told := f.run("job", "salvage", id); !strings.Contains(told, id) {
		t.Errorf("what was salvaged is\n%s", told)
	}
	f.run("wait", "--timeout", patience(30), f.submit("echo fits >new.txt"))
}

// The workspace of a killed worker on a full disk stays, and the next worker says why;
// when there is room it is salvaged automatically.
func TestSalvageOnAFullDisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	work := filepath.Join(f.data, "work")
	f.small(work, 48)
	f.serve()
	w := f.worker("--slots", "1")
	id := f.submit("head -c 3000000 /dev/urandom >big.bin; echo begun; sleep 60", "--max-attempts", "1")
	f.runs(id)
	w.kill()
	f.run("job", "cancel", id)
	ballast := filepath.Join(work, "ballast")
	out, err := os.Create(ballast)
	f.must(err)
	if _, err := io.Copy(out, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	f.must(out.Close())
	next := f.worker("--slots", "1")
	f.eventually(20*time.Second, "the worker says that the workspace stays, and why", func() bool {
		told := next.log.String()
		return strings.Contains(told, "workspace stays") && strings.Contains(told, "no space left on device")
	})
	if told, code, _ := f.try("clean"); code != 0 || !strings.Contains(told, "kept") || !strings.Contains(told, "no space left") {
		t.Errorf("clean ends with %d and says\n%s", code, told)
	}
	if left := f.workspaces(); len(left) != 1 {
		t.Fatalf("workspaces are %q, want the one that cannot be stored", left)
	}
	f.must(os.Remove(ballast))
	f.eventually(30*time.Second, "the worker salvages it", func() bool { return len(f.workspaces()) == 0 })
	if patch := f.run("job", "salvage", id, "--show"); !strings.Contains(patch, "GIT binary patch") {
		t.Errorf("the salvage is\n%.300s", patch)
	}
	f.unharmed()
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A broker without room refuses what is new, and says so; what is accepted
// already ends once there is room again.
func TestAFullBroker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := filepath.Join(f.data, "nats")
	f.small(store, 64)
	f.serve("--slots", "1")
	running := f.submit("echo begun; " + stays(5) + "; echo done >new.txt")
	waiting := f.submit("true")
	f.runs(running)
	ballast := filepath.Join(store, "ballast")
	var disk syscall.Statfs_t
	f.must(syscall.Statfs(store, &disk))
	f.must(os.WriteFile(ballast, make([]byte, int64(disk.Bavail)*disk.Bsize-1<<20), 0o600))
	submit := []string{"submit", "-o", "id", "--repo", f.repo, "--", "true"}
	f.eventually(20*time.Second, "a submission is refused", func() bool {
		_, code, told := f.try(submit...)
		if code != 0 && !strings.Contains(told, "storage") && !strings.Contains(told, "disk") && !strings.Contains(told, "space") {
			t.Errorf("it is refused with %d and no reason: %s", code, told)
		}
		return code != 0
	})
	time.Sleep(3 * time.Second) // the running job meets the full disk as well
	f.must(os.Remove(ballast))
	f.goesOn(submit, running, waiting)
}

// goesOn waits until a broker that has room again takes what submit submits, and
// the jobs that it had accepted have ended, once each; the first of them, which
// ran all the time, with its work.
func (f *fixture) goesOn(submit []string, accepted ...string) {
	f.Helper()
	f.eventually(30*time.Second, "submissions are taken again", func() bool { _, code, _ := f.try(submit...); return code == 0 })
	f.run(append([]string{"wait", "--timeout", patience(90)}, accepted...)...)
	for _, id := range accepted {
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			f.Errorf("job %s finished %d times", id, got)
		}
	}
	if patch := f.run("job", "diff", accepted[0]); !strings.Contains(patch, "+done") {
		f.Errorf("the patch of the running job is\n%s", patch)
	}
}

// The broker's disk is full to the last byte while a job runs: the broker refuses jobs
// with an explanation and an exit code, and when there is room again everything
// continues without a restart.
func TestABrokerWithoutAByte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := filepath.Join(f.data, "nats")
	f.small(store, 64)
	f.serve("--slots", "1")
	running := f.submit("echo begun; " + stays(6) + "; echo done >new.txt")
	waiting := f.submit("true")
	f.runs(running)
	free := f.fill(store)
	submit := []string{"submit", "-o", "id", "--repo", f.repo, "--", "true"}
	accepted := []string{running, waiting}
	f.eventually(60*time.Second, "a submission is refused", func() bool {
		out, code, told := f.try(submit...)
		if code == 0 { // the server that was started anew has freed some bytes of its own
			accepted = append(accepted, strings.TrimSpace(out))
			return false
		}
		if code != 1 || out != "" || !strings.Contains(told, "store is full: free or add disk space") {
			t.Errorf("a submission ends with %d, %q and says %q", code, out, told)
		}
		return true
	})
	time.Sleep(5 * time.Second) // longer than the lease
	free()
	f.goesOn(submit, accepted...)
}

// fill writes to a disk until not a byte more goes in, and returns what frees it.
func (f *fixture) fill(dir string) (free func()) {
	f.Helper()
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	f.must(err)
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = ballast.Write(make([]byte, size))
		}
	}
	f.must(ballast.Close())
	return func() { f.Helper(); f.must(os.Remove(ballast.Name())) }
}

// A broker that waits for itself ends its process, which says so, and the next one has
// all that was accepted. A purge that meets the end of the disk does that to it.
func TestAStuckBroker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := filepath.Join(f.data, "nats")
	f.small(store, 64)
	serving, again := f.serve("--slots", "0")
	id := f.submit("true")
	f.stuck(f.bus(), store)
	f.ends(serving, 2*time.Minute)
	if code := serving.ProcessState.ExitCode(); code != cli.ExitUnreachable || !strings.Contains(serving.log.String(), "stuck") {
		t.Errorf("it ends with %d", code)
	}
	f.start("serving", again...)
	if rec := f.record(id); rec.State != jobs.Pending {
		t.Errorf("the job is %s", rec.State)
	}
}

// A worker whose disk gets low claims no more jobs, reports that once in its log and
// its metrics, lets its jobs end, and continues when there is room again. It first
// evicts the parts of its cache that no job needs.
func TestALowDisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	work, signs := filepath.Join(f.data, "work"), t.TempDir()
	f.small(work, 64)
	f.serve()
	f.env = append(f.env, "PENSTOCK_WORKER_RESERVE=24MiB")
	w := f.start("slots on", "worker", "--slots", "2", "--admin", "127.0.0.1:0", "--drain", "1s", "--ro-path", signs)
	admin := regexp.MustCompile(`http://[^/]+/`).FindString(w.log.String())
	// In place: a file that is written anew frees the disk for a moment, which a worker may see.
	ballast := func(mib int64) {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(work, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		f.must(err)
		defer func() { f.must(file.Close()) }()
		has, err := file.Stat()
		f.must(err)
		if more := mib<<20 - has.Size(); more > 0 {
			_, err = file.Write(make([]byte, more))
		} else {
			err = file.Truncate(mib << 20)
		}
		f.must(err)
	}
	health := func() string { return f.page(admin + "readyz?verbose") }
	disk := func(what string, says string) {
		t.Helper()
		f.eventually(20*time.Second, what, func() bool { return strings.Contains(health(), says) })
	}
	f.run("wait", "--timeout", patience(60), f.submit("true")) // which leaves a commit in the cache
	// The next one has nothing in common with it, or would need it.
	f.git("-C", f.repo, "rm", "-rq", ".")
	f.must(os.WriteFile(filepath.Join(f.repo, "other.txt"), []byte("other\n"), 0o600))
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-q", "-m", "next")
	running := f.submit("echo begun; while [ ! -e " + signs + "/go ]; do sleep 0.1; done; echo done >new.txt")
	f.runs(running)
	cached := func() int {
		found, err := filepath.Glob(filepath.Join(work, "mirrors/*/bases/*/git"))
		f.must(err)
		return len(found)
	}
	disk("the worker is ready", "[+] disk")
	f.eventually(30*time.Second, "the metrics know the workspace of the running job", func() bool {
		told := f.page(admin + "metrics")
		return regexp.MustCompile("\npenstock_worker_workspaces_bytes [1-9]").MatchString(told) &&
			regexp.MustCompile("\npenstock_worker_workspaces_inodes [1-9]").MatchString(told)
	})
	if got := cached(); got != 2 {
		t.Errorf("the cache has %d commits, want 2", got)
	}
	if found, _ := f.examined(f.command("doctor", "-o", "json")); found["data"].Status != "ok" {
		t.Errorf("doctor says %+v", found["data"])
	}

	ballast(46)
	disk("the worker is not ready", "[-] disk")
	waiting := f.submit("echo fits >new.txt")
	if got := cached(); got != 1 {
		t.Errorf("on a low disk the cache has %d commits, want the one that a job needs", got)
	}
	if told := f.page(admin + "metrics"); !strings.Contains(told, "\npenstock_worker_disk_low 1\n") {
		t.Error("the metrics do not show that the disk is low")
	}
	if found, code := f.examined(f.command("doctor", "-o", "json")); code != 1 || found["data"].Status != "fail" || !strings.Contains(found["data"].Price, "MiB free") {
		t.Errorf("doctor ends with %d and says %+v", code, found["data"])
	}
	f.must(os.WriteFile(filepath.Join(signs, "go"), nil, 0o600))
	f.run("wait", "--timeout", patience(60), running)
	ballast(36) // more than is reserved, but not enough to begin again
	disk("the worker sees what was freed", "and 30 are needed")
	if rec := f.record(waiting); rec.State != jobs.Pending || rec.Attempt > 0 {
		t.Errorf("on a low disk the job is %s, attempt %d", rec.State, rec.Attempt)
	}
	ballast(1)
	f.run("wait", "--timeout", patience(60), waiting)
	disk("the worker is ready again", "[+] disk")
	f.eventually(30*time.Second, "no job runs any more", func() bool {
		return strings.Contains(f.page(admin+"metrics"), "\npenstock_worker_workspaces_inodes 0\n")
	})
	for _, line := range []string{"no jobs are claimed", "jobs are claimed again"} {
		if got := strings.Count(w.log.String(), line); got != 1 {
			t.Errorf("it says %d times %q", got, line)
		}
	}
}

// A server of a configuration file of its own does so, too.
func TestAStuckServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := filepath.Join(f.data, "store")
	f.small(store, 64)
	address := freeAddress(f)
	file := filepath.Join(f.data, "server.conf")
	f.must(os.WriteFile(file, fmt.Appendf(nil, "listen: %q\njetstream { store_dir: %q, sync_interval: always }\n", address, store), 0o600))
	server := f.start("NATS server at", "nats", "server", file)
	nc, err := nats.Connect("nats://" + address)
	f.must(err)
	defer nc.Close()
	f.stuck(nc, store)
	f.ends(server, 2*time.Minute)
	if code := server.ProcessState.ExitCode(); code != cli.ExitUnexpected || !strings.Contains(server.log.String(), "stuck") {
		t.Errorf("it ends with %d", code)
	}
}

// stuck lets a server, with its store on a small disk, wait for itself. Then the disk has room again.
func (f *fixture) stuck(nc *nats.Conn, store string) {
	f.Helper()
	js, err := jetstream.New(nc)
	f.must(err)
	ctx, cancel := context.WithTimeout(f.Context(), slowtest.Limit(20*time.Second))
	defer cancel()
	str, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "STUCK", Subjects: []string{"stuck.>"}})
	f.must(err)
	for i := range 2000 {
		_, err := js.Publish(ctx, fmt.Sprint("stuck.", i%2), nil)
		f.must(err)
	}
	free := f.fill(store)
	short, cancel := context.WithTimeout(f.Context(), 2*time.Second)
	defer cancel()
	if err := str.Purge(short, jetstream.WithPurgeSubject("stuck.1")); !errors.Is(err, context.DeadlineExceeded) {
		f.Fatalf("this version of the server survives it, and natsd need not: %v", err)
	}
	free()
}

// ends waits until a program has ended by itself.
func (f *fixture) ends(p *program, within time.Duration) {
	f.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Wait() // its exit code says more
	}()
	select {
	case <-ended:
	case <-time.After(slowtest.Limit(within)):
		f.Fatalf("%v goes on", p.Args[1:])
	}
}
