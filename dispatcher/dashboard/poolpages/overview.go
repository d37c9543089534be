package poolpages

import (
	"slices"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

const (
	// day is the time that the figures of the overview are about.
	day = 24 * time.Hour
	// patience is how long a job waits before the overview asks what keeps it.
	patience = time.Minute
	// mostListed is how many entries each list of the overview has.
	mostListed = 8
)

var overviewPage = page("overview")

// glance is the dot of the overview. A part that the identity may not see is not there.
type glance struct {
	Queues                    []queueGlance
	Pending, Delayed, Running int
	Reads                     bool // the identity may list jobs
	Workers, Busy, Slots      int
	Closed                    []why.Worker
	Done, Succeeded           int // of the last day
	Cost                      float64
	Sampled                   bool // there were more jobs than were read
	Asking                    []jobs.Record
	MoreAsking                int
	Stuck                     []stuckJob
	Dead                      []jobs.DeadLetter
	DeadCount                 int
	DeadMore                  bool // there are more than were counted
	Oldest                    *time.Time
}

// A queueGlance is a queue with how many of its jobs ended within the last hour.
type queueGlance struct {
	operation.Queue
	Hour int
}

// A stuckJob is the oldest that waits in its queue, with what keeps it.
type stuckJob struct {
	jobs.Record
	Standing why.Standing
}

// overview shows the pool at a glance.
func overview(v *dashboard.Visit) error {
	var g glance
	for _, part := range []struct {
		row  operation.Row
		read func(*dashboard.Visit) error
	}{
		{operation.QueueList.Row, g.readQueues},
		{operation.Workers.Row, g.readWorkers},
		{operation.List.Row, g.readJobs},
		{operation.DeadList.Row, g.readDead},
	} {
		if !v.May(part.row) {
			continue
		}
		if err := part.read(v); err != nil {
			return err
		}
	}
	return v.Render(overviewPage, dashboard.Page{Title: "Overview", Nav: "Overview", Refresh: true, Data: g})
}

func (g *glance) readQueues(v *dashboard.Visit) error {
	all, err := dashboard.Look(v, operation.QueueList, operation.PageRequest{})
	for _, q := range all.Queues {
		g.Queues = append(g.Queues, queueGlance{Queue: q})
		g.Pending += q.Pending
		g.Delayed += q.Delayed
		g.Running += q.Executing
		if q.Oldest != nil && (g.Oldest == nil || q.Oldest.Before(*g.Oldest)) {
			g.Oldest = q.Oldest
		}
	}
	return err
}

func (g *glance) readWorkers(v *dashboard.Visit) error {
	all, err := dashboard.Look(v, operation.Workers, operation.Nothing{})
	for _, w := range all.Workers {
		g.Workers++
		g.Busy += w.Busy
		g.Slots += w.Slots
		if w.Closed != "" {
			g.Closed = append(g.Closed, w)
		}
	}
	return err
}

func (g *glance) readDead(v *dashboard.Visit) error {
	all, err := dashboard.Look(v, operation.DeadList, operation.DeadRequest{})
	g.DeadCount, g.DeadMore = len(all.Letters), all.Next != ""
	if !g.DeadMore { // else these are not the last
		g.Dead = slices.Clone(all.Letters[max(0, len(all.Letters)-mostListed):])
		slices.Reverse(g.Dead)
	}
	return err
}

func (g *glance) readJobs(v *dashboard.Visit) error {
	g.Reads = true
	for _, read := range []func(*dashboard.Visit) error{g.readDay, g.readAsking, g.readStuck} {
		if err := read(v); err != nil {
			return err
		}
	}
	return nil
}

// readDay reads what was submitted within the last day. The time that it asks with moves
// once a minute: a request is shared by those who ask for the same.
func (g *glance) readDay(v *dashboard.Visit) error {
	now := time.Now().Truncate(time.Minute)
	since := now.Add(-day)
	all, more, err := lookAll(v, operation.ListRequest{Since: &since, Newest: true}, searched)
	g.Sampled = more
	for _, rec := range all {
		g.Cost = jobs.AddUSD(g.Cost, rec.SpentBefore.Add(rec.LastAttempt).CostUSD)
		if rec.State != jobs.Finished || rec.Finished == nil {
			continue
		}
		g.Done++
		if rec.Outcome == jobs.Success {
			g.Succeeded++
		}
		at := slices.IndexFunc(g.Queues, func(q queueGlance) bool { return q.Queue.Queue == rec.Queue })
		if at >= 0 && rec.Finished.After(now.Add(-time.Hour)) {
			g.Queues[at].Hour++
		}
	}
	return err
}

// readAsking finds the jobs whose agents wait for an answer, running or parked.
func (g *glance) readAsking(v *dashboard.Visit) error {
	for _, state := range []jobs.State{jobs.Executing, jobs.Waiting} {
		all, _, err := lookAll(v, operation.ListRequest{State: state}, searched)
		if err != nil {
			return err
		}
		for _, rec := range all {
			if rec.Asks == nil && !rec.Asking() {
				continue
			}
			if len(g.Asking) == mostListed {
				g.MoreAsking++
				continue
			}
			g.Asking = append(g.Asking, rec)
		}
	}
	return nil
}

// Open is how many agents wait for an answer.
func (g glance) Open() int { return len(g.Asking) + g.MoreAsking }

// Rate is how many of the day's jobs succeeded, in percent.
func (g glance) Rate() int { return 100 * g.Succeeded / max(1, g.Done) }

// readStuck asks of the oldest job of each queue what keeps it, where it waits for long.
func (g *glance) readStuck(v *dashboard.Visit) error {
	if g.Oldest == nil || time.Since(*g.Oldest) < patience || !v.May(operation.Why.Row) {
		return nil
	}
	all, err := dashboard.Look(v, operation.List, operation.ListRequest{State: jobs.Pending})
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, rec := range all.Jobs {
		if seen[rec.Queue] || time.Since(rec.Submitted) < patience || len(g.Stuck) == mostListed {
			continue
		}
		seen[rec.Queue] = true
		standing, err := dashboard.Look(v, operation.Why, operation.Ref{ID: rec.ID})
		if jobs.Code(err) == jobs.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		g.Stuck = append(g.Stuck, stuckJob{rec, standing})
	}
	return nil
}
