package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	delegateFirst()
	goleak.VerifyTestMain(m)
}

func TestHierarchiesOfBothVersions(t *testing.T) {
	for name, c := range map[string]struct {
		mounts string
		own    string
		want   []string
	}{
		"version 1": {
			"30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
				"31 25 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n" +
				"32 25 0:28 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n",
			"8:memory:/user.slice\n1:cpu,cpuacct:/\n",
			[]string{
				"/sys/fs/cgroup/memory/user.slice/penstock", "/sys/fs/cgroup/memory/penstock",
				"/sys/fs/cgroup/cpu/penstock", "/sys/fs/cgroup/cpu/penstock",
			},
		},
		"version 2 in a leaf of a delegated group": {
			"30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/system.slice/penstock.service/worker\n",
			[]string{"/sys/fs/cgroup/system.slice/penstock.service/penstock", "/sys/fs/cgroup/penstock"},
		},
		"version 2 in the root": {
			"30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n", "0::/\n",
			[]string{"/sys/fs/cgroup/penstock"},
		},
	} {
		var got []string
		for _, h := range hierarchies(c.mounts) {
			for _, d := range h.candidates(c.own) {
				got = append(got, d.path)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The directory of all groups is made again after it was removed.
func TestAVanishedHomeIsMadeAgain(t *testing.T) {
	var own []dir // not those in which other jails of this host live
	for _, p := range parents() {
		p.path += fmt.Sprintf("-test-%d", os.Getpid())
		if !p.make() {
			t.Fatalf("%s cannot be made", p.path)
		}
		t.Cleanup(func() { os.Remove(p.path) })
		own = append(own, p)
	}
	if len(own) == 0 {
		t.Skip("no control groups can be made here")
	}
	found.mu.Lock()
	found.list = func() []dir { return own }
	found.mu.Unlock()
	defer found.forget()
	for _, p := range own {
		if err := os.Remove(p.path); err != nil {
			t.Fatal(err)
		}
	}
	limits := Limits{Memory: 64 << 20, PIDs: 100, CPUs: 1}
	for range 2 { // without the home, and with it
		g, err := New("_vanished", limits)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.dirs) != len(own) {
			t.Errorf("made %d of %d groups", len(g.dirs), len(own))
		}
		for _, d := range g.dirs {
			for name, want := range d.files(limits) {
				if got, err := os.ReadFile(filepath.Join(d.path, name)); name != swapV1 && name != swapV2 && (err != nil || string(got) != want+"\n") {
					t.Errorf("%s: got %q, err %v, want %q", name, got, err, want)
				}
			}
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// A group of version 2 gets its limits in the files that the kernel reads.
func TestLimitsOfVersion2(t *testing.T) {
	d := dir{path: t.TempDir(), controllers: []string{Memory, CPU, PIDs}, v2: true}
	for _, f := range []string{"memory.max", "memory.swap.max", "cpu.max", "cpu.weight", "pids.max"} {
		if err := os.WriteFile(filepath.Join(d.path, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.limit(Limits{Memory: 1 << 30, CPUs: 1.5, CPUWeight: 50, PIDs: 100}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "cpu.weight": "50", "pids.max": "100"} {
		if b, err := os.ReadFile(filepath.Join(d.path, file)); err != nil || string(b) != want {
			t.Errorf("%s: got %q, err %v, want %q", file, b, err, want)
		}
	}
}

func TestAGroupHoldsAndEndsItsProcesses(t *testing.T) {
	if len(Supported()) == 0 {
		t.Skip("no control group can be made here")
	}
	name := fmt.Sprintf("test_%d", os.Getpid())
	g, err := New(name, Limits{PIDs: 20, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(Names(), name) {
		t.Errorf("%s is not among %v", name, Names())
	}
	cmd := exec.Command("sh", "-c", "sleep 1000 & setsid sleep 1000 & wait")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	runtime.LockOSThread()
	clean, err := g.Start(cmd)
	runtime.UnlockOSThread()
	if err != nil || !clean {
		t.Fatal(clean, err)
	}
	for deadline := time.Now().Add(time.Minute); len(g.dirs[0].processes()) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the group holds %v", g.dirs[0].processes())
		}
	}
	if slices.Contains(g.dirs[0].processes(), os.Getpid()) {
		t.Error("the starter is in the group")
	}
	reaped := make(chan error)
	go func() { reaped <- cmd.Wait() }()
	g.Kill()
	if err := <-reaped; err == nil {
		t.Error("the process ended by itself")
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if slices.Contains(Names(), name) {
		t.Errorf("%s still exists", name)
	}
	if err := Sweep(name); err != nil {
		t.Errorf("sweep of what is gone: %v", err)
	}
}

func TestAThreadThatStaysIsNotKilled(t *testing.T) {
	if !slices.ContainsFunc(parents(), func(d dir) bool { return !d.v2 }) {
		t.Skip("there are no control groups of version 1 here")
	}
	g, err := New(fmt.Sprintf("test_%d-self", os.Getpid()), Limits{PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := []byte(strconv.Itoa(unix.Gettid()))
	if err := os.WriteFile(filepath.Join(g.dirs[0].path, "tasks"), tid, 0); err != nil {
		t.Fatal(err)
	}
	g.Kill() // ends this test if it ends this thread
	if err := os.WriteFile(g.dirs[0].tasks, tid, 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}
