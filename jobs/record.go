package jobs

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

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

	Key      string            `json:"key,omitempty"`
	Batch    string            `json:"batch,omitempty"`
	Item     string            `json:"item,omitempty"`
	Parent   string            `json:"parent,omitempty"` // the job on whose behalf it was submitted
	Queue    string            `json:"queue"`
	Priority Priority          `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	Needs    []string          `json:"needs,omitempty"` // labels that a worker must have
	Title    string            `json:"title,omitempty"`
	Agent    string            `json:"agent"`
	// AgentVersion is the version of the agent that the job names; empty: any.
	AgentVersion string    `json:"agent_version,omitempty"`
	Isolation    Isolation `json:"isolation"`
	Repo         string    `json:"repo,omitempty"`
	Source       string    `json:"source,omitempty"` // the door that it came through: cli, nats, schedule or batch
	// Trace is the job's, or the one that it has begun; see [Record.Submission].
	Trace Trace `json:"trace,omitzero"`

	State State `json:"state"`
	// Attempt is how many attempts have begun; Counted how many of those
	// were the job's doing, Lost how many the pool lost, Deaths and
	// HostFailures how many of those by the death of a worker or by a host. Deaths
	// are counted anew when an attempt has answered one more prompt.
	Attempt      int `json:"attempt"`
	Counted      int `json:"counted"`
	Lost         int `json:"lost"`
	Deaths       int `json:"deaths,omitempty"`
	HostFailures int `json:"host_failures,omitempty"`
	MaxAttempts  int `json:"max_attempts"`
	// Refusals is how many of those that were lost the model's provider refused
	// for one reason; see [Bounds].
	Refusals map[Reason]int `json:"refusals,omitempty"`

	// Worker, Beat and Lease are the lease: Beat grows with each heartbeat, and
	// the worker holds the job for Lease after each. Epoch is the revision that
	// the claim wrote; it names the attempt's artifacts.
	Worker string   `json:"worker,omitempty"`
	Beat   uint64   `json:"beat,omitempty"`
	Lease  Duration `json:"lease,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
	// Asks is the question that the agent of a job that runs waits with; nil: none.
	Asks *OpenAsk `json:"asks,omitempty"`
	// LastAttempt is what the last attempt has used, as of its last heartbeat or
	// its end, and SpentBefore what those before it have. A job that is brought
	// back goes on counting: its attempts have been paid for.
	LastAttempt Spent `json:"last_attempt,omitzero"`
	SpentBefore Spent `json:"spent_before,omitzero"`
	// Stored is how many bytes the pool stores of the job: its specification, and what its
	// attempts have written as of the last heartbeat or their end. It stays when some of that is
	// removed sooner than the record.
	Stored int64 `json:"stored_bytes,omitempty"`
	// Raised replaces the job's own budget, as far as it is not zero: the job was resumed with
	// more.
	Raised Allowance `json:"raised,omitzero"`
	// FromSalvage: attempts begin from what was last saved of an earlier one.
	FromSalvage bool `json:"from_salvage,omitempty"`
	// Since is the epoch of the last attempt before the job was started over:
	// no later attempt continues from that one or an earlier one.
	Since uint64 `json:"since,omitempty"`
	// Resume is the epoch whose capsule the job was brought back to go on with,
	// however that attempt had ended. No attempt begins from less.
	Resume uint64 `json:"resume,omitempty"`
	// Hold says what keeps a waiting job: "batch" while its batch is paused,
	// "depends_on" until the jobs in DependsOn have succeeded, "question" until
	// its agent's question is answered.
	Hold      string   `json:"hold,omitempty"`
	DependsOn []string `json:"depends_on,omitempty"`
	// Cancel is set once a cancellation was requested.
	Cancel *Cancel `json:"cancel,omitempty"`
	// NotBefore is when a delayed job becomes pending, and a parked one that
	// has no answer by then.
	NotBefore *time.Time `json:"not_before,omitempty"`

	Outcome Outcome `json:"outcome,omitempty"`
	Reason  Reason  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	// PullRequest is the one that the job asks for; nil: it asks for none.
	PullRequest *PullRequest `json:"pull_request,omitempty"`
	// Purging: what is kept of the finished job is being removed, and nothing brings it back.
	Purging bool `json:"purging,omitempty"`
	// Review is what a person has decided about the result; see [Record.Reviewed].
	Review *Review `json:"review,omitempty"`

	Submitted time.Time  `json:"submitted"`
	Started   *time.Time `json:"started,omitempty"` // first claim
	Claimed   *time.Time `json:"claimed,omitempty"` // last claim
	Finished  *time.Time `json:"finished,omitempty"`
}

