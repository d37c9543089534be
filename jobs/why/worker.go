package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A Worker is what a worker says of itself while it lives.
type Worker struct {
	Name    string      `json:"name" jsonschema:"Its name."`
	State   WorkerState `json:"state,omitempty" jsonschema:"available: it claims jobs and has a free slot; busy: all of its slots have jobs; closed: it claims nothing now; draining: it was told to claim nothing more."`
	Queues  []string    `json:"queues" jsonschema:"The queues that it serves."`
	Labels  []string    `json:"labels,omitempty" jsonschema:"Its labels."`
	Slots   int         `json:"slots" jsonschema:"How many jobs it runs at once."`
	Busy    int         `json:"busy" jsonschema:"How many it runs now."`
	Closed  string      `json:"closed,omitempty" jsonschema:"Why it claims nothing now."`
	Drain   *Drain      `json:"drain,omitempty" jsonschema:"There if the worker was told to claim nothing more."`
	Version string      `json:"version,omitempty" jsonschema:"The release of its program."`
	Started time.Time   `json:"started" jsonschema:"When it began."`
	Seen    time.Time   `json:"seen,omitzero" jsonschema:"When it was last heard of, by the broker's clock."` // by the broker's clock
	Clock   time.Time   `json:"clock,omitzero" jsonschema:"The same moment by the worker's own clock."`
}

// A Drain says who told a worker to claim nothing more, and when.
type Drain struct {
	By string    `json:"by,omitempty" jsonschema:"Who asked for it; signal is the end of the worker's process."`
	At time.Time `json:"at" jsonschema:"When."`
	// Confirmed: the worker says so itself. From then on it claims nothing, and Busy
	// counts all jobs that it still has.
	Confirmed bool `json:"confirmed" jsonschema:"The worker has said that it drains: it claims nothing any more, and busy counts all jobs that it still has."`
	// Ends: the worker's process ends with its last job, so it cannot be resumed.
	Ends bool `json:"ends,omitempty" jsonschema:"The worker's process ends with its last job: it cannot be resumed."`
}

func (d Drain) String() string {
	if d.Ends {
		return "it shuts down"
	}
	return fmt.Sprintf("it drains, as %s asked at %s", d.By, clock(d.At))
}

// A DrainRequest is what was asked of a worker last: to drain, or no longer to. It is for
// one process, so that a worker that is started again begins as always.
type DrainRequest struct {
	Started time.Time `json:"started"` // of the worker's process
	Drain   bool      `json:"drain"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// On returns a worker with its state, and with the request as far as it has not confirmed
// it.
func (r DrainRequest) On(w Worker) Worker {
	if r.Drain && r.Started.Equal(w.Started) && w.Drain == nil {
		w.Drain = &Drain{By: r.By, At: r.At}
	}
	return w.InState()
}

// WorkerState says in a word whether a worker claims jobs.
type WorkerState string

// The states of a worker.
const (
	WorkerAvailable WorkerState = "available" // it claims jobs, and has a free slot
	WorkerBusy      WorkerState = "busy"      // all of its slots have jobs
	WorkerClosed    WorkerState = "closed"    // it claims nothing now
	WorkerDraining  WorkerState = "draining"  // it was told to claim nothing more
)

// InState returns the worker with the state that its other fields say.
func (w Worker) InState() Worker {
	switch {
	case w.Drain != nil && w.Drain.Confirmed:
		w.State = WorkerDraining
	case w.Closed != "":
		w.State = WorkerClosed
	case w.Busy >= w.Slots:
		w.State = WorkerBusy
	default:
		w.State = WorkerAvailable
	}
	return w
}

// Drained reports whether a worker was told to claim nothing more and has no jobs left.
func (w Worker) Drained() bool { return w.Drain != nil && w.Drain.Confirmed && w.Busy == 0 }

// Serves reports whether a worker could claim a job.
func (w Worker) Serves(r jobs.Record) bool {
	return slices.Contains(w.Queues, r.Queue) && len(w.lacks(r)) == 0
}

// lacks are the labels that a job needs and the worker does not have.
func (w Worker) lacks(r jobs.Record) []string {
	return slices.DeleteFunc(slices.Clone(r.Needs), func(need string) bool { return slices.Contains(w.Labels, need) })
}
