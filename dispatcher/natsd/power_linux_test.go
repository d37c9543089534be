package natsd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// Environment of a machine whose power can be cut: a child that serves from a
// disk that no other process sees, until it is killed or its input ends.
const (
	machineDisk  = "NATSD_MACHINE_DISK"  // an image of it
	machineDir   = "NATSD_MACHINE_DIR"   // where it is mounted
	machineFast  = "NATSD_MACHINE_FAST"  // the broker inside does not sync every write
	machineFiles = "NATSD_MACHINE_FILES" // of servers, between colons, instead of the broker inside
)

// machineMain is the main of such a child, and nothing in any other process. It
// says where it can be reached, and obeys commands, one a line.
func machineMain() {
	dir := os.Getenv(machineDir)
	if dir == "" {
		return
	}
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if out, err := exec.Command("mount", "-o", "loop", os.Getenv(machineDisk), dir).CombinedOutput(); err != nil {
		must(fmt.Errorf("mount a disk: %w: %s", err, out))
	}
	said := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var inside *natsd.Server
	if files := os.Getenv(machineFiles); files != "" {
		for file := range strings.SplitSeq(files, ":") {
			go func() {
				must(natsd.RunFile(context.Background(), file, said, func(url string) { fmt.Println(url) }))
			}()
		}
	} else {
		var err error
		fast := os.Getenv(machineFast) != ""
		inside, err = natsd.Open(natsd.Config{StoreDir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Owner: "serve", Fast: fast, User: "u", Password: "p", Logger: said})
		must(err)
		fmt.Println(strings.Replace(inside.Endpoint().URL, "//", "//u:p@", 1))
	}
	for told := bufio.NewScanner(os.Stdin); told.Scan(); {
		switch told.Text() {
		case "cut":
			must(cutPower(dir))
			must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		case "adopt":
			must(inside.Close())
			must(os.Rename(filepath.Join(dir, "nats"), filepath.Join(dir, "fresh")))
			must(natsd.Adopt(filepath.Join(dir, "nats"), filepath.Join(dir, "fresh")))
			fmt.Println("adopted")
		}
	}
	os.Exit(0)
}

// cutPower stops a file system as it is: what is in memory alone, of its journal
// too, is never written.
func cutPower(dir string) error {
	const shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush), f.Close())
}

// A machine is one whose power can be cut.
type machine struct {
	*testing.T
	fast    bool   // the broker inside does not sync every write
	servers int    // of their own; none is the broker inside
	sync    string // what their files say of it
	image   string
	dir     string
	files   []string
	cmd     *exec.Cmd
	in      io.Writer
	out     *bufio.Reader
	said    bytes.Buffer // by what runs
}

// build makes the machine's disk, and the files of the servers.
func (m *machine) build(t *testing.T) error {
	t.Helper()
	m.T, m.image, m.dir = t, filepath.Join(t.TempDir(), "disk"), t.TempDir()
	f, err := os.Create(m.image)
	if err == nil {
		err = errors.Join(f.Truncate(512<<20), f.Close())
	}
	if err != nil {
		return err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", m.image).CombinedOutput(); err != nil {
		return fmt.Errorf("make a disk: %w: %s", err, out)
	}
	routes := make([]string, m.servers)
	for i := range routes {
		routes[i] = fmt.Sprint("127.0.0.1:", jobstest.FreePort(t))
	}
	for i, route := range routes {
		text := fmt.Sprintf("server_name: n%d\nlisten: 127.0.0.1:%d\njetstream { store_dir: %q, %s }\n", i, jobstest.FreePort(t), filepath.Join(m.dir, fmt.Sprint("n", i)), m.sync)
		if m.servers > 1 {
			text += fmt.Sprintf("cluster { name: c, listen: %q, routes: [\"nats://%s\"] }\n", route, strings.Join(routes, `", "nats://`))
		}
		file := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		m.files = append(m.files, file)
	}
	return nil
}

// on starts the machine, and returns where its servers are.
func (m *machine) on() (urls string, err error) {
	m.said.Reset()
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), machineDisk+"="+m.image, machineDir+"="+m.dir, machineFiles+"="+strings.Join(m.files, ":"))
	if m.fast {
		m.cmd.Env = append(m.cmd.Env, machineFast+"=1")
	}
	// A jail that another test starts meanwhile would keep a mount that it sees.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	m.cmd.Stderr = &m.said
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		m.in, err = m.cmd.StdinPipe()
	}
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		return "", err
	}
	m.Cleanup(m.kill)
	m.out = bufio.NewReader(out)
	all := make([]string, max(1, m.servers))
	for i := range all {
		if all[i], err = m.out.ReadString('\n'); err != nil {
			m.kill()
			return "", fmt.Errorf("the machine does not start: %w: %s", err, m.said.String())
		}
		all[i] = strings.TrimSpace(all[i])
	}
	return strings.Join(all, ","), nil
}

