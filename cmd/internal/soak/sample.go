package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

// A series is one thing that is measured.
type series struct {
	measure.Graph
	// whole: it outlives restarts, so that all runs together are one time.
	whole bool
	// swept: a worker removes what is too much now and then, so it counts by its least in the time
	// between two sweeps.
	swept bool
	read  func(ctx context.Context, p *pool) (float64, error)
}

// betweenSweeps is longer than the five minutes after which a worker sweeps again.
const betweenSweeps = 6 * time.Minute

// counted is what a sample counts for.
func (s *samples) counted(one *series, i int) float64 {
	least := one.Values[i]
	for j := i - 1; one.swept && j >= 0 && s.at[i]-s.at[j] < betweenSweeps; j-- {
		least = min(least, one.Values[j])
	}
	return least
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
func of(who string, which func(p *pool) *measure.Process) []*series {
	admin := func(ctx context.Context, p *pool) (float64, error) {
		text, err := measure.Get(ctx, "http://"+which(p).Admin+"/metrics")
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
		{Graph: measure.Graph{Name: who + " memory", Unit: measure.MiB}, read: func(_ context.Context, p *pool) (float64, error) { return measure.Resident(which(p).PID()) }},
		{Graph: measure.Graph{Name: who + " descriptors"}, read: func(_ context.Context, p *pool) (float64, error) { return measure.Descriptors(which(p).PID()) }},
		{Graph: measure.Graph{Name: who + " goroutines"}, read: admin},
	}
}

func everything() []*series {
	return slices.Concat(
		of("serve", func(p *pool) *measure.Process { return p.serve }),
		of("worker", func(p *pool) *measure.Process { return p.steady }),
		[]*series{
			{Graph: measure.Graph{Name: "store for each job", Unit: measure.KiB}, whole: true, read: func(_ context.Context, p *pool) (float64, error) {
				bytes, err := measure.Disk(filepath.Join(p.data, "nats"))
				return bytes / float64(max(1, p.jobs.Load())), err
			}},
			{Graph: measure.Graph{Name: "disk of the workers", Unit: measure.MiB}, whole: true, swept: true, read: func(_ context.Context, p *pool) (float64, error) { return measure.Disk(filepath.Join(p.data, "work")) }},
			{Graph: measure.Graph{Name: "mounts"}, whole: true, read: func(_ context.Context, p *pool) (float64, error) { return mounts(p.data), nil }},
			{Graph: measure.Graph{Name: "control groups"}, whole: true, read: func(_ context.Context, p *pool) (float64, error) { return groups("/sys/fs/cgroup", p.started()), nil }},
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
				s.all[i].Values = append(s.all[i].Values, v)
			}
		}
	}
}

func (s *samples) one(ctx context.Context) (values []float64, err error) {
	for _, one := range s.all {
		v, err := one.read(ctx, s.pool)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// A verdict is what came of one series.
type verdict struct {
	*series
	measure.Trend
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
		v := verdict{series: one, median: measure.Median(each)}
		if len(each) > 0 {
			v.least, v.most = slices.Min(each), slices.Max(each)
		}
		v.Trend = measure.Growth(segments)
		v.growth, v.grows = v.Trend.Judge(v.median, windows)
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
		windowed[run][n] = append(windowed[run][n], s.counted(one, i))
		each = append(each, one.Values[i])
	}
	for _, run := range windowed {
		var medians []float64
		for _, values := range run {
			if len(values) > 0 {
				medians = append(medians, measure.Median(values))
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

// groups counts the control groups of jails that one of the processes has made, which their
// names say: others on the host have some, too.
func groups(root string, owners []int) (n float64) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		parts := strings.Split(filepath.Base(path), "-") // the last three are owner, its start, and a number
		if err != nil || !d.IsDir() || !strings.Contains(path, "penstock") || len(parts) < 4 {
			return nil // what vanishes meanwhile counts for nothing
		}
		if owner, err := strconv.Atoi(parts[len(parts)-3]); err == nil && slices.Contains(owners, owner) {
			n++
		}
		return nil
	})
	return n
}

// plot draws each series over the time of all runs.
func (s *samples) plot() []byte {
	var graphs []measure.Graph
	for _, one := range s.all {
		graphs = append(graphs, one.Graph)
	}
	return measure.Plot(s.at, s.run, graphs)
}
