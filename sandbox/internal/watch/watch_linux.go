// Package watch keeps the limits of a jail that the kernel of a host does not keep.
package watch

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

// The words for limits that no control group has; the others are those of package
// cgroup.
const (
	Disk   = "disk"
	Inodes = "inodes"
)

// A Watch keeps the limits of a jail that the kernel does not keep: it looks,
// and kills. A jail can be beyond its limit by what it uses between two looks.
//
// It looks every watchEvery, but so that no processor is busy with it for more
// than one part in watchShare of the time. On a busy host a look waits for its turn,
// which costs nothing and puts off no other look.
type Watch struct {
	disk      *diskWatch   // nil: no limit of disk
	memory    *memoryWatch // nil: no limit, or the kernel keeps it
	pids      int          // the kernel keeps this limit, but does not tell; 0: it does
	processes func() (top, first int)
	kill      func()
	// inherited is the most memory, in KiB, that this process had when the jail
	// was there. A process begins with its starter's peak in its resource usage,
	// since it shares the starter's memory until it executes its program.
	inherited int64

	stop, done chan struct{} // made by Start

	mu      sync.Mutex
	reached []string // guarded by mu
	err     error    // guarded by mu
}

const (
	watchEvery = 250 * time.Millisecond
	watchShare = 50
	// watchPatience is how long measuring may fail before the jail is ended: a
	// limit that cannot be measured is none.
	watchPatience = 5 * time.Second
)

// A Config says what is watched.
type Config struct {
	Memory  int64      // bytes; 0: not watched
	PIDs    int        // 0: not watched
	Size    usage.Size // what directories may grow by; a zero is no limit
	Dirs    []string   // of the host, which the jail writes to
	Private []string   // paths inside whose file systems are the jail's own, instead of such a directory
}

// New measures what is there before the jail begins.
func New(c Config) (*Watch, error) {
	w := &Watch{pids: c.PIDs}
	if c.Memory > 0 {
		w.memory = &memoryWatch{most: c.Memory, private: append([]string{"/tmp", "/run", "/dev/shm"}, c.Private...)}
	}
	if c.Size == (usage.Size{}) {
		return w, nil
	}
	var err error
	w.disk, err = newDiskWatch(c)
	return w, err
}

// Start begins to look, and calls kill once when a limit is reached. processes returns
// the number of a process of which all in the jail descend, and of one that sees its
// files.
func (w *Watch) Start(processes func() (top, first int), kill func()) {
	if w.disk == nil && w.memory == nil && w.pids == 0 {
		return
	}
	w.processes, w.kill = processes, kill
	w.inherited = ownPeak()
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go w.run()
}

// End ends the looking, once the jail is dead, and returns the limits that it
// had reached, and why they could not be kept.
func (w *Watch) End(mechanism *os.ProcessState) ([]string, error) {
	if w.stop != nil {
		close(w.stop)
		<-w.done
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The kernel remembers the largest of all processes: one that took much, and
	// ended for lack of more, may have done so between two looks.
	if w.memory != nil && !mechanism.Success() && peak(mechanism, w.inherited) > w.memory.most && !slices.Contains(w.reached, cgroup.Memory) {
		w.reached = append(w.reached, cgroup.Memory)
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

func (w *Watch) run() {
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

func (w *Watch) note(reached []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = append(w.reached, reached...)
	if err != nil {
		w.err = fmt.Errorf("the jail's limits could not be kept: %w", err)
	}
}

// look looks once, and says when to look again.
func (w *Watch) look() (reached []string, next time.Duration, err error) {
	top, first := w.processes()
	next = watchEvery
	if w.memory != nil || w.pids > 0 {
		took := processorTime(func() {
			pids, threads := usage.Below(top)
			if w.memory != nil && w.memory.over(pids, first) {
				reached = append(reached, cgroup.Memory)
			}
			if w.pids > 0 && threads >= w.pids {
				w.note([]string{cgroup.PIDs}, nil)
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
func (w *Watch) last() {
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

func newDiskWatch(c Config) (*diskWatch, error) {
	d := &diskWatch{dirs: c.Dirs, private: c.Private, most: c.Size}
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
func (d *diskWatch) over(pids []int, first int) (reached []string, err error) {
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
		reached = append(reached, Disk)
	}
	if d.most.Inodes > 0 && grown.Inodes > d.most.Inodes {
		reached = append(reached, Inodes)
	}
	return reached, err
}
