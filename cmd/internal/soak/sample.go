package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A unit says how the values of a series are told.
type unit string

const (
	number unit = ""
	kib    unit = "KiB"
	mib    unit = "MiB"
)

func (u unit) text(v float64) string {
	switch u {
	case kib:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	case mib:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// A series is one thing that is measured.
type series struct {
	name string
	unit unit
	// whole: it outlives restarts, so that all runs together are one time.
	whole bool
	read  func(ctx context.Context, p *pool) (float64, error)
	// values are of each sample, in the order of samples.at.
	values []float64
}

// samples are all that was measured.
type samples struct {
	pool   *pool
	began  time.Time
	window time.Duration
	at     []time.Duration
	run    []int
	all    []*series
}

// of makes the series of one process.
func of(who string, which func(p *pool) *process) []*series {
	admin := func(ctx context.Context, p *pool) (float64, error) {
		text, err := get(ctx, "http://"+which(p).admin+"/metrics")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, "go_goroutines "); ok {
				return strconv.ParseFloat(strings.TrimSpace(value), 64)
			}
		}
		return 0, fmt.Errorf("%s has no go_goroutines", who)
	}
	return []*series{
		{name: who + " memory", unit: mib, read: func(_ context.Context, p *pool) (float64, error) { return resident(which(p).cmd.Process.Pid) }},
		{name: who + " descriptors", read: func(_ context.Context, p *pool) (float64, error) { return descriptors(which(p).cmd.Process.Pid) }},
		{name: who + " goroutines", read: admin},
	}
}

func everything() []*series {
	return slices.Concat(
		of("serve", func(p *pool) *process { return p.serve }),
		of("worker", func(p *pool) *process { return p.steady }),
		[]*series{
			{name: "store for each job", unit: kib, whole: true, read: func(_ context.Context, p *pool) (float64, error) {
				bytes, err := disk(filepath.Join(p.data, "nats"))
				return bytes / float64(max(1, p.jobs.Load())), err
			}},
			{name: "disk of the workers", unit: mib, whole: true, read: func(_ context.Context, p *pool) (float64, error) { return disk(filepath.Join(p.data, "work")) }},
			{name: "mounts", whole: true, read: func(_ context.Context, p *pool) (float64, error) { return mounts(p.data), nil }},
			{name: "control groups", whole: true, read: func(context.Context, *pool) (float64, error) { return groups(), nil }},
		})
}

// take samples until ctx ends. A sample that cannot be taken whole is none: a process may be
// starting.
func (s *samples) take(ctx context.Context, run int) {
	if s.all == nil {
		s.all = everything()
	}
	tick := time.NewTicker(s.window / 20)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if values, err := s.one(ctx); err == nil {
			s.at, s.run = append(s.at, time.Since(s.began)), append(s.run, run)
			for i, v := range values {
				s.all[i].values = append(s.all[i].values, v)
			}
		}
	}
}

func (s *samples) one(ctx context.Context) (values []float64, err error) {
	for _, one := range s.all {
		v, err := one.read(ctx, s.pool)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// A verdict is what came of one series.
type verdict struct {
	*series
	trend
	least, median, most float64
	growth              float64 // in one run, as a share of the median
	grows               bool
}

// judge compares the medians of the windows of each series. The first window of each run is
// left out, and of the first run the first half: what is kept had not begun to expire.
func (s *samples) judge() []verdict {
	var all []verdict
	for _, one := range s.all {
		segments, each := s.segments(one)
		v := verdict{series: one, median: median(each)}
		if len(each) > 0 {
			v.least, v.most = slices.Min(each), slices.Max(each)
		}
		v.trend = growth(segments)
		v.growth, v.grows = judged(v.trend, v.median, windows)
		all = append(all, v)
	}
	return all
}

// segments returns the medians of the windows of each time without a restart, and all
// values in them.
func (s *samples) segments(one *series) (segments [][]float64, each []float64) {
	windowed := make([][windows][]float64, runs)
	began := map[int]time.Duration{}
	for i, at := range s.at {
		run := s.run[i]
		if _, ok := began[run]; !ok {
			began[run] = at
		}
		n := min(windows-1, int((at-began[run])/s.window))
		if n == 0 || run == 0 && n < windows/2 {
			continue
		}
		windowed[run][n] = append(windowed[run][n], one.values[i])
		each = append(each, one.values[i])
	}
	for _, run := range windowed {
		var medians []float64
		for _, values := range run {
			if len(values) > 0 {
				medians = append(medians, median(values))
			}
		}
		if one.whole && len(segments) > 0 {
			segments[0] = append(segments[0], medians...)
			continue
		}
		segments = append(segments, medians)
	}
	return segments, each
}

// resident is the memory of a process, in bytes.
func resident(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has ended", pid)
}

func descriptors(pid int) (float64, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return float64(len(entries)), err
}

// disk is what a directory takes on the disk, in bytes. What vanishes meanwhile takes nothing.
func disk(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has been removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += float64(stat.Blocks * 512)
			}
		}
		return nil
	})
	return bytes, err
}

// mounts counts the mounts of this host below a directory.
func mounts(dir string) (n float64) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, dir) {
			n++
		}
	}
	return n
}

// groups counts the control groups of penstock on this host.
func groups() (n float64) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "penstock") {
			n++
		}
		return nil // what vanishes meanwhile counts for nothing
	})
	return n
}
