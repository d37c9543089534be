package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/operation"
)

// often is how often samples are taken.
const often = 2 * time.Second

// A sample is what was seen at one moment.
type sample struct {
	at time.Duration // since the first call
	counts
	running, parked, finished int // jobs
	waiting                   float64
	load                      float64
}

// samples are all that was seen.
type samples struct {
	pool  *pool
	began time.Time
	all   []sample
	jobs  []jobs.Record // as of the last sample
}

// take samples until all jobs have finished. It is an error if nothing happens any more.
func (s *samples) take(ctx context.Context) error {
	longest := s.pool.quota + 5*time.Minute
	for moved := time.Now(); ; {
		before := s.last()
		if err := s.sample(ctx); err != nil {
			return err
		}
		now := s.last()
		if now.finished == s.pool.agents {
			return nil
		}
		if now.served > before.served || now.finished > before.finished {
			moved = time.Now()
		}
		if time.Since(moved) > longest {
			return fmt.Errorf("%d of %d jobs have finished, and no call was accepted for %v", now.finished, s.pool.agents, longest)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(often):
		}
	}
}

func (s *samples) last() sample {
	if len(s.all) == 0 {
		return sample{}
	}
	return s.all[len(s.all)-1]
}

func (s *samples) sample(ctx context.Context) error {
	var now sample
	s.jobs = s.jobs[:0]
	for rec, err := range s.pool.server.Client.List(ctx, operation.ListRequest{}) {
		if err != nil {
			return fmt.Errorf("list the jobs: %w", err)
		}
		s.jobs = append(s.jobs, rec)
		switch {
		case rec.State == jobs.Executing:
			now.running++
		case rec.State == jobs.Finished:
			now.finished++
		case rec.Reason == jobs.QuotaWaiting:
			now.parked++
		}
	}
	for _, w := range s.pool.started {
		n, err := waiting(ctx, w)
		if err != nil {
			return fmt.Errorf("metrics of a worker: %w", err)
		}
		now.waiting += n
	}
	var err error
	if now.load, err = measure.Load(); err != nil {
		return err
	}
	now.counts, now.at = s.pool.api.counted(time.Now())
	s.all = append(s.all, now)
	return nil
}

// waiting is how many calls wait in the gates of a worker.
func waiting(ctx context.Context, w *measure.Process) (sum float64, err error) {
	text, err := measure.Get(ctx, "http://"+w.Admin+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "penstock_model_calls_waiting{") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, '}')+1:]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// A report is what came of a run.
type report struct {
	agents, succeeded, attempts int
	dead, burned                int
	early                       int // jobs that were parked, and began again before calls were allowed
	calls                       counts
	models                      string
	// used is the share of the allowed calls that were made, and refused that of all calls that were refused, from the
	// end of the first minute until half of the agents have ended: then the others may want less than is allowed.
	used, refused  float64
	over           time.Duration // how long that was
	refusedOfAll   float64
	waiting, parks int // calls that waited, and jobs that were parked, at most
	// quickest, median and slowest are of the scripted jobs, from submission to end; order is Kendall's tau of the two.
	quickest, median, slowest time.Duration
	order                     float64
	against                   []string // why attempts count against their jobs
	load, took                float64
}

// warm is how long the workers have to find the pace.
const warm = time.Minute