// An OpenAsk is the oldest question of an agent that waits for an answer.
type OpenAsk struct {
	Ask      string    `json:"ask"`
	Type     string    `json:"type"` // question permission
	Question string    `json:"question"`
	Since    time.Time `json:"since"`
	Open     int       `json:"open"` // questions, with this one
}

// What holds a job that waits for others, and one that waits for an answer.
const (
	holdDepends  = "depends_on"
	holdQuestion = "question"
)

// Dependent reports whether the job waits for others.
func (r Record) Dependent() bool { return r.State == Waiting && r.Hold == holdDepends }

// Asking reports whether the job is parked until its agent's question is answered.
func (r Record) Asking() bool { return r.State == Waiting && r.Hold == holdQuestion }

// Parked returns the record of a job whose attempt has ended with a question
// that is open until a time. It charges nothing, because the job has not failed.
func (r Record) Parked(question string, until time.Time) Record {
	until = until.UTC()
	r.State, r.Hold, r.NotBefore, r.Message = Waiting, holdQuestion, &until, oneLine(question, 2000)
	r.Worker, r.Beat, r.Lease, r.Asks = "", 0, 0, nil
	return r
}

// OnBudget reports whether a job is parked because a budget is spent: its own, or one that
// it shares.
func OnBudget(r Record) bool {
	return r.State == Delayed && (r.Reason == BudgetParked || r.Reason == BudgetWaiting)
}

// Woken returns the record of a parked job that may go on.
func (r Record) Woken() Record {
	r.State, r.Hold, r.NotBefore, r.Message = Pending, "", nil, ""
	return r
}

// held returns the record of a job that begins as it waits for others, where
// there are such.
func (r Record) held() Record {
	if len(r.DependsOn) > 0 {
		r.State, r.Hold = Waiting, holdDepends
	}
	return r
}

// Afresh returns the record of a finished job that is to run again, with all
// its attempts before it. What is numbered goes on: attempts are never counted
// twice. What the jobs are that it depends on is looked at again.
func (r Record) Afresh() Record {
	r.Since, r.Resume = r.Epoch, 0
	return r.again().held()
}

// Allowed returns the job with the budget that holds for it now. That of a signed job is a
// part of what was signed.
func (r Record) Allowed(j Job) Job {
	if j.Signature == nil {
		j.Budget.USD = cmp.Or(r.Raised.USD, j.Budget.USD)
		j.Budget.Tokens = cmp.Or(r.Raised.Tokens, j.Budget.Tokens)
	}
	return j
}

// Resumed returns the record of a finished job that is to go on with the
// conversation in the capsule of an epoch, with all its attempts before it. The
// jobs that it depends on had let it begin once.
func (r Record) Resumed(epoch uint64) Record {
	r.Resume, r.FromSalvage = epoch, false
	return r.again()
}

func (r Record) again() Record {
	r.State, r.Hold = Pending, ""
	r.Counted, r.Lost, r.Deaths, r.HostFailures, r.Refusals = 0, 0, 0, 0, nil
	r.Outcome, r.Reason, r.Message = "", "", ""
	r.Cancel, r.Finished, r.NotBefore, r.Review = nil, nil, nil, nil
	return r
}

