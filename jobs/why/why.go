// Package why says what keeps a job in its state.
//
//	facts ─▶ the constraint that comes first ─▶ what would change it
//
// It promises that the answer is true: while the named constraint remains,
// nothing else would move the job. When that constraint is gone, the next
// answer is another, until a worker claims the job. The package holds values
// only; the caller brings the facts.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Constraint is what keeps a job where it is.
type Constraint string

// The constraints, in the order in which they are asked for: what comes first
// keeps the job whatever comes later.
const (
	KeptFinished    Constraint = "finished"       // it has an outcome
	KeptCancelling  Constraint = "cancelling"     // its worker was told to end it
	KeptExecuting   Constraint = "executing"      // a worker holds it
	KeptAsking      Constraint = "asking"         // a worker holds it, and its agent waits for an answer
	KeptLost        Constraint = "worker_silent"  // its worker's lease has run out
	KeptBatchPaused Constraint = "batch_paused"   // its batch is paused
	KeptParked      Constraint = "parked"         // its agent waits for an answer
	KeptRunAt       Constraint = "run_at"         // it was submitted for later
	KeptBackOff     Constraint = "back_off"       // the last attempt failed a moment ago
	KeptBudget      Constraint = "budget"         // a budget is spent, and the job is parked
	KeptDue         Constraint = "due"            // its time has come, and the dispatcher has not moved it yet
	KeptDepends     Constraint = "depends_on"     // it waits for other jobs to succeed
	KeptQueuePaused Constraint = "queue_paused"   // its queue is paused
	KeptCap         Constraint = "cap"            // as many as a cap allows run, or come before it
	KeptNoWorker    Constraint = "no_worker"      // none is alive
	KeptNoQueue     Constraint = "queue_unserved" // none that is alive serves its queue
	KeptNeeds       Constraint = "needs_unmet"    // none of these has the labels that it needs
	KeptClosed      Constraint = "workers_closed" // none that serves it claims anything now
	KeptSlots       Constraint = "slots_busy"     // all slots are busy, or taken by jobs before it
	KeptByNothing   Constraint = "nothing"        // a worker is about to claim it
)

// A Pause says since when and until when a queue or a batch is paused.
type Pause struct {
	By    string     `json:"by,omitempty"`
	At    time.Time  `json:"at"`
	Until *time.Time `json:"until,omitempty"`
}

// Facts are everything that decides what keeps a job.
type Facts struct {
	Now    time.Time // by the broker's clock, as all times here
	Record jobs.Record
	// Written is when the record last changed: the heartbeat of a job that is
	// executing, whose lease is Lease long.
	Written      time.Time
	Lease        time.Duration
	Queue, Batch *Pause // nil: not paused
	// Stranded: the job is pending, and is not in its queue, and no dispatcher
	// is there whose turn it would be to put it there.
	Stranded bool
	// Ahead is how many jobs of its queue with the same needs are claimed before
	// this one. Rivals are those of other queues or needs that may be: they have
	// no less priority, and some worker that serves this one serves them too.
	// Below are those of less priority that are so served: they have some turns.
	Ahead, Rivals, Below int
	Workers              []Worker // that are alive
	Caps                 []Cap    // that bound it
	// Open are the jobs that it waits for.
	Open []jobs.Record
	// Overlaps are the jobs that change the same files.
	Overlaps []jobs.Overlap
}

// A Cap says how many jobs run that a cap counts, and how many that could be
// claimed it counts as well: all but those behind the job in its own lane.
type Cap struct {
	Key                   string
	Most, Running, Before int
}

// turns is how many of so many claims in a row of one worker may begin with a
// job of less priority.
func turns(claims int) int { return (claims + 3) / 4 }

