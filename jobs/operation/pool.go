package operation

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// Operations on batches, queues, workers and dead letters.
var (
	BatchList = define[PageRequest, BatchPage](Row{
		Name: "batch-list", Roles: readers, Sentence: "List the batches that the pool has jobs of, the oldest first.",
	})
	BatchGet = define[Named, Batch](Row{
		Name: "batch-get", Roles: readers, Sentence: "Count the jobs of a batch, by state and by outcome.",
	})
	BatchReport = define[Named, report.Report](Row{
		Name: "batch-report", Roles: readers,
		Sentence: "Report what the jobs of a batch came to: outcomes and reasons, cost, times, and where their patches meet.",
	})
	BatchCancel = define[Named, CancelledBatch](Row{
		Name: "batch-cancel", Changes: true,
		Sentence: "End jobs of a batch, and those that it still submits. Repeat the request while the answer has more.",
	})
	BatchPause = define[PauseRequest, jobs.Hold](Row{
		Name: "batch-pause", Changes: true, Sentence: "Begin no more jobs of a batch; what runs goes on.",
	})
	BatchResume = define[Named, HoldList](Row{
		Name: "batch-resume", Changes: true, Sentence: "Let the jobs of a paused batch begin again; returns the pauses that are left.",
	})
	QueueList = define[PageRequest, QueuePage](Row{
		Name: "queue-list", Roles: []jobs.Role{jobs.RoleViewer, jobs.RoleAutoscale}, Sentence: "List the queues, with their jobs, and which are paused.",
	})
	Stats = define[StatsRequest, PoolStats](Row{
		Name: "stats", Roles: []jobs.Role{jobs.RoleViewer, jobs.RoleAutoscale},
		Sentence: "Count the jobs of the pool and of each queue: those it holds now, and over a window those that ended, how, after which waits and runs, and at which cost.",
	})
	QueuePause = define[PauseRequest, jobs.Hold](Row{
		Name: "queue-pause", Changes: true, Sentence: "Begin no more jobs of a queue; what runs goes on.",
	})
	QueueResume = define[Named, HoldList](Row{
		Name: "queue-resume", Changes: true, Sentence: "Let the jobs of a paused queue begin again; returns the pauses that are left.",
	})
	Holds = define[Nothing, HoldList](Row{
		Name: "holds", Roles: readers, Sentence: "List the pauses in force, of queues and of batches.",
	})
	Caps = define[Nothing, CapList](Row{
		Name: "caps", Roles: readers, Sentence: "List what bounds how many jobs run at once, and how many do.",
	})
	Budgets = define[BudgetRequest, BudgetList](Row{
		Name: "budgets", Roles: readers, Sentence: "List what jobs with something in common may spend together, what they have spent, and what is left.",
	})
	Workers = define[Nothing, WorkerList](Row{
		Name: "workers", Roles: readers, Sentence: "List the workers that are alive.",
	})
	WorkerGet = define[Named, why.Worker](Row{
		Name: "worker-get", Roles: readers, Sentence: "Return a worker that is alive.",
	})
	WorkerDrain = define[Named, why.Worker](Row{
		Name: "worker-drain", Changes: true,
		Sentence: "Have a worker claim no more jobs; what runs goes on. It does so within seconds, and then says so in drain. When its process ends, so does the drain.",
	})
	WorkerResume = define[Named, why.Worker](Row{
		Name: "worker-resume", Changes: true, Sentence: "Let a worker that drains claim jobs again. It does so within seconds.",
	})
	DeadList = define[DeadRequest, DeadPage](Row{
		Name: "dead-list", Roles: readers, Sentence: "List dead letters, the oldest first: jobs given up, refused submissions, strange messages.",
	})
	DeadGet = define[DeadShowRequest, DeadShown](Row{
		Name: "dead-get", Roles: readers, Sentence: "Return a dead letter with what is still there of its job.",
	})
	DeadRetry = define[DeadRetryRequest, DeadDone](Row{
		Name: "dead-retry", Changes: true, Sentence: "Run a dead job again, or submit a refused submission again.",
	})
	DeadDrop = define[Ref, DeadDone](Row{
		Name: "dead-drop", Changes: true, Sentence: "Remove a dead letter; its job stays as it is.",
	})
)