// Released returns the record of a job that nothing holds any more: it may
// begin, or its time has not come yet.
func (r Record) Released(now time.Time) Record {
	r.State, r.Hold = Pending, ""
	if r.NotBefore != nil && r.NotBefore.After(now) {
		r.State = Delayed
	} else {
		r.NotBefore = nil
	}
	return r
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
		Class: job.class(), Lane: job.Priority.Lane(),
		Key: job.Key, Batch: job.Batch, Item: job.ItemID(id), Parent: job.Parent, Queue: job.Queue, Priority: job.Priority,
		Labels: job.Labels, Needs: job.needed(), Title: job.Title(), Agent: job.Agent.Name, AgentVersion: job.Agent.Version, Isolation: job.Isolation, Repo: WithoutCredentials(job.Repo.URL),
		Trace: job.Trace, State: Pending, MaxAttempts: job.Retry.MaxAttempts, Submitted: now.UTC(),
	}
	if r.Session == "" {
		r.Session = id
	}
	if r.Trace == (Trace{}) {
		r.Trace = RootTrace(id)
	}
	if job.RunAt != nil && job.RunAt.After(now) {
		at := job.RunAt.UTC()
		r.State, r.NotBefore = Delayed, &at
	}
	if job.Deliver.Mode == DeliverPR {
		r.PullRequest = &PullRequest{State: PullWanted}
	}
	r.DependsOn = job.DependsOn
	return r.held()
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
	Outcome Outcome `jsonschema:"How it ended."`
	Reason  Reason  `jsonschema:"Why."`
	Message string  `jsonschema:"What happened, for people."`
	// Wait is how long the model's provider asked to wait before another
	// attempt; zero: it did not.
	Wait time.Duration `jsonschema:"How long the provider of the model asked to wait, in nanoseconds."`
}

// Bounds are those of attempts that an operator sets. The zero value has the
// defaults.
type Bounds struct {
	// Refusals is how often a job may be lost to one reason that is the model's
	// provider's: a limit of its rate, an API that is down. Default:
	// [DefaultRefusals].
	Refusals int
}

// After is [Bounds.After] with the defaults.
func (r Record) After(end Ended, now time.Time) (Record, bool) { return Bounds{}.After(r, end, now) }

// After returns the record as it stands once its attempt has ended with end, and
// whether the job has finished. It is the one place that decides on a retry: the
// reason must allow it, and an attempt must be left. A job with a requested
// cancellation is cancelled, however the attempt ended, unless it had succeeded.
func (b Bounds) After(r Record, end Ended, now time.Time) (Record, bool) {
	if r.Cancel != nil && end.Outcome != Success {
		end.Outcome, end.Reason = Cancellation, Cancelled
	}
	cause := Reasons[end.Reason]
	if end.Outcome != Success && r.State == Executing { // what never began used nothing up
		r = r.charged(end.Reason)
	}
	bound := r.usedUp()
	if most := cmp.Or(b.Refusals, DefaultRefusals); bound == "" && r.Refusals[end.Reason] >= most {
		bound = fmt.Sprintf("given up after %d attempts that ended so (max_refusals)", most)
	}
	if cause.Retry != Never && bound != "" {
		end.Message += "; " + bound
	}
	r.Worker, r.Beat, r.Lease, r.NotBefore, r.Asks = "", 0, 0, nil, nil
	r.Outcome, r.Reason, r.Message = end.Outcome, end.Reason, oneLine(end.Message, 2000)
	if end.Outcome != Success && cause.Retry != Never && bound == "" {
		r.State, r.Outcome = Pending, ""
		if wait := r.waits(end); wait > 0 {
			at := now.Add(wait).UTC()
			r.State, r.NotBefore = Delayed, &at
		}
		return r, false
	}
	at := now.UTC()
	r.State, r.Finished = Finished, &at
	return r, true
}

// waits is how long the job waits: as the provider asked, to the second, but no
// longer than [MaxRetryAfter], else for a back-off.
func (r Record) waits(end Ended) time.Duration {
	if end.Wait > 0 {
		return min(end.Wait, MaxRetryAfter)
	}
	return r.Backoff()
}

