package sandbox

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/usage"
)

// kept are the features that Start sees to.
var kept = []Feature{FeatureDisk, FeatureInodes, FeatureOutput}

// A watch keeps the limits of a jail that the kernel does not keep: it looks,
// and kills. A jail can be beyond its limit by what it uses between two looks.
//
// It looks every watchEvery, but so that no processor is busy with it for more
// than one part in watchShare of the time. On a busy host a look waits for its turn,
// which costs nothing and puts off no other look.
type watch struct {
	disk   *diskWatch   // nil: no limit of disk
	memory *memoryWatch // nil: no limit, or the kernel keeps it
	pids   int          // the kernel keeps this limit, but does not tell; 0: it does
	jail   *jail
	kill   func()
	// inherited is the most memory, in KiB, that this process had when the jail
	// was there. A process begins with its starter's peak in its resource usage,
	// since it shares the starter's memory until it executes its program.
	inherited int64

	stop, done chan struct{} // made by start

	mu      sync.Mutex
	reached []Feature // guarded by mu
	err     error     // guarded by mu
}

const (
	watchEvery = 250 * time.Millisecond
	watchShare = 50
	// watchPatience is how long measuring may fail before the jail is ended: a
	// limit that cannot be measured is none.
	watchPatience = 5 * time.Second
)

// newWatch measures what is there before the jail begins. Where no group
// limits what words of package cgroup say, memory and processes are watched.
func newWatch(spec Spec, limited func(word string) bool) (*watch, error) {
	w := &watch{}
	if !limited(cgroup.PIDs) {
		w.pids = spec.Limits.PIDs
	}
	if !limited(cgroup.Memory) {
		w.memory = &memoryWatch{most: spec.Limits.Memory, private: spec.private("/tmp", "/run", "/dev/shm")}
	}
	if spec.Limits.Disk == 0 && spec.Limits.Inodes == 0 {
		return w, nil
	}
	var err error
	w.disk, err = newDiskWatch(spec)
	return w, err
}

// private lists paths inside whose file systems are the jail's own, besides
// others.
func (s Spec) private(others ...string) []string {
	if s.Home == "" {
		others = append(others, HomePath)
	}
	if s.Workspace == "" {
		others = append(others, WorkspacePath)
	}
	return others
}

// features lists the limits that are kept by looking.
func (w *watch) features(l Limits) (f []Feature) {
	if w.memory != nil {
		f = append(f, FeatureMemory)
	}
	if l.Disk > 0 {
		f = append(f, FeatureDisk)
	}
	if l.Inodes > 0 {
		f = append(f, FeatureInodes)
	}
	return f
}

// start begins to look, and calls kill once when a limit is reached.
func (w *watch) start(j *jail, kill func()) {
	if w.disk == nil && w.memory == nil && w.pids == 0 {
		return
	}
	w.jail, w.kill = j, kill
	w.inherited = ownPeak()
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go w.run()
}

// end ends the looking, once the jail is dead, and returns the limits that it
// had reached, and why they could not be kept.
func (w *watch) end(mechanism *os.ProcessState) ([]Feature, error) {
	if w.stop != nil {
		close(w.stop)
		<-w.done
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The kernel remembers the largest of all processes: one that took much, and
	// ended for lack of more, may have done so between two looks.
	if w.memory != nil && !mechanism.Success() && peak(mechanism, w.inherited) > w.memory.most && !slices.Contains(w.reached, FeatureMemory) {
		w.reached = append(w.reached, FeatureMemory)
	}
	return w.reached, w.err
}

// peak is the most memory, in bytes, that the largest process of a jail had; 0
// where that cannot be told from what the first one inherited.
func peak(mechanism *os.ProcessState, inherited int64) int64 {
	usage, ok := mechanism.SysUsage().(*syscall.Rusage)
	if !ok || usage.Maxrss <= inherited {
		return 0
	}
	return usage.Maxrss << 10
}

// ownPeak is the most memory, in KiB, that this process has had.
func ownPeak() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return math.MaxInt64 // nothing can be told apart
	}
	return usage.Maxrss
}

func (w *watch) run() {
	defer close(w.done)
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	good := time.Now()
	for {
		select {
		case <-timer.C:
		case <-w.stop:
			w.last()
			return
		}
		reached, next, err := w.look()
		if err == nil {
			good = time.Now()
		} else if time.Since(good) < watchPatience {
			err = nil
		}
		if reached != nil || err != nil {
			w.note(reached, err)
			w.kill()
			<-w.stop
			return
		}
		timer.Reset(next)
	}
}

func (w *watch) note(reached []Feature, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = append(w.reached, reached...)
	if err != nil {
		w.err = fmt.Errorf("the jail's limits could not be kept: %w", err)
	}
}