// Nothing is the request that has no fields.
type Nothing struct{}

func (Nothing) check() error { return nil }

// A PageRequest asks for a part of a list: what comes behind a name.
type PageRequest struct {
	After string `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit int    `json:"limit,omitempty" jsonschema:"How many entries of the list are wanted, at most 1000, which is the default."`
}

func (r PageRequest) check() error { return checkLimit(r.Limit) }

// Named is the request about, or the answer with, one thing that has a name.
type Named struct {
	Name string `json:"name" jsonschema:"The name of the batch, the queue, the schedule, the token, the webhook or the worker."`
}

func (r Named) check() error {
	if r.Name == "" {
		return invalid("name", `is missing: the request is {"name": "…"}`)
	}
	return nil
}

// A Batch is what the pool knows of a batch.
type Batch struct {
	Batch     string               `json:"batch" jsonschema:"Its name."`
	Jobs      int                  `json:"jobs" jsonschema:"How many jobs the pool has of it."`
	States    map[jobs.State]int   `json:"states" jsonschema:"How many of them are in each state."`
	Outcomes  map[jobs.Outcome]int `json:"outcomes" jsonschema:"How many have ended with each outcome."`
	Submitted time.Time            `json:"submitted" jsonschema:"When the first of them was submitted."` // the first of its jobs
	Paused    *jobs.Hold           `json:"paused,omitempty" jsonschema:"The pause of the batch, if it is paused."`
}

// A BatchPage is a page of batches.
type BatchPage struct {
	Batches []Batch `json:"batches" jsonschema:"The batches."`
	Next    string  `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}

// CancelledBatch are the jobs that one request has cancelled.
type CancelledBatch struct {
	Jobs []jobs.Record `json:"jobs" jsonschema:"The jobs that this request has cancelled."`
	More bool          `json:"more" jsonschema:"Jobs of the batch are left: repeat the request."` // jobs of the batch are left
}

// A PauseRequest says what to pause, and until when; without Until that is when
// it is resumed. Force pauses also what the pool has nothing of yet.
type PauseRequest struct {
	Name  string     `json:"name" jsonschema:"The name of the batch or the queue."`
	Until *time.Time `json:"until,omitempty" jsonschema:"When the pause ends by itself."`
	Force bool       `json:"force,omitempty" jsonschema:"Pause also what the pool has nothing of yet."`
}

func (r PauseRequest) check() error { return Named{r.Name}.check() }

// A HoldList has the pauses that are in force.
type HoldList struct {
	Holds []jobs.Hold `json:"holds" jsonschema:"The pauses."`
}

// A Queue is what a queue holds now.
type Queue struct {
	Queue         string     `json:"queue" jsonschema:"Its name."`
	Pending       int        `json:"pending" jsonschema:"Jobs that wait for a worker."`
	Delayed       int        `json:"delayed" jsonschema:"Jobs that wait for a time."`
	QuotaWaiting  int        `json:"quota_waiting,omitempty" jsonschema:"Delayed jobs that wait for the limits of a model API."`
	KeyRefused    int        `json:"key_refused,omitempty" jsonschema:"Delayed jobs that wait until a model API accepts the key."`
	BudgetWaiting int        `json:"budget_waiting,omitempty" jsonschema:"Delayed jobs that wait for the next period of a budget that they share."`
	BudgetParked  int        `json:"budget_parked,omitempty" jsonschema:"Delayed jobs that wait for a larger budget of their own."`
	Executing     int        `json:"executing" jsonschema:"Jobs that a worker holds."`
	Waiting       int        `json:"waiting" jsonschema:"Jobs that wait for a person, other jobs or the end of a pause."`
	Finished      int        `json:"finished" jsonschema:"Jobs that have finished and are still kept."`
	Cap           int        `json:"cap,omitempty" jsonschema:"How many may run at once, if the queue has a limit of its own."` // how many may run at once; 0 is no limit of the queue's own
	Quota         int        `json:"quota,omitempty" jsonschema:"How many jobs may be open, if the queue has a quota."`
	QuotaBytes    jobs.Bytes `json:"quota_bytes,omitempty" jsonschema:"How much may be stored of its jobs, if the queue has a quota of that."`
	Oldest        *time.Time `json:"oldest_pending,omitempty" jsonschema:"When the oldest pending job was submitted."`
	Paused        *jobs.Hold `json:"paused,omitempty" jsonschema:"The pause of the queue, if it is paused."`
}