func (r Record) charged(reason Reason) Record {
	cause := Reasons[reason]
	if cause.Charge == ChargeLoss && cause.Fault == FaultProvider {
		r.Refusals = maps.Clone(r.Refusals)
		if r.Refusals == nil {
			r.Refusals = map[Reason]int{}
		}
		r.Refusals[reason]++
	}
	switch cause.Charge {
	case ChargeAttempt:
		r.Counted++
	case ChargeDeath:
		r.Deaths++
		r.Lost++
	case ChargeHost:
		r.HostFailures++
		r.Lost++
	case ChargeLoss:
		r.Lost++
	}
	return r
}

// usedUp says in words that no attempt is left, or nothing where one is.
func (r Record) usedUp() string {
	switch {
	case r.Counted >= r.MaxAttempts:
		return fmt.Sprintf("no attempt is left of %d", r.MaxAttempts)
	case r.Deaths >= MaxDeaths:
		return fmt.Sprintf("given up, because %d workers died under this job", r.Deaths)
	case r.HostFailures >= MaxHostFailures:
		return fmt.Sprintf("given up after %d failures of hosts", r.HostFailures)
	case r.Lost >= MaxLost:
		return fmt.Sprintf("given up after %d attempts that the pool lost", r.Lost)
	}
	return ""
}

// Backoff is how long a job waits before its next attempt, once the last one
// has ended for r.Reason: 2 s, doubled each time up to 5 min, and up to a
// quarter more. A job that another worker can take over waits for nothing, unless
// workers keep dying under it.
func (r Record) Backoff() time.Duration {
	cause, before := Reasons[r.Reason], r.Counted
	switch {
	case cause.Retry == AtOnce && r.Deaths < 2:
		return 0
	case cause.Retry == AtOnce: // how often it was handed on says nothing of it
		before = r.Deaths - 1
	case cause.Charge == ChargeHost:
		before = r.HostFailures
	case cause.Charge == ChargeLoss:
		before = r.Lost - r.Deaths - r.HostFailures
	}
	wait := min(2*time.Second<<min(max(before-1, 0), 8), 5*time.Minute)
	// Many jobs that failed together must not come back together. The spread
	// is made of the attempt, so that a test can tell it from an accident.
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%s %d", r.ID, r.Attempt)
	return wait + time.Duration(sum.Sum32()%1000)*wait/4000
}

// PutOff is how long a delayed job whose record was written at a time waits at most, whatever the broker's clock is set to
// since then: as long as the provider or a budget has named, for reasons of which they do, else for a back-off.
func (r Record) PutOff(written time.Time) time.Duration {
	if named := []Reason{QuotaWaiting, KeyRefused, BudgetWaiting, BudgetParked, RateLimited}; r.NotBefore == nil || !slices.Contains(named, r.Reason) {
		return r.Backoff()
	}
	return min(max(r.NotBefore.Sub(written), r.Backoff()), MaxRetryAfter)
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
	res.Spend(r.SpentBefore, r.LastAttempt)
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

// Judged returns the result with the outcome of the record. The record is
// authoritative: a result is written before it, and the job may have been
// cancelled in between.
func (r Record) Judged(res Result) Result {
	res.Outcome, res.Reason, res.Message, res.Attempts = r.Outcome, r.Reason, r.Message, r.Attempt
	if r.Finished != nil {
		res.Durations.Total = max(0, r.Finished.Sub(r.Submitted).Seconds())
	}
	return res
}

// Again returns the record of a job that had finished with a result, and whose
// own record does not know it any more.
func (r Record) Again(res Result, at time.Time) Record {
	at = at.UTC()
	r.State, r.Hold, r.Finished = Finished, "", &at
	r.Outcome, r.Reason, r.Message = res.Outcome, res.Reason, oneLine(res.Message, 2000)
	r.Attempt, r.Worker = max(r.Attempt, res.Attempts), ""
	r.Beat, r.Lease, r.NotBefore, r.Cancel = 0, 0, nil, nil
	return r
}
