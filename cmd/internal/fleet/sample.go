package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

// windows is into how many windows of as many jobs a run is divided. The first one, in which
// programs warm up, is not judged.
const windows = 10

// A sample is what was seen at one moment.
type sample struct {
	at                         time.Duration
	settled                    float64
	processor                  float64 // of serve, in seconds
	memory, disk, load, inWork float64
}

// samples are all that was seen.
type samples struct {
	pool  *pool
	began time.Time
	all   []sample
}

func newSamples(p *pool) *samples { return &samples{pool: p, began: time.Now()} }

// take samples until ctx ends: often at first, so that a short run has some in each window, and
// seldom in a long one.
func (s *samples) take(ctx context.Context) {
	for {
		pause := min(time.Second, max(50*time.Millisecond, time.Since(s.began)/100))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		_ = s.sample() // the last one, which is not taken here, tells errors
	}
}

func (s *samples) sample() error {
	p := s.pool
	now := sample{at: time.Since(s.began), settled: float64(p.settled.Load()), inWork: float64(p.running.Load())}
	processor, err := measure.Processor(p.server.Serve.PID())
	if err != nil {
		return err
	}
	now.processor = processor.Seconds()
	if now.memory, err = measure.Resident(p.server.Serve.PID()); err != nil {
		return err
	}
	if now.load, err = measure.Load(); err != nil {
		return err
	}
	if now.disk, err = measure.Disk(filepath.Join(p.data, "nats")); err != nil {
		return err
	}
	s.all = append(s.all, now)
	return nil
}

// A verdict is what came of one figure: its value in each window, and whether it grows.
type verdict struct {
	name    string
	windows []float64
	median  float64
	trend   measure.Trend
	growth  float64
	grows   bool
}

// judge compares what a job took in each window.
func (s *samples) judge() []verdict {
	var all []verdict
	for _, figure := range []struct {
		name string
		of   func(sample) float64
	}{
		{"time", func(o sample) float64 { return o.at.Seconds() }},
		{"processor time", func(o sample) float64 { return o.processor }},
	} {
		v := verdict{name: figure.name}
		each := s.all[len(s.all)-1].settled / windows
		for n := range windows {
			v.windows = append(v.windows, (s.when(float64(n+1)*each, figure.of)-s.when(float64(n)*each, figure.of))/each)
		}
		judged := v.windows[1:]
		v.median, v.trend = measure.Median(judged), measure.Growth([][]float64{judged})
		v.growth, v.grows = v.trend.Judge(v.median, len(judged))
		all = append(all, v)
	}
	return all
}

// when is a figure at the moment at which so many jobs had settled, between two samples.
func (s *samples) when(settled float64, of func(sample) float64) float64 {
	for i, now := range s.all {
		if now.settled < settled {
			continue
		}
		if i == 0 || now.settled == s.all[i-1].settled {
			return of(now)
		}
		before := s.all[i-1]
		return of(before) + (of(now)-of(before))*(settled-before.settled)/(now.settled-before.settled)
	}
	return of(s.all[len(s.all)-1])
}

// tell prints what was seen.
func (s *samples) tell(out io.Writer, verdicts []verdict) {
	const mib = 1 << 20
	first, last := s.all[0], s.all[len(s.all)-1]
	memory, inWork, load := 0.0, 0.0, 0.0
	for _, one := range s.all {
		memory, inWork, load = max(memory, one.memory), max(inWork, one.inWork), max(load, one.load)
	}
	fmt.Fprintf(out, "\n%.0f jobs in %v: %.0f a second; the load was %.1f at most\n", last.settled, last.at.Round(time.Second/10), last.settled/last.at.Seconds(), load)
	fmt.Fprintf(out, "jobs in work at once, at most %20.0f\n", inWork)
	fmt.Fprintf(out, "steps of workers that failed  %20d\n", s.pool.failed.Load())
	fmt.Fprintf(out, "memory of serve, MiB          %20s\n", fmt.Sprintf("%.0f, %.0f, %.0f", first.memory/mib, memory/mib, last.memory/mib))
	fmt.Fprintf(out, "disk of a job, KiB            %20.1f\n\n", (last.disk-first.disk)/last.settled/1024)
	fmt.Fprintf(out, "%-16s %9s %7s %6s  ms of a job in each tenth\n", "", "median", "growth", "tau")
	for _, v := range verdicts {
		fmt.Fprintf(out, "%-16s %6.2f ms %6.0f%% %6.2f ", v.name, 1000*v.median, 100*v.growth, v.trend.Tau)
		for _, w := range v.windows {
			fmt.Fprintf(out, " %.2f", 1000*w)
		}
		if v.grows {
			fmt.Fprint(out, "  GROWS")
		}
		fmt.Fprintln(out)
	}
}

// points is how many moments of a run the plot shows: the rate is that between two of them.
const points = 100

// draw draws what was seen over time.
func (s *samples) draw() []byte {
	last := s.all[len(s.all)-1].at
	var at []time.Duration
	graphs := []measure.Graph{
		{Name: "jobs settled a second"}, {Name: "processor time of serve for each job, in ms"},
		{Name: "memory of serve", Unit: measure.MiB}, {Name: "disk of the store", Unit: measure.MiB},
		{Name: "jobs in work"}, {Name: "load of the host"},
	}
	before := s.all[0]
	for _, now := range s.all[1:] {
		if now.at-before.at < last/points || now.settled == before.settled {
			continue
		}
		done := now.settled - before.settled
		at = append(at, now.at)
		for i, v := range []float64{done / (now.at - before.at).Seconds(), 1000 * (now.processor - before.processor) / done, now.memory, now.disk, now.inWork, now.load} {
			graphs[i].Values = append(graphs[i].Values, v)
		}
		before = now
	}
	return measure.Plot(at, make([]int, len(at)), graphs)
}