// A QueuePage is a page of queues.
type QueuePage struct {
	Queues []Queue `json:"queues" jsonschema:"The queues."`
	Next   string  `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}

// A CapList has the caps of the pool.
type CapList struct {
	Caps []schedule.CapUse `json:"caps" jsonschema:"The caps."`
}

// A WorkerList has the workers that are alive.
type WorkerList struct {
	Workers []why.Worker `json:"workers" jsonschema:"The workers."`
}

// A DeadRequest selects dead letters. Empty fields select all.
type DeadRequest struct {
	Kind   jobs.Letter   `json:"kind,omitempty" jsonschema:"Of this kind."`
	Queue  string        `json:"queue,omitempty" jsonschema:"Of this queue."`
	Batch  string        `json:"batch,omitempty" jsonschema:"Of this batch."`
	Reason jobs.Reason   `json:"reason,omitempty" jsonschema:"Of jobs that ended for this reason."`
	Older  jobs.Duration `json:"older_than,omitempty" jsonschema:"Dead for at least so long."` // dead for at least so long
	After  string        `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit  int           `json:"limit,omitempty" jsonschema:"How many entries of the list are wanted, at most 1000, which is the default."`
}

func (r DeadRequest) check() error { return checkLimit(r.Limit) }

// Selects reports whether the request is for this dead letter.
func (r DeadRequest) Selects(l jobs.DeadLetter) bool {
	return (r.Kind == "" || l.Kind == r.Kind) && (r.Queue == "" || l.Record.Queue == r.Queue) &&
		(r.Batch == "" || l.Record.Batch == r.Batch) && (r.Reason == "" || l.Record.Reason == r.Reason) &&
		time.Since(l.At) >= time.Duration(r.Older)
}

// A DeadPage is a page of dead letters.
type DeadPage struct {
	Letters []jobs.DeadLetter `json:"letters" jsonschema:"The dead letters."`
	Next    string            `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}

// A DeadShowRequest names a dead letter, and how many of its job's last events
// are wanted.
type DeadShowRequest struct {
	ID     string `json:"id" jsonschema:"The dead letter's id, or its beginning."`
	Events int    `json:"events,omitempty" jsonschema:"How many of the job's last events are wanted."`
}

func (r DeadShowRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// DeadShown is a dead letter with what is still there of its job.
type DeadShown struct {
	jobs.DeadLetter
	Cause  *jobs.Cause  `json:"cause,omitempty" jsonschema:"What the reason means."`
	Job    *jobs.Job    `json:"job,omitempty" jsonschema:"The job as it was submitted, if it is still kept."`
	Events []jobs.Event `json:"events,omitempty" jsonschema:"The last events of the job."`
}

// A DeadRetryRequest names a dead letter to bring back.
type DeadRetryRequest struct {
	ID          string `json:"id" jsonschema:"The dead letter's id, or its beginning."`
	FromSalvage bool   `json:"from_salvage,omitempty" jsonschema:"Begin from what was saved of an earlier attempt."`
}

func (r DeadRetryRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// DeadDone is what became of a dead letter.
type DeadDone struct {
	ID    string      `json:"id" jsonschema:"The dead letter's id."`
	Kind  jobs.Letter `json:"kind" jsonschema:"What it was of."`
	Did   string      `json:"did" jsonschema:"retried, submitted, dropped or nothing."` // retried, submitted, dropped, nothing
	Job   string      `json:"job,omitempty" jsonschema:"The job that came of it."`
	Error string      `json:"error,omitempty" jsonschema:"Why nothing could be done."`
}