// look looks once, and says when to look again.
func (w *watch) look() (reached []Feature, next time.Duration, err error) {
	top, first := w.jail.processes()
	next = watchEvery
	if w.memory != nil || w.pids > 0 {
		took := processorTime(func() {
			pids, threads := usage.Below(top)
			if w.memory != nil && w.memory.over(pids, first) {
				reached = append(reached, FeatureMemory)
			}
			if w.pids > 0 && threads >= w.pids {
				w.note([]Feature{FeaturePIDs}, nil)
				w.pids = 0 // once is enough, and no process is killed for it
			}
		})
		next = max(next, watchShare*took)
	}
	if w.disk != nil && w.disk.due() {
		pids, _ := usage.Below(top)
		over, err := w.disk.over(pids, first)
		return append(reached, over...), next, err
	}
	return reached, next, nil
}

// processorTime is what a function computes, without what it waits.
func processorTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	do()
	return threadTime() - before
}

func threadTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0 // no kernel refuses it
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// last measures what a program that has ended by itself has left. The
// free space says nothing here: another program may have given way meanwhile.
func (w *watch) last() {
	if w.disk != nil {
		w.note(w.disk.over(nil, 0))
	}
}

// A memoryWatch adds the memory of a jail's processes, and what is in its
// temporary directories, which are memory too.
type memoryWatch struct {
	most    int64
	private []string
}

func (m *memoryWatch) over(pids []int, first int) bool {
	files := mounted(m.private, first).Bytes
	return files+usage.Memory(pids, m.most-files) > m.most
}

// mounted measures file systems of the jail's own, as the process first,
// which is in the jail, sees them.
func mounted(paths []string, first int) (sum usage.Size) {
	if first <= 0 {
		return sum // without a jail there are none
	}
	for _, p := range paths {
		sum = sum.Add(usage.Mounted(fmt.Sprintf("/proc/%d/root%s", first, p)))
	}
	return sum
}

// A diskWatch measures by how much directories have grown. Between two walks
// it asks the file systems how much they have left, which costs next to
// nothing: unless that has fallen by what the jail still may use, the walk can
// wait. It is made sometimes all the same, since others may have given way.
type diskWatch struct {
	dirs    []string
	private []string
	base    usage.Size // what was there
	most    usage.Size // growth that is allowed; a zero is no limit

	left   usage.Size // of most, at the last walk
	free   usage.Size // at the last walk
	walked time.Time
	took   time.Duration
}

func newDiskWatch(spec Spec) (*diskWatch, error) {
	d := &diskWatch{private: spec.private(), most: usage.Size{Bytes: spec.Limits.Disk, Inodes: spec.Limits.Inodes}}
	if spec.Workspace != "" && !spec.WorkspaceReadOnly {
		d.dirs = append(d.dirs, spec.Workspace)
	}
	if spec.Home != "" {
		d.dirs = append(d.dirs, spec.Home)
	}
	d.begin()
	var err error
	d.base, err = usage.Trees(d.dirs, usage.Size{})
	d.end(usage.Size{})
	return d, err
}

func (d *diskWatch) begin() {
	d.walked, d.free = time.Now(), usage.Free(d.dirs)
}

func (d *diskWatch) end(grown usage.Size) {
	d.took, d.left = time.Since(d.walked), d.most.Sub(grown)
}

// due reports whether it is time to walk.
func (d *diskWatch) due() bool {
	since := time.Since(d.walked)
	return since >= max(time.Second, watchShare*d.took) || (since >= 4*d.took && d.near())
}

// near reports whether the limit may have been reached since the last walk.
func (d *diskWatch) near() bool {
	used := d.free.Sub(usage.Free(d.dirs))
	return (d.most.Bytes > 0 && used.Bytes >= d.left.Bytes) || (d.most.Inodes > 0 && used.Inodes >= d.left.Inodes)
}

// over walks, and returns which limits are exceeded.
func (d *diskWatch) over(pids []int, first int) (reached []Feature, err error) {
	d.begin()
	// Enough is known as soon as one limit is exceeded by far.
	stop := usage.Size{}
	if d.most.Bytes > 0 {
		stop.Bytes = d.base.Bytes + d.most.Bytes
	}
	if d.most.Inodes > 0 {
		stop.Inodes = d.base.Inodes + d.most.Inodes
	}
	found, err := usage.Trees(d.dirs, stop)
	grown := found.Sub(d.base).Add(usage.Deleted(pids, d.dirs)).Add(mounted(d.private, first))
	d.end(grown)
	if d.most.Bytes > 0 && grown.Bytes > d.most.Bytes {
		reached = append(reached, FeatureDisk)
	}
	if d.most.Inodes > 0 && grown.Inodes > d.most.Inodes {
		reached = append(reached, FeatureInodes)
	}
	return reached, err
}