// report draws it up when all jobs have finished.
func (s *samples) report(ctx context.Context) (report, error) {
	last := s.last()
	r := report{agents: s.pool.agents, calls: last.counts, models: s.pool.api.asked(), took: last.at.Seconds()}
	r.refusedOfAll = share(float64(last.asked-last.served), float64(last.asked))
	for _, rec := range s.jobs {
		if rec.Outcome == jobs.Success {
			r.succeeded++
		}
		r.attempts += rec.Attempt
		if rec.Claimed != nil && s.pool.api.closed(*rec.Claimed) {
			r.early++
		}
		r.burned += rec.Counted + rec.Lost
		if rec.Counted+rec.Lost == 0 {
			continue
		}
		for e, err := range s.pool.server.Client.Events(ctx, rec.ID, 0) {
			if err != nil {
				return r, fmt.Errorf("read the session of job %s: %w", rec.ID, err)
			}
			if again := (event.JobRequeued{}); e.Kind == jobs.JobRequeued && json.Unmarshal(e.Data, &again) == nil && again.Reason != jobs.QuotaWaiting {
				r.against = append(r.against, fmt.Sprintf("%s of job %s, %s: %s", again.Reason, rec.Item, rec.Agent, again.Message))
			}
		}
	}
	for _, err := range s.pool.server.Client.DeadLetters().List(ctx, operation.DeadRequest{}) {
		if err != nil {
			return r, fmt.Errorf("list the dead letters: %w", err)
		}
		r.dead++
	}
	s.rates(&r)
	s.fairness(&r)
	return r, nil
}

// rates compares what the API allowed with what it was asked for.
func (s *samples) rates(r *report) {
	var from, to sample
	for _, now := range s.all {
		r.load, r.waiting, r.parks = max(r.load, now.load), max(r.waiting, int(now.waiting)), max(r.parks, now.parked)
		if from.at == 0 && now.at >= warm {
			from = now
		}
		if 2*now.finished <= s.pool.agents {
			to = now
		}
	}
	if from.at == 0 || to.at <= from.at {
		return // it was over too soon
	}
	r.over = to.at - from.at
	r.used = share(float64(to.served-from.served), s.pool.api.allowed(from.at, to.at))
	asked := to.asked - from.asked
	r.refused = share(float64(asked-(to.served-from.served)), float64(asked))
}

// fairness compares the scripted jobs, all of which have the same to do.
func (s *samples) fairness(r *report) {
	equal := slices.DeleteFunc(slices.Clone(s.jobs), func(rec jobs.Record) bool { return rec.Agent != scripted || rec.Finished == nil })
	if len(equal) < 2 {
		return
	}
	slices.SortFunc(equal, func(a, b jobs.Record) int { return a.Submitted.Compare(b.Submitted) })
	var took []time.Duration
	pairs, same := 0, 0
	for i, rec := range equal {
		took = append(took, rec.Finished.Sub(rec.Submitted))
		for _, later := range equal[i+1:] {
			pairs++
			same += later.Finished.Compare(*rec.Finished)
		}
	}
	slices.Sort(took)
	r.quickest, r.median, r.slowest = took[0], took[len(took)/2], took[len(took)-1]
	r.order = share(float64(same), float64(pairs))
}

func share(part, of float64) float64 {
	if of == 0 {
		return 0
	}
	return part / of
}

// points is how many moments of a run the plot shows.
const points = 150

// draw draws what was seen over time.
func (s *samples) draw() []byte {
	last := s.last().at
	var at []time.Duration
	graphs := []measure.Graph{
		{Name: "calls accepted a second; dashed: allowed"}, {Name: "calls refused a second"},
		{Name: "calls that wait in the gates"}, {Name: "jobs that are parked until calls are allowed again"},
		{Name: "agents that run"}, {Name: "load of the host"},
	}
	before := s.all[0]
	for _, now := range s.all[1:] {
		if now.at-before.at < max(last/points, often) {
			continue
		}
		took, served := (now.at - before.at).Seconds(), float64(now.served-before.served)
		at = append(at, now.at)
		graphs[0].Bound = append(graphs[0].Bound, s.pool.api.allowed(before.at, now.at)/took)
		for i, v := range []float64{served / took, (float64(now.asked-before.asked) - served) / took, now.waiting, float64(now.parked), float64(now.running), now.load} {
			graphs[i].Values = append(graphs[i].Values, v)
		}
		before = now
	}
	return measure.Plot(at, make([]int, len(at)), graphs)
}