// A Standing is the one thing that keeps a job where it is, and what would
// change that.
type Standing struct {
	Job        string     `json:"job" jsonschema:"The job's id."`
	State      jobs.State `json:"state" jsonschema:"Its state."`
	Constraint Constraint `json:"constraint" jsonschema:"What keeps it there, in a word."`
	Message    string     `json:"message" jsonschema:"What keeps it there, in a sentence."`
	Change     string     `json:"change" jsonschema:"What would change that."` // what would change it
	Until      *time.Time `json:"until,omitempty" jsonschema:"When that changes by itself."`
	Worker     string     `json:"worker,omitempty" jsonschema:"The worker that holds the job."`
	Position   int        `json:"position,omitempty" jsonschema:"Its position in the queue, from 1."` // in its queue, from 1
	Slots      int        `json:"slots,omitempty" jsonschema:"How many slots serve the queue."`       // that serve the queue
	// Overlaps keep the job from nothing, but whoever asks about a job that runs should know.
	Overlaps []jobs.Overlap `json:"overlaps,omitempty" jsonschema:"Jobs of the same repository that change the same files, as seen while they run; at most twenty."`
	Free     int            `json:"free,omitempty" jsonschema:"How many of these are free."` // of these
}

// Of says what keeps a job where it is.
func Of(f Facts) Standing {
	s := Standing{Job: f.Record.ID, State: f.Record.State, Overlaps: f.Overlaps}
	switch f.Record.State {
	case jobs.Finished:
		return f.finished(s)
	case jobs.Executing:
		return f.executing(s)
	case jobs.Waiting:
		return f.waiting(s)
	case jobs.Delayed:
		return f.delayed(s)
	}
	return f.pending(s)
}

func (f Facts) finished(s Standing) Standing {
	r := f.Record
	s.Constraint, s.Message = KeptFinished, fmt.Sprintf("it ended in %s", r.Outcome)
	s.Change = "nothing; submit it again to run it once more"
	if r.Outcome != jobs.Success {
		s.Message += fmt.Sprintf(" (%s: %s)", r.Reason, r.Message)
		s.Change = "penstock job retry " + r.ID
		if cause, ok := jobs.Reasons[r.Reason]; ok {
			s.Change = cause.Advice + "; then " + s.Change
		}
	}
	return pullRequest(s, r)
}

// pullRequest adds what has become of the pull request of a finished job.
func pullRequest(s Standing, r jobs.Record) Standing {
	switch pr := r.PullRequest; {
	case pr == nil || r.Outcome != jobs.Success:
	case r.PullDue() && pr.Message == "":
		s.Message += ", and its pull request is about to be opened or updated"
		s.Change = "the dispatcher does so within seconds; penstock serve runs one"
	case r.PullDue():
		s.Message += ", and its pull request is not up to date: " + pr.Message
		s.Change = "the dispatcher tries again by itself, once that is fixed"
	case pr.State == jobs.PullOpen:
		s.Message += ", and its pull request is " + pr.URL
	case pr.State == jobs.PullNone || pr.State == jobs.PullRefused:
		s.Message += ", without a pull request: " + pr.Message
	}
	return s
}

func (f Facts) executing(s Standing) Standing {
	r := f.Record
	until := f.Written.Add(f.Lease)
	s.Worker, s.Until = r.Worker, &until
	switch {
	case !f.Now.Before(until):
		s.Constraint, s.Message = KeptLost, fmt.Sprintf("worker %s has not been heard of since %s", r.Worker, clock(f.Written))
		s.Change = "another worker takes it over; one with a free slot must be alive"
	case r.Cancel != nil:
		s.Constraint, s.Message = KeptCancelling, fmt.Sprintf("worker %s is ending it, because of a request at %s", r.Worker, clock(r.Cancel.At))
		s.Change = "it ends when the agent has"
	case r.Asks != nil:
		return asking(s, r)
	default:
		s.Constraint, s.Message = KeptExecuting, fmt.Sprintf("worker %s runs attempt %d, and has its lease until %s", r.Worker, r.Attempt, clock(until))
		s.Change = "it ends by itself; penstock job cancel " + r.ID + " ends it now"
	}
	return s
}

// asking says what the agent of a job that runs wants to know.
func asking(s Standing, r jobs.Record) Standing {
	s.Constraint = KeptAsking
	s.Message = fmt.Sprintf("its agent %s asks since %s: %s", r.Agent, clock(r.Asks.Since), r.Asks.Question)
	if more := r.Asks.Open - 1; more > 0 {
		s.Message += fmt.Sprintf(" (and %d more)", more)
	}
	s.Change = "penstock answer " + r.ID + " TEXT"
	if r.Asks.Type != "question" {
		s.Change = "penstock answer " + r.ID + " --allow, or --deny"
	}
	s.Change += "; it continues without one when the job's ask.timeout is over"
	return s
}

