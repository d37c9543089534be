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
		d, err := parent.group(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("control group: %w", err), g.Remove())
		}
		g.dirs = append(g.dirs, d)
		if err := d.limit(l); err != nil {
			return nil, errors.Join(fmt.Errorf("control group: %w", err), g.Remove())
		}
	}
	return g, nil
}

// group makes a directory in d. A clean-up may have removed d itself, which is
// empty while no jail runs.
func (d dir) group(name string) (dir, error) {
	child := d.child(name)
	err := os.Mkdir(child.path, 0o755)
	if errors.Is(err, fs.ErrNotExist) && d.make() {
		err = os.Mkdir(child.path, 0o755)
	}
	return child, err
}

// wanted reports whether the directory limits anything: in version 1 each
// controller costs a system-wide lock on the way in.
func (d dir) wanted(l Limits) bool {
	return d.v2 || (l.Memory > 0 && slices.Contains(d.controllers, Memory)) ||
		(l.PIDs > 0 && slices.Contains(d.controllers, PIDs)) || ((l.CPUs > 0 || l.CPUWeight > 0) && slices.Contains(d.controllers, CPU))
}

// Supported lists what groups on this host can limit.
func Supported() []string {
	var s []string
	for _, p := range parents() {
		s = append(s, p.controllers...)
	}
	if slices.Contains(s, CPU) {
		s = append(s, Weight)
	}
	return s
}

// Can reports whether groups on this host can limit what word says.
func Can(word string) bool { return slices.Contains(Supported(), word) }

// EachProcess returns what one process may ask for on a host whose groups
// cannot limit memory; 0 is no limit. It bounds how far a process gets before
// the runner looks. It is twice the jail's limit, so that a process that exceeds
// that limit is seen and killed for it, instead of failing in a way of its own.
// It is none where the limit is large, because some programs ask for much that
// they never use.
func EachProcess(memory int64) uint64 {
	if memory <= 0 || memory >= 4<<30 || Can(Memory) {
		return 0
	}
	return 2 * uint64(memory)
}

// limit writes the limits into the group's files. A process that is killed
// for want of memory dies alone, in both versions: an agent may go on without
// the compiler that it started.
func (d dir) limit(l Limits) error {
	files := d.files(l)
	for _, name := range slices.Sorted(keys(files)) {
		err := put(filepath.Join(d.path, name), files[name])
		if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP)) && (name == swapV1 || name == swapV2) {
			continue // a kernel without swap accounting
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put writes to a file that has to exist.
func put(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Swap: of version 1 memory and swap together, so it is written after memory,
// and is not the less.
const (
	swapV1 = "memory.memsw.limit_in_bytes"
	swapV2 = "memory.swap.max"
)

// files returns what has to be written where. Their names happen to be in the
// order in which the kernel takes them.
func (d dir) files(l Limits) map[string]string {
	files := map[string]string{}
	has := func(c string) bool { return slices.Contains(d.controllers, c) }
	if has(Memory) && l.Memory > 0 {
		n := strconv.FormatInt(l.Memory, 10)
		if d.v2 {
			files["memory.max"], files[swapV2] = n, "0"
		} else {
			files["memory.limit_in_bytes"], files[swapV1] = n, n
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
	if has(CPU) && l.CPUWeight > 0 {
		if d.v2 {
			files["cpu.weight"] = strconv.Itoa(l.CPUWeight)
		} else {
			files["cpu.shares"] = strconv.Itoa(max(2, l.CPUWeight*1024/100)) // 2 is the least that the kernel has
		}
	}
	return files
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
		// Zero is the calling thread. For a thread that is named by its number
		// the kernel takes a lock of the whole system, and waits for every
		// processor before.
		if err := put(filepath.Join(d.path, "tasks"), "0"); err != nil {
			return clean, err
		}
		back = append(back, func() error { return put(d.tasks, "0") })
	}
	return clean, cmd.Start()
}

// Kill ends every process of the group and returns when they are gone. The
// kernel can refuse to end one only while it is in the middle of a call. Empty
// reports that there is a group, and that no process was in it.
func (g *Group) Kill() (empty bool) {
	empty = len(g.dirs) > 0
	for _, d := range g.dirs {
		if len(d.processes()) > 0 {
			empty = false
		}
		_ = os.WriteFile(filepath.Join(d.path, "cgroup.kill"), []byte("1"), 0)
		for try := range 2000 {
			pids := d.processes()
			if len(pids) == 0 {
				break
			}
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			pause(try) // version 1 has no event for an empty group
		}
	}
	g.reached = g.readReached()
	return empty
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
	for try := range 100 {
		err = unix.Rmdir(path)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY {
			break
		}
		pause(try) // dead processes leave the group a moment later
	}
	return fmt.Errorf("remove control group %s: %w", path, err)
}

// pause waits before another try: mostly a few microseconds are enough, and
// the end of every jail waits for it.
func pause(try int) {
	time.Sleep(min(time.Millisecond, 20*time.Microsecond<<min(try, 6)))
}

// Names lists the groups that exist, whichever process made them.
func Names() []string {
	var names []string
	for _, p := range parents() {
		entries, err := os.ReadDir(p.path)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && strings.Contains(e.Name(), "_") && !slices.Contains(names, e.Name()) {
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