// cut cuts the power.
func (m *machine) cut() {
	m.Helper()
	_, err := m.in.Write([]byte("cut\n"))
	ended := m.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](ended); err != nil || !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		m.Fatalf("cut the power: %v, %v\n%s", err, ended, m.said.String())
	}
}

// kill ends what runs, if anything does.
func (m *machine) kill() { _, _ = m.cmd.Process.Kill(), m.cmd.Wait() }

// open starts the machine and opens a pool on it, which takes a cluster a while.
func (m *machine) open() (nc *nats.Conn, made parts) {
	m.Helper()
	urls, err := m.on()
	if err != nil {
		m.Fatal(err)
	}
	nc = jobstest.Connect(m.T, urls)
	replicas := max(1, m.servers)
	for begun := time.Now(); ; {
		ctx, cancel := context.WithTimeout(m.Context(), 10*time.Second)
		made.queue, err = queue.Open(ctx, nc, queue.Config{Replicas: replicas})
		if err == nil {
			made.log, err = session.Open(ctx, nc, session.Config{Replicas: replicas})
		}
		if err == nil {
			made.store, err = artifact.Open(ctx, nc, artifact.Config{Replicas: replicas})
		}
		cancel()
		if err == nil {
			return nc, made
		}
		if time.Since(begun) > 2*jobstest.Patience {
			m.kill() // so that all that it said is there
			m.Fatalf("open the pool: %v\n%s", err, m.said.String())
		}
	}
}

// acked is what the server acknowledged to clients, until the power was cut.
type acked struct {
	off      atomic.Bool
	mu       sync.Mutex
	accepted []string
	finished []jobs.Record
	refused  error // the last
}

// load submits jobs and does them, and notes what was acknowledged. What comes
// while the power is being cut counts for nothing.
func (l *acked) load(ctx context.Context, made parts) (wait func()) {
	var clients sync.WaitGroup
	d := dispatcher.New(dispatcher.Config{Queue: made.queue, Log: made.log, Store: made.store})
	loop := func(do func() (note func(), err error)) {
		clients.Go(func() {
			for ctx.Err() == nil && !l.off.Load() {
				note, err := do()
				l.mu.Lock()
				switch {
				case l.off.Load():
				case err != nil:
					l.refused = err
				default:
					note()
				}
				l.mu.Unlock()
			}
		})
	}
	for range 3 {
		loop(func() (func(), error) {
			answer, err := d.Submit(ctx, small(), "test")
			return func() { l.accepted = append(l.accepted, answer.ID) }, err
		})
	}
	loop(func() (func(), error) {
		rec, err := finish(ctx, made)
		return func() { l.finished = append(l.finished, rec) }, err
	})
	return clients.Wait
}

// some reports whether there is something to lose.
func (l *acked) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted) > 0 && len(l.finished) > 0
}

func small() jobs.Job {
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	return job
}

// finish does a job as a worker does.
func finish(ctx context.Context, made parts) (jobs.Record, error) {
	claim, err := made.queue.Claim(ctx, "w", []string{"default"})
	if err != nil {
		return jobs.Record{}, err
	}
	rec := claim.Record()
	if _, err := made.store.Put(ctx, rec.ID, claim.Epoch(), "patch", strings.NewReader("of "+rec.ID)); err != nil {
		return rec, err
	}
	result := jobs.Result{Job: rec.ID, Outcome: jobs.Success}
	if err := made.store.PutResult(ctx, claim.Epoch(), result); err != nil {
		return rec, err
	}
	return claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, func(ctx context.Context, rec jobs.Record) error {
		return made.log.Finish(ctx, rec, result)
	})
}

// lost returns what the server acknowledged to clients and no longer has.
func (l *acked) lost(ctx context.Context, made parts) (lost []string) {
	for _, id := range l.accepted {
		_, err := made.queue.Job(ctx, id)
		if err == nil {
			_, err = made.queue.Get(ctx, id)
		}
		if err == nil {
			err = kinds(ctx, made.log, id, jobs.JobSubmitted)
		}
		if err != nil {
			lost = append(lost, fmt.Sprintf("accepted %s: %v", id, err))
		}
	}
	for _, was := range l.finished {
		rec, err := made.queue.Get(ctx, was.ID)
		if err == nil && rec.Outcome != jobs.Success {
			err = fmt.Errorf("it is %s", rec.State)
		}
		if err == nil {
			_, err = made.store.Result(ctx, was)
		}
		if err == nil {
			_, err = made.store.Check(ctx, was.ID, was.Epoch, "patch")
		}
		if err == nil {
			err = kinds(ctx, made.log, was.ID, jobs.JobSubmitted, jobs.JobFinished)
		}
		if err != nil {
			lost = append(lost, fmt.Sprintf("finished %s: %v", was.ID, err))
		}
	}
	return lost
}