func (f Facts) waiting(s Standing) Standing {
	switch {
	case f.Record.Asking():
		return f.asks(s)
	case f.Batch != nil:
		return f.batchPaused(s)
	case f.Record.Dependent():
		return f.depends(s)
	}
	s.Constraint, s.Message = KeptDue, "the pause of its batch is over, and no dispatcher has queued it again yet"
	s.Change = "the dispatcher does so within seconds; penstock serve runs one"
	return s
}

// asks says what a parked job's agent wants to know, and what becomes of that.
func (f Facts) asks(s Standing) Standing {
	r := f.Record
	s.Until = r.NotBefore
	if r.NotBefore == nil || !f.Now.Before(*r.NotBefore) {
		s.Constraint, s.Message = KeptDue, "its agent was not answered in time, and it is not in its queue yet"
		s.Change = "the dispatcher puts it there at once; penstock serve runs one"
		return s
	}
	s.Constraint, s.Message = KeptParked, "its agent asks: "+r.Message
	s.Change = "penstock answer " + r.ID + "; it continues without one at " + clock(*r.NotBefore)
	return s
}

// depends says which jobs one waits for.
func (f Facts) depends(s Standing) Standing {
	if len(f.Open) == 0 {
		s.Constraint, s.Message = KeptDue, "the jobs that it depends on have ended, and no dispatcher has queued it yet"
		s.Change = "the dispatcher does so at once; penstock serve runs one"
		return s
	}
	on := f.Open[0]
	s.Constraint, s.Message = KeptDepends, fmt.Sprintf("it begins when job %s has succeeded, which is %s", on.ID, on.State)
	if rest := len(f.Open) - 1; rest > 0 {
		s.Message += fmt.Sprintf(", and %d more", rest)
	}
	s.Change = "the end of that job; penstock why " + on.ID + " says what keeps it"
	return s
}

func (f Facts) delayed(s Standing) Standing {
	r := f.Record
	s.Until = r.NotBefore
	switch {
	case r.NotBefore == nil || !f.Now.Before(*r.NotBefore):
		s.Constraint, s.Message = KeptDue, "its time has come, and it is not in its queue yet"
		s.Change = "the dispatcher puts it there at once; penstock serve runs one"
	case r.Attempt == 0:
		s.Constraint, s.Message, s.Change = KeptRunAt, "it was submitted to run at "+clock(*r.NotBefore), "that time"
	case r.Reason == jobs.BudgetParked:
		s.Constraint, s.Until = KeptBudget, nil // by then it is only looked at again
		s.Message = fmt.Sprintf("attempt %d ended (%s: %s); it goes on when its budget is larger", r.Attempt, r.Reason, r.Message)
		s.Change = jobs.Reasons[r.Reason].Advice
	default:
		s.Constraint = KeptBackOff
		if r.Reason == jobs.BudgetWaiting {
			s.Constraint = KeptBudget
		}
		s.Message = fmt.Sprintf("attempt %d ended (%s: %s); the next begins at %s", r.Attempt, r.Reason, r.Message, clock(*r.NotBefore))
		s.Change = "that time"
		if cause, ok := jobs.Reasons[r.Reason]; ok {
			s.Change += "; so that it ends better: " + cause.Advice
		}
	}
	return s
}

func (f Facts) pending(s Standing) Standing {
	switch {
	case f.Batch != nil:
		return f.batchPaused(s)
	case f.Queue != nil:
		s.Constraint, s.Until = KeptQueuePaused, f.Queue.Until
		s.Message, s.Change = "queue "+f.Record.Queue+" is paused"+f.Queue.words(), "penstock queue resume "+f.Record.Queue
		return s
	case f.Stranded:
		s.Constraint, s.Message = KeptDue, "it is pending, and is not in its queue yet"
		s.Change = "a dispatcher puts it there; penstock serve runs one"
		return s
	}
	for _, c := range f.Caps {
		if c.Running+c.Before >= c.Most {
			return c.full(s)
		}
	}
	return f.unclaimed(s)
}

