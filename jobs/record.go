package jobs

import "time"

// RecordSchema is the version of [Record] that this program writes. Readers
// keep what they do not know out of their way and never lower it.
const RecordSchema = 1

// A Record is what the pool knows about a job: its state, and while it runs
// its lease. It lives under one key; its revision there fences every writer.
type Record struct {
	Schema  int    `json:"schema"`
	ID      string `json:"id"`
	Session string `json:"session"`
	Class   string `json:"class"`
	Lane    string `json:"lane"`
	Tenant  string `json:"tenant"`

	Key       string            `json:"key,omitempty"`
	Batch     string            `json:"batch,omitempty"`
	Item      string            `json:"item,omitempty"`
	Queue     string            `json:"queue"`
	Priority  Priority          `json:"priority"`
	Labels    map[string]string `json:"labels,omitempty"`
	Title     string            `json:"title,omitempty"`
	Agent     string            `json:"agent"`
	Isolation Isolation         `json:"isolation"`
	Repo      string            `json:"repo,omitempty"`

	State State `json:"state"`
	// Attempt is how many attempts have begun; Counted how many of those
	// were the job's doing, Lost how many the pool lost.
	Attempt     int `json:"attempt"`
	Counted     int `json:"counted"`
	Lost        int `json:"lost"`
	MaxAttempts int `json:"max_attempts"`

	// Worker and Beat are the lease: Beat grows with each heartbeat. Epoch is
	// the revision that the claim wrote; it names the attempt's artifacts.
	Worker string `json:"worker,omitempty"`
	Beat   uint64 `json:"beat,omitempty"`
	Epoch  uint64 `json:"epoch,omitempty"`
	// Cancel is set while somebody wants the job to end.
	Cancel *Cancel `json:"cancel,omitempty"`
	// NotBefore is when a delayed job becomes pending.
	NotBefore *time.Time `json:"not_before,omitempty"`

	Outcome Outcome `json:"outcome,omitempty"`
	Reason  Reason  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`

	Submitted time.Time  `json:"submitted"`
	Started   *time.Time `json:"started,omitempty"` // first claim
	Claimed   *time.Time `json:"claimed,omitempty"` // last claim
	Finished  *time.Time `json:"finished,omitempty"`
}

// A Cancel says who asked for a job to end, and when.
type Cancel struct {
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
}

// NewRecord returns the record of a job that was just accepted.
func NewRecord(id, tenant string, job Job, now time.Time) Record {
	r := Record{
		Schema: RecordSchema, ID: id, Session: job.Session, Tenant: tenant,
		Class: job.Queue, Lane: job.Priority.Lane(),
		Key: job.Key, Batch: job.Batch, Item: job.ItemID(id), Queue: job.Queue, Priority: job.Priority,
		Labels: job.Labels, Title: job.Title(), Agent: job.Agent.Name, Isolation: job.Isolation, Repo: job.Repo.URL,
		State: Pending, MaxAttempts: job.Retry.MaxAttempts, Submitted: now.UTC(),
	}
	if r.Session == "" {
		r.Session = id
	}
	if job.RunAt != nil && job.RunAt.After(now) {
		at := job.RunAt.UTC()
		r.State, r.NotBefore = Delayed, &at
	}
	return r
}

// Lane is the lane of a priority: "p0" is served before "p1" before "p2".
func (p Priority) Lane() string {
	switch p {
	case High:
		return "p0"
	case Low:
		return "p2"
	default:
		return "p1"
	}
}

// Ended says how an attempt ended: what is decided, and why.
type Ended struct {
	Outcome Outcome
	Reason  Reason
	Message string
}

// After returns the record as it stands once its attempt has ended so, and
// whether the job has finished. It is the one place where a retry is decided:
// a reason that allows it, and an attempt left. A job that somebody wants to
// end is cancelled, however the attempt ended, unless it had succeeded.
func (r Record) After(end Ended, now time.Time) (Record, bool) {
	if r.Cancel != nil && end.Outcome != Success {
		end.Outcome, end.Reason = Cancellation, Cancelled
	}
	cause := Reasons[end.Reason]
	r.Worker, r.Beat, r.NotBefore = "", 0, nil
	r.Outcome, r.Reason, r.Message = end.Outcome, end.Reason, oneLine(end.Message, 2000)
	if end.Outcome != Success {
		if cause.Counts {
			r.Counted++
		} else {
			r.Lost++
		}
	}
	if cause.Retry && r.Counted < r.MaxAttempts && r.Lost < MaxLost {
		r.State, r.Outcome = Pending, ""
		if wait := r.backoff(end.Reason); wait > 0 {
			at := now.Add(wait).UTC()
			r.State, r.NotBefore = Delayed, &at
		}
		return r, false
	}
	at := now.UTC()
	r.State, r.Finished = Finished, &at
	return r, true
}

// backoff is how long a job waits before its next attempt. What a shutdown or
// a death interrupted waits for nothing: somebody else can take it at once.
func (r Record) backoff(why Reason) time.Duration {
	switch why {
	case WorkerLost, WorkerDrained, LeaseLost:
		return 0
	}
	wait := 2 * time.Second << min(r.Counted+r.Lost-1, 8)
	// A quarter of jitter, taken from the id: many jobs that failed together
	// must not come back together, and a repair must compute the same time.
	spread := time.Duration(r.ID[len(r.ID)-1]%16) * wait / 64
	return min(wait, 5*time.Minute) + spread
}

// Result returns what the record alone says of a finished job: all there is
// of one that never ran, and the frame of one that did.
func (r Record) Result() Result {
	res := Result{
		ID: r.Item, Job: r.ID, Session: r.Session, Key: r.Key,
		Outcome: r.Outcome, Reason: r.Reason, Message: r.Message, Attempts: r.Attempt,
		Isolation: r.Isolation, Worker: r.Worker,
		Checks: []Check{}, Weaker: []string{}, Artifacts: []Artifact{},
	}
	if res.ID == "" {
		res.ID = r.ID
	}
	if r.Finished != nil {
		begun := *r.Finished
		if r.Started != nil {
			begun = *r.Started
		}
		res.Durations.Queue = max(0, begun.Sub(r.Submitted).Seconds())
		res.Durations.Total = max(0, r.Finished.Sub(r.Submitted).Seconds())
	}
	return res
}

// Judged returns the result as the record judges it. The record is what was
// agreed on; a result is written before that, and somebody may have cancelled
// the job in between.
func (r Record) Judged(res Result) Result {
	res.Outcome, res.Reason, res.Message, res.Attempts = r.Outcome, r.Reason, r.Message, r.Attempt
	if r.Finished != nil {
		res.Durations.Total = max(0, r.Finished.Sub(r.Submitted).Seconds())
	}
	return res
}
