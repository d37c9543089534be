package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// home is the directory below which all groups of jails are.
const home = "penstock"

// parents returns the directories in which groups can be made. The answer
// changes only by Delegate: trying it once is enough.
func parents() []dir { return found.get() }

var found lazyDirs

type lazyDirs struct {
	mu   sync.Mutex
	list func() []dir // guarded by mu; nil until the first get
}

// get looks outside of the lock, once.
func (p *lazyDirs) get() []dir {
	p.mu.Lock()
	if p.list == nil {
		p.list = sync.OnceValue(look)
	}
	list := p.list
	p.mu.Unlock()
	return list()
}

func (p *lazyDirs) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = nil
}

func look() []dir {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil
	}
	var list []dir
	for _, m := range hierarchies(string(mounts)) {
		for _, d := range m.candidates(string(own)) {
			if d.usable() {
				list = append(list, d)
				break
			}
		}
	}
	return list
}

// A hierarchy is a mounted tree of control groups.
type hierarchy struct {
	root        string // where it is mounted
	controllers []string
	v2          bool
}

func hierarchies(mountinfo string) []hierarchy {
	var list []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup2":
			list = append(list, hierarchy{root: f[4], v2: true})
		case "cgroup":
			h := hierarchy{root: f[4]}
			for option := range strings.SplitSeq(g[2], ",") {
				if slices.Contains([]string{Memory, CPU, PIDs}, option) && !seen[option] {
					h.controllers, seen[option] = append(h.controllers, option), true
				}
			}
			if h.controllers != nil {
				list = append(list, h)
			}
		}
	}
	return list
}

// candidates lists where groups could be made, the best place first.
func (h hierarchy) candidates(own string) []dir {
	if !h.v2 {
		// As a child of our own group, so that a limit around us holds for
		// the jails too.
		path := ownPath(own, h.controllers[0])
		tasks := filepath.Join(h.root, path, "tasks")
		return []dir{
			{path: filepath.Join(h.root, path, home), controllers: h.controllers, tasks: tasks},
			{path: filepath.Join(h.root, home), controllers: h.controllers, tasks: tasks},
		}
	}
	// A group with processes cannot give controllers to its children. So it
	// is the parent of our own: where a service manager delegated a subtree
	// and put us into a leaf of it; or the root, which is exempt.
	var list []dir
	path := ownPath(own, "")
	if path != "/" {
		list = append(list, dir{path: filepath.Join(h.root, filepath.Dir(path), home), v2: true})
	}
	return append(list, dir{path: filepath.Join(h.root, home), v2: true})
}

// usable makes the directory and tries whether groups in it work. It fills
// in the controllers of version 2.
func (d *dir) usable() bool {
	if d.v2 && !d.enable() {
		return false
	}
	if !d.make() {
		return false
	}
	probe := filepath.Join(d.path, fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return false
	}
	defer os.Remove(probe)
	if !d.v2 && unix.Access(d.tasks, unix.W_OK) != nil {
		return false
	}
	for _, name := range slices.Sorted(keys(d.files(Limits{Memory: 1, CPUs: 1, CPUWeight: 1, PIDs: 1}))) {
		if name == swapV1 || name == swapV2 {
			continue
		}
		f, err := os.OpenFile(filepath.Join(probe, name), os.O_WRONLY, 0)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}

// enable finds the controllers that the parent has and lets its children,
// the directory d among them, use them.
func (d *dir) enable() bool {
	parent := filepath.Dir(d.path)
	b, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return false
	}
	d.controllers = nil
	for c := range strings.FieldsSeq(string(b)) {
		if slices.Contains([]string{Memory, CPU, PIDs}, c) {
			d.controllers = append(d.controllers, c)
		}
	}
	return len(d.controllers) > 0 && d.delegate(parent)
}

// make makes the directory, unless it is there, and lets the groups inside use
// its controllers.
func (d dir) make() bool {
	if err := os.Mkdir(d.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	return !d.v2 || d.delegate(d.path)
}

func (d dir) delegate(path string) bool {
	control := filepath.Join(path, "cgroup.subtree_control")
	on, err := os.ReadFile(control)
	if err != nil {
		return false
	}
	for _, c := range d.controllers {
		if slices.Contains(strings.Fields(string(on)), c) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+c), 0); err != nil {
			return false
		}
	}
	return true
}

// ownPath finds our own group in the text of /proc/self/cgroup; "" is the
// controller of version 2.
func ownPath(own, controller string) string {
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2]
		}
	}
	return "/"
}
