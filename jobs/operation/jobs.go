package operation

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/why"
)

// Bounds of requests.
const (
	MaxWait  = 10 * time.Second // how long an operation may wait for something to happen
	MaxPage  = 1000             // entries in a page of a list
	MaxForks = 100
)

var (
	readers    = []jobs.Role{jobs.RoleViewer}
	submitters = []jobs.Role{jobs.RoleSubmitter}
	both       = []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter}
)

// Operations on jobs and their sessions.
var (
	Submit = defineDocument[jobs.Job, Submitted](Row{
		Name: "submit", Changes: true, Roles: submitters, what: "job",
		Sentence: "Submit a job. When the answer is here the job is stored and will run; the same key again is the same job.",
	})
	Get = define[Ref, jobs.Record](Row{
		Name: "get", Roles: both, Sentence: "Return a job's record: its state, its outcome, and what it waits for.",
	})
	Show = define[Ref, Shown](Row{
		Name: "show", Roles: readers, Sentence: "Return all that the pool knows of a job: its record, the job as submitted, its result and its salvages.",
	})
	List = define[ListRequest, Listed](Row{
		Name: "list", Roles: readers, Sentence: "List jobs, in the order of their submission, or the newest first.",
	})
	Wait = define[WaitRequest, jobs.Record](Row{
		Name: "wait", Roles: both, Waits: true,
		Sentence: "Wait until a job has finished, but not longer than the request says; the record that is returned says whether it has.",
	})
	Result = define[Ref, jobs.Result](Row{
		Name: "result", Roles: both, Sentence: "Return the result of a finished job.",
	})
	Why = define[Ref, why.Standing](Row{
		Name: "why", Roles: both, Sentence: "Explain what keeps a job in its state, and what would change that.",
	})
	Send = define[SendRequest, control.Receipt](Row{
		Name: "send", Changes: true, Roles: submitters, About: aboutJob,
		Sentence: "Send a control message to the agent of a job: a prompt, an answer, an interrupt, a stop. A prompt brings a finished job back.",
	})
	Cancel = define[Ref, jobs.Record](Row{
		Name: "cancel", Changes: true, Roles: submitters, Sentence: "End a job, queued or running.",
	})
	Retry = define[RetryRequest, jobs.Record](Row{
		Name: "retry", Changes: true, Roles: submitters, Sentence: "Run a finished job again that did not succeed.",
	})
	Resume = define[ResumeRequest, jobs.Record](Row{
		Name: "resume", Changes: true, Roles: submitters, About: aboutJob,
		Sentence: "Continue the conversation of a finished job's agent.",
	})
	Fork = define[ForkRequest, Forked](Row{
		Name: "fork", Changes: true, Roles: submitters, Sentence: "Submit jobs that begin with a copy of another job's conversation.",
	})
	Review = define[ReviewRequest, jobs.Record](Row{
		Name: "review", Changes: true, Roles: submitters, Sentence: "Note what was decided about the result of a finished job: accepted, rejected, delivered, or unreviewed again.",
	})
	PullRequest = define[PullRequestRequest, jobs.Record](Row{
		Name: "pull-request", Changes: true, Roles: submitters,
		Sentence: "Have the pool open a draft pull request of the branch that a job has delivered; the record says what becomes of it.",
	})
	Purge = define[PurgeRequest, Purged](Row{
		Name: "purge", Changes: true,
		Sentence: "Remove all that is kept of a finished job, for good: record, request, events, result, artifacts, dead letter.",
	})
	Events = define[EventsRequest, EventsPage](Row{
		Name: "events", Roles: both, Waits: true,
		Sentence: "Return the events of a job's session behind a sequence number; if there are none yet, wait for some.",
	})
	Artifacts = define[ArtifactsRequest, ArtifactList](Row{
		Name: "artifacts", Roles: both, Sentence: "List the artifacts of an attempt.",
	})
	Patch = define[Ref, PatchContent](Row{
		Name: "patch", Roles: both, Sentence: "Return the patch of a finished job, if it fits a message.",
	})
)

// A Ref names a job, by its id or what is unique of its beginning or end.
type Ref struct {
	ID string `json:"id" jsonschema:"An id, or what only that one begins or ends with."`
}

func (r Ref) check() error { return needID(r.ID, `{"id": "…"}`) }

func needID(id, form string) error {
	if id != "" {
		return nil
	}
	return invalid("id", "is missing: the request is "+form)
}

// invalid is the error of a request with one wrong field.
func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// checkLimit refuses a page of a negative size.
func checkLimit(limit int) error {
	if limit < 0 {
		return invalid("limit", "is negative")
	}
	return nil
}

