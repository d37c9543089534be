package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Group is the control group of one jail: one directory in version 2, one
// for each controller in version 1.
type Group struct {
	dirs    []dir
	reached []string
}

type dir struct {
	path        string
	controllers []string
	v2          bool
	tasks       string // version 1: the file that a thread of ours writes itself into to return
}

func (d dir) child(name string) dir {
	d.path = filepath.Join(d.path, name)
	return d
}

// New makes the group called name, with limits. Where the host lets us make
// none, the Group is empty.
func New(name string, l Limits) (*Group, error) {
	g := &Group{}
	for _, parent := range parents() {
		if !parent.wanted(l) {
			continue
		}
		d := parent.child(name)
		if err := os.Mkdir(d.path, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("control group: %w", err), g.Remove())
		}
		g.dirs = append(g.dirs, d)
		if err := d.limit(l); err != nil {
			return nil, errors.Join(fmt.Errorf("control group: %w", err), g.Remove())
		}
	}
	return g, nil
}

// wanted reports whether the directory limits anything: in version 1 each
// controller costs a system-wide lock on the way in.
func (d dir) wanted(l Limits) bool {
	return d.v2 || (l.Memory > 0 && slices.Contains(d.controllers, Memory)) ||
		(l.PIDs > 0 && slices.Contains(d.controllers, PIDs)) || (l.CPUs > 0 && slices.Contains(d.controllers, CPU))
}

// Supported lists what groups on this host can limit.
func Supported() []string {
	var s []string
	for _, p := range parents() {
		s = append(s, p.controllers...)
	}
	return s
}

func (d dir) limit(l Limits) error {
	files := map[string]string{}
	has := func(c string) bool { return slices.Contains(d.controllers, c) }
	if has(Memory) && l.Memory > 0 {
		n := strconv.FormatInt(l.Memory, 10)
		if d.v2 {
			files["memory.max"], files["memory.swap.max"], files["memory.oom.group"] = n, "0", "0"
		} else {
			files["memory.limit_in_bytes"] = n
		}
	}
	if has(PIDs) && l.PIDs > 0 {
		files["pids.max"] = strconv.Itoa(l.PIDs)
	}
	if has(CPU) && l.CPUs > 0 {
		const period = 100_000
		quota := strconv.Itoa(max(1000, int(l.CPUs*period)))
		if d.v2 {
			files["cpu.max"] = quota + " " + strconv.Itoa(period)
		} else {
			files["cpu.cfs_quota_us"] = quota
		}
	}
	for _, name := range slices.Sorted(keys(files)) {
		err := os.WriteFile(filepath.Join(d.path, name), []byte(files[name]), 0)
		if errors.Is(err, fs.ErrNotExist) && (name == "memory.swap.max" || name == "memory.oom.group") {
			continue // a kernel without swap accounting
		}
		if err != nil {
			return err
		}
	}
	if has(Memory) && l.Memory > 0 && !d.v2 {
		// Memory and swap together; absent without swap accounting.
		_ = os.WriteFile(filepath.Join(d.path, "memory.memsw.limit_in_bytes"), []byte(strconv.FormatInt(l.Memory, 10)), 0)
	}
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Start starts cmd inside the group. The caller has locked its thread: in
// version 1 a process is born where the thread that makes it is. Returned
// clean says that the thread is back where it was.
func (g *Group) Start(cmd *exec.Cmd) (clean bool, err error) {
	var back []func() error
	clean = true
	defer func() {
		for _, b := range back {
			clean = b() == nil && clean
		}
	}()
	for _, d := range g.dirs {
		if d.v2 {
			f, err := os.Open(d.path)
			if err != nil {
				return clean, err
			}
			defer f.Close()
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
			continue
		}
		tid := []byte(strconv.Itoa(unix.Gettid()))
		if err := os.WriteFile(filepath.Join(d.path, "tasks"), tid, 0); err != nil {
			return clean, err
		}
		back = append(back, func() error { return os.WriteFile(d.tasks, tid, 0) })
	}
	return clean, cmd.Start()
}

// Kill ends every process of the group and returns when they are gone. The
// kernel can refuse to end one only while it is in the middle of a call.
func (g *Group) Kill() {
	for _, d := range g.dirs {
		_ = os.WriteFile(filepath.Join(d.path, "cgroup.kill"), []byte("1"), 0)
		for range 2000 {
			pids := d.processes()
			if len(pids) == 0 {
				break
			}
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			time.Sleep(time.Millisecond) // version 1 has no event for an empty group
		}
	}
	g.reached = g.readReached()
}

func (d dir) processes() []int {
	b, err := os.ReadFile(filepath.Join(d.path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(b)) {
		// A thread of ours that could not leave again is no process of the
		// jail, and killing it would be killing ourselves.
		if n, err := strconv.Atoi(field); err == nil && n > 0 && n != os.Getpid() {
			pids = append(pids, n)
		}
	}
	return pids
}

// Reached lists the limits that processes of the group ran into, as of Kill.
func (g *Group) Reached() []string { return g.reached }

func (g *Group) readReached() []string {
	var r []string
	for _, d := range g.dirs {
		for _, c := range d.controllers {
			file, key := "memory.oom_control", "oom_kill"
			switch {
			case c == PIDs:
				file, key = "pids.events", "max"
			case c == Memory && d.v2:
				file = "memory.events"
			case c != Memory:
				continue
			}
			b, err := os.ReadFile(filepath.Join(d.path, file))
			if err == nil && counter(string(b), key) > 0 {
				r = append(r, c)
			}
		}
	}
	return r
}

func counter(s, key string) int {
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// Remove removes the group. It is not an error if it is gone.
func (g *Group) Remove() error {
	var errs []error
	for _, d := range g.dirs {
		errs = append(errs, removeDir(d.path))
	}
	g.dirs = nil
	return errors.Join(errs...)
}

func removeDir(path string) (err error) {
	for range 100 {
		err = unix.Rmdir(path)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY {
			break
		}
		time.Sleep(time.Millisecond) // dead processes leave the group a moment later
	}
	return fmt.Errorf("remove control group %s: %w", path, err)
}

// Names lists the groups that exist, of whomever.
func Names() []string {
	var names []string
	for _, p := range parents() {
		entries, err := os.ReadDir(p.path)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && strings.Contains(e.Name(), "~") && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// Sweep kills what is in the group called name and removes it.
func Sweep(name string) error {
	g := &Group{}
	for _, p := range parents() {
		g.dirs = append(g.dirs, p.child(name))
	}
	g.Kill()
	return g.Remove()
}