func (c Cap) full(s Standing) Standing {
	s.Constraint, s.Message = KeptCap, fmt.Sprintf("cap %s lets %d run at once, and %d do", c.Key, c.Most, c.Running)
	if c.Running < c.Most {
		s.Message += fmt.Sprintf("; %d more that it counts may come first", c.Before)
	}
	s.Change = "the end of one of them, or a higher cap: penstock serve --cap " + c.Key + "=N"
	return s
}

func (f Facts) batchPaused(s Standing) Standing {
	s.Constraint, s.Until = KeptBatchPaused, f.Batch.Until
	s.Message, s.Change = "batch "+f.Record.Batch+" is paused"+f.Batch.words(), "penstock batch resume "+f.Record.Batch
	return s
}

// unclaimed says why no worker has claimed a job that can be claimed.
func (f Facts) unclaimed(s Standing) Standing {
	r := f.Record
	serving, able, open, closed, turn := 0, 0, 0, "", 0
	lacks := r.Needs // as few as any worker lacks
	for _, w := range f.Workers {
		if !slices.Contains(w.Queues, r.Queue) {
			continue
		}
		serving++
		if less := w.lacks(r); len(less) > 0 {
			if len(less) < len(lacks) {
				lacks = less
			}
			continue
		}
		able++
		closed = cmp.Or(closed, w.Name+": "+w.Closed)
		if w.Closed == "" {
			open++
			free := max(0, w.Slots-w.Busy)
			s.Slots += w.Slots
			s.Free += free
			turn += turns(free)
		}
	}
	s.Position = f.Ahead + 1
	rivals := f.Rivals + min(f.Below, turn)
	switch {
	case len(f.Workers) == 0:
		s.Constraint, s.Message, s.Change = KeptNoWorker, "no worker is alive", "start one: penstock worker, or penstock serve --slots 2"
	case serving == 0:
		s.Constraint, s.Message = KeptNoQueue, fmt.Sprintf("none of the %d workers that are alive serves queue %s", len(f.Workers), r.Queue)
		s.Change = "start one that does: penstock worker --queues " + r.Queue
	case able == 0:
		s.Constraint, s.Message = KeptNeeds, fmt.Sprintf("it needs %s; of the %d workers that serve queue %s the nearest lacks %s",
			strings.Join(r.Needs, " and "), serving, r.Queue, strings.Join(lacks, " and "))
		s.Change = changeLabels(r, lacks)
	case open == 0:
		s.Constraint, s.Message = KeptClosed, fmt.Sprintf("none of the %d workers that serve it claims anything now (%s)", able, closed)
		s.Change = "fix that, or start another worker"
	case s.Free < s.Position+rivals:
		s.Constraint = KeptSlots
		s.Message = fmt.Sprintf("it is number %d of queue %s, and %d of the %d slots that serve it are free", s.Position, r.Queue, s.Free, s.Slots)
		if rivals > 0 {
			s.Message += fmt.Sprintf("; %d jobs of other queues, with other needs or of less priority may take them", rivals)
		}
		s.Change = "its turn comes when jobs end; more workers or slots, or a higher priority, make it come sooner"
	default:
		s.Constraint, s.Message, s.Change = KeptByNothing, "a worker is about to claim it", "a moment"
	}
	return s
}

// changeLabels says how a worker comes to the labels that a job needs. The nearest of the
// workers lacks some of them.
func changeLabels(r jobs.Record, lacks []string) string {
	installed := ""
	if r.AgentVersion != "" {
		installed = jobs.VersionLabel(r.Agent, r.AgentVersion)
	}
	if len(lacks) == 1 && lacks[0] == installed {
		return fmt.Sprintf("install it on the host of a worker: penstock agent install %s@%s", r.Agent, r.AgentVersion)
	}
	own := slices.DeleteFunc(slices.Clone(r.Needs), func(need string) bool { return need == installed })
	change := "start a worker that has it: penstock worker --labels " + strings.Join(own, ",")
	if installed != "" {
		change += fmt.Sprintf(", where penstock agent install %s@%s was run", r.Agent, r.AgentVersion)
	}
	return change
}

func (p Pause) words() string {
	text := " since " + clock(p.At)
	if p.By != "" {
		text = " by " + p.By + text
	}
	if p.Until != nil {
		text += ", until " + clock(*p.Until)
	}
	return text
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