// maxComment bounds the comment of a review, in bytes.
const maxComment = 16 << 10

// A ReviewRequest says what was decided about the result of a job.
type ReviewRequest struct {
	ID      string           `json:"id" jsonschema:"The job's id, or what only that one begins or ends with."`
	State   jobs.ReviewState `json:"state" jsonschema:"accepted, rejected, delivered, or unreviewed."`
	Comment string           `json:"comment,omitempty" jsonschema:"Why, at most 16 KiB."`
	// Epoch refuses the request where the job has the result of another attempt.
	Epoch uint64 `json:"epoch,omitempty" jsonschema:"The epoch of the attempt whose result was looked at. If the job has another result, nothing is noted. Left out, it is the last one's."`
}

// A PullRequestRequest asks for a pull request of a job's result.
type PullRequestRequest struct {
	ID string `json:"id" jsonschema:"The job's id, or what only that one begins or ends with."`
	// Epoch refuses the request where the job has the result of another attempt.
	Epoch uint64 `json:"epoch,omitempty" jsonschema:"The epoch of the attempt whose result was looked at. If the job has another result, no pull request is opened. Left out, it is the last one's."`
}

func (r PullRequestRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

func (r ReviewRequest) check() error {
	if err := needID(r.ID, `{"id": "…", "state": "accepted"}`); err != nil {
		return err
	}
	if err := jobs.CheckReviewState(r.State); err != nil {
		return invalid("state", err.Error())
	}
	if len(r.Comment) > maxComment {
		return invalid("comment", "is longer than 16 KiB")
	}
	return nil
}

// A PurgeRequest names a job whose data is removed.
type PurgeRequest struct {
	ID string `json:"id" jsonschema:"The job's id, or what only that one begins or ends with."`
	// Session: the other jobs of its session, too. Without it a job that is not the only
	// one there is refused.
	Session bool `json:"session,omitempty" jsonschema:"Also the other jobs of its session."`
}

func (r PurgeRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// Purged says what was removed.
type Purged struct {
	Session string   `json:"session" jsonschema:"The session, which is gone, too."`
	Jobs    []string `json:"jobs" jsonschema:"The jobs that are gone."`
	// Removed counts messages of the broker: events, pieces of artifacts, entries.
	Removed int `json:"removed" jsonschema:"How many messages the broker has removed."`
}

// Submitted is the answer to a submitter.
type Submitted struct {
	ID      string `json:"id" jsonschema:"The job's id."`
	Session string `json:"session" jsonschema:"The session's id."`
	// Duplicate says that the key, or the id that the submitter has chosen, belongs
	// to a job that is kept already, which stays as it is; Differs names the fields in which that one differs from
	// what was submitted now.
	Duplicate bool     `json:"duplicate" jsonschema:"The key, or the id that the submitter has chosen, belongs to a job that is kept already."`
	Differs   []string `json:"differs,omitempty" jsonschema:"The fields in which that job differs from the one that was submitted."`
}

// Shown is a job with all that belongs to it.
type Shown struct {
	jobs.Record
	// KeptUntil is when what the pool has of the finished job is removed.
	KeptUntil *time.Time `json:"kept_until,omitempty" jsonschema:"When what the pool has of the finished job is removed."`
	// Cause is what the record's reason means, and what to do about it.
	Cause  *jobs.Cause  `json:"cause,omitempty" jsonschema:"What the reason means."`
	Job    *jobs.Job    `json:"job,omitempty" jsonschema:"The job as it was submitted."`
	Result *jobs.Result `json:"result,omitempty" jsonschema:"The result, if the job has finished."`
	// Salvages are of attempts that did not succeed.
	Salvages []jobs.Salvage `json:"salvages,omitempty" jsonschema:"What was saved of attempts that did not succeed."`
}

// A ListRequest selects jobs. Empty fields select all.
type ListRequest struct {
	Batch   string       `json:"batch,omitempty" jsonschema:"Of this batch."`
	Queue   string       `json:"queue,omitempty" jsonschema:"Of this queue."`
	Session string       `json:"session,omitempty" jsonschema:"Of this session."`
	State   jobs.State   `json:"state,omitempty" jsonschema:"In this state."`
	Outcome jobs.Outcome `json:"outcome,omitempty" jsonschema:"With this outcome."`
	// Review selects finished jobs.
	Review jobs.ReviewState `json:"review,omitempty" jsonschema:"Finished, with a result in this state: unreviewed, accepted, rejected or delivered."`
	Since  *time.Time       `json:"since,omitempty" jsonschema:"Submitted since then."` // submitted since
	Newest bool             `json:"newest,omitempty" jsonschema:"The newest first."`
	After  string           `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit  int              `json:"limit,omitempty" jsonschema:"How many entries of the list are wanted, at most 1000, which is the default."`
}

func (r ListRequest) check() error {
	if r.Review != "" {
		if err := jobs.CheckReviewState(r.Review); err != nil {
			return invalid("review", err.Error())
		}
	}
	return checkLimit(r.Limit)
}

// Listed is a page of jobs.
type Listed struct {
	Jobs []jobs.Record `json:"jobs" jsonschema:"The jobs."`
	Next string        `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}

// A WaitRequest says for which job to wait, and how long: at most [MaxWait],
// which is the default.
type WaitRequest struct {
	ID  string        `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	For jobs.Duration `json:"for,omitempty" jsonschema:"How long to wait, at most 10s, which is the default."`
}

func (r WaitRequest) check() error { return needID(r.ID, `{"id": "…", "for": "10s"}`) }

// A SendRequest is a message to the agent of a job.
type SendRequest struct {
	ID      string          `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Control control.Message `json:"control" jsonschema:"The message."`
}

func (r SendRequest) check() error { return needID(r.ID, `{"id": "…", "control": {…}}`) }

// A RetryRequest brings a finished job back, to begin anew.
type RetryRequest struct {
	ID string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	// FromSalvage begins from what was saved of an earlier attempt.
	FromSalvage bool `json:"from_salvage,omitempty" jsonschema:"Begin from what was saved of an earlier attempt."`
}

func (r RetryRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// A ResumeRequest brings a finished job back, with something to do, or to do
// what is left.
type ResumeRequest struct {
	ID     string           `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Prompt *control.Message `json:"prompt,omitempty" jsonschema:"What the agent is told. Left out, it goes on with what was left to do."`
	Budget jobs.Allowance   `json:"budget,omitzero" jsonschema:"What the job may spend from now on in all, what it has spent included: more than its budget."`
}

func (r ResumeRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// A ForkRequest asks for jobs that begin where another one ended.
type ForkRequest struct {
	ID     string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Prompt string `json:"prompt" jsonschema:"What the new jobs are to do."`
	Count  int    `json:"count,omitempty" jsonschema:"How many jobs, at most 100; the default is 1."` // default 1
}

func (r ForkRequest) check() error {
	switch {
	case r.Count < 0 || r.Count > MaxForks:
		return invalid("count", "is not from 1 to 100")
	case r.Prompt == "":
		return invalid("prompt", "is missing: it says what the new jobs are to do")
	}
	return needID(r.ID, `{"id": "…", "prompt": "…"}`)
}

// Forked are the jobs that a fork has made.
type Forked struct {
	Jobs []Submitted `json:"jobs" jsonschema:"The new jobs."`
}

// An EventsRequest asks for the events of a job's session whose sequence numbers
// are greater than After. If there are none it waits for some, at most For, whose
// default is not to wait and whose bound is [MaxWait].
type EventsRequest struct {
	ID    string        `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	After uint64        `json:"after,omitempty" jsonschema:"The number of the last event that is known."`
	Limit int           `json:"limit,omitempty" jsonschema:"How many events are wanted, at most 1000, which is the default."`
	For   jobs.Duration `json:"for,omitempty" jsonschema:"How long to wait for some if there are none, at most 10s; the default is not to wait."`
}

func (r EventsRequest) check() error {
	if r.Limit < 0 {
		return checkLimit(r.Limit)
	}
	return needID(r.ID, `{"id": "…", "after": 0}`)
}

// An EventsPage has the next events of a session. Over says that the job has
// finished and that no event of it comes after these, though its log may not
// have the last one any more.
type EventsPage struct {
	Events []jobs.Event `json:"events" jsonschema:"The next events."`
	Over   bool         `json:"over" jsonschema:"The job has finished, and no event of it comes after these."`
}

// An ArtifactsRequest names an attempt by its epoch; without one it is the last.
type ArtifactsRequest struct {
	ID    string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Epoch uint64 `json:"epoch,omitempty" jsonschema:"The epoch of the attempt; the default is the last one."`
}

func (r ArtifactsRequest) check() error { return needID(r.ID, `{"id": "…"}`) }

// An ArtifactList has the artifacts of one attempt.
type ArtifactList struct {
	Epoch     uint64          `json:"epoch" jsonschema:"The epoch of the attempt."`
	Artifacts []jobs.Artifact `json:"artifacts" jsonschema:"Its artifacts."`
}

// PatchContent is the patch of a job, empty if it changed nothing. In JSON it is
// base64 text.
type PatchContent struct {
	Patch []byte `json:"patch" jsonschema:"The patch, in base64; empty if the job changed nothing."`
}