// kinds says whether a session has events of these kinds, in this order.
func kinds(ctx context.Context, log *session.Log, id string, want ...jobs.Kind) error {
	var got []jobs.Kind
	for event, err := range log.Read(ctx, id, 1) {
		if err != nil {
			return err
		}
		got = append(got, event.Kind)
	}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		return fmt.Errorf("its events are %v", got)
	}
	return nil
}

// lose lets clients work for a while, cuts the power, and returns what is gone
// of what was acknowledged.
func (m *machine) lose() (acknowledged int, lost []string) {
	m.Helper()
	nc, made := m.open()
	ctx, cancel := context.WithCancel(m.Context())
	defer cancel()
	l := &acked{}
	wait := l.load(ctx, made)
	for begun := time.Now(); !l.some(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 2*jobstest.Patience {
			m.kill() // likewise
			m.Fatalf("%d accepted, %d finished, %v\n%s", len(l.accepted), len(l.finished), l.refused, m.said.String())
		}
	}
	time.Sleep(rand.N(time.Second)) // waits for nothing: any moment will do
	l.off.Store(true)
	m.cut()
	cancel()
	wait()
	nc.Close()
	if l.refused != nil {
		m.Error(l.refused)
	}

	nc, made = m.open()
	lost = l.lost(m.Context(), made)
	nc.Close()
	m.kill()
	return len(l.accepted) + len(l.finished), lost
}

// What was acknowledged survives a power cut where every write is synced. Where
// it is not, something is lost: the cut is one.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	requireDisk(t)
	const always = "sync_interval: always"
	for name, test := range map[string]struct {
		kept bool
		cuts int // at most
		machine
	}{
		"inside":                {true, 3, machine{}},
		"inside, fast":          {false, 5, machine{fast: true}},
		"a server":              {true, 1, machine{servers: 1, sync: always}},
		"a server, as it comes": {false, 5, machine{servers: 1}},
		"a cluster":             {true, 1, machine{servers: 3, sync: always}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &test.machine
			if err := m.build(t); err != nil {
				t.Fatal(err)
			}
			sum, missing := 0, 0
			for cut := 0; cut < test.cuts && (test.kept || missing == 0); cut++ {
				acknowledged, lost := m.lose()
				sum, missing = sum+acknowledged, missing+len(lost)
				if test.kept && len(lost) > 0 {
					t.Errorf("of %d that were acknowledged %d are lost: %s", acknowledged, len(lost), strings.Join(lost[:min(5, len(lost))], "\n"))
				}
			}
			t.Logf("%d of %d lost", missing, sum)
			if !test.kept && missing == 0 {
				t.Errorf("nothing of %d is lost: the power was not cut", sum)
			}
		})
	}
}

// A store that was filled fast, and then adopted, is on the disk.
func TestPowerCutAfterAdopt(t *testing.T) {
	t.Parallel()
	requireDisk(t)
	m := &machine{fast: true}
	if err := m.build(t); err != nil {
		t.Fatal(err)
	}
	nc, made := m.open()
	l := &acked{}
	d := dispatcher.New(dispatcher.Config{Queue: made.queue, Log: made.log, Store: made.store})
	for range 20 {
		answer, err := d.Submit(jobstest.Context(t), small(), "test")
		if err != nil {
			t.Fatal(err)
		}
		l.accepted = append(l.accepted, answer.ID)
	}
	rec, err := finish(jobstest.Context(t), made)
	if err != nil {
		t.Fatal(err)
	}
	l.finished = append(l.finished, rec)
	nc.Close()
	if _, err := m.in.Write([]byte("adopt\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := m.out.ReadString('\n'); err != nil {
		t.Fatalf("adopt: %q, %v\n%s", line, err, m.said.String())
	}
	m.cut()
	nc, made = m.open()
	defer nc.Close()
	if lost := l.lost(t.Context(), made); len(lost) > 0 {
		t.Errorf("%d lost: %s", len(lost), lost[0])
	}
}

// requireDisk skips where no disk can be mounted.
func requireDisk(t *testing.T) {
	t.Helper()
	m := &machine{}
	err := m.build(t)
	if err == nil {
		_, err = m.on()
	}
	if err != nil {
		t.Skip(err)
	}
	m.kill()
}
