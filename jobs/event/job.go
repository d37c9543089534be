package event

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// JobSubmitted says what was accepted. The job as a whole is not part of the log.
type JobSubmitted struct {
	Key       string        `json:"key,omitempty" jsonschema:"The key that the job was submitted with."`
	Batch     string        `json:"batch,omitempty" jsonschema:"The batch that the job belongs to."`
	Item      string        `json:"item,omitempty" jsonschema:"The job's identifier in its batch."`
	Queue     string        `json:"queue" jsonschema:"The queue that the job waits in."`
	Priority  jobs.Priority `json:"priority" jsonschema:"What is taken first from the queue."`
	Title     string        `json:"title,omitempty" jsonschema:"What the job is about, in a line."`
	NotBefore *time.Time    `json:"not_before,omitempty" jsonschema:"When the job may begin, if not at once."`
}

// JobClaimed begins an attempt: its worker holds the job's lease.
type JobClaimed struct {
	Worker string      `json:"worker" jsonschema:"The worker's name."`
	Epoch  uint64      `json:"epoch" jsonschema:"The number that fences the attempt. It grows with every claim."`
	Lost   *jobs.Ended `json:"previous,omitempty" jsonschema:"How the attempt before was lost, if it was."`
}

// JobRequeued ends an attempt that another one will follow.
type JobRequeued struct {
	Reason    jobs.Reason `json:"reason" jsonschema:"Why the attempt ended."`
	Message   string      `json:"message,omitempty" jsonschema:"What happened, for people."`
	State     jobs.State  `json:"state" jsonschema:"The job's state from now on: pending, or delayed."`
	NotBefore *time.Time  `json:"not_before,omitempty" jsonschema:"When the next attempt may begin, if not at once."`
}

// JobWaiting parks a job: no slot is held until its questions are answered.
type JobWaiting struct {
	Reason   string    `json:"reason" jsonschema:"What the job waits for: question."`
	Asks     []string  `json:"asks" jsonschema:"The ids of the open questions."`
	Question string    `json:"question" jsonschema:"The first of them, for people."`
	Until    time.Time `json:"until" jsonschema:"When the job goes on without an answer."`
}

// JobFinished ends a job. It is the job's result.
type JobFinished jobs.Result

// JobReopened brings a finished job back for another attempt.
type JobReopened struct {
	By string `json:"by,omitempty" jsonschema:"Who asked for it."`
}

// JobRejected says why something that was published is no job.
type JobRejected struct {
	Fields []jobs.FieldError `json:"fields" jsonschema:"Everything that is wrong with it."`
}

// SalvageStored says that the changes of an attempt that did not end well are kept.
type SalvageStored jobs.Salvage

// CapsuleStored says that the conversation can go on from here on any worker.
type CapsuleStored jobs.Capsule

// SessionContinued says what the agent goes on with.
type SessionContinued struct {
	How          string `json:"how" jsonschema:"resumed, forked or anew."`
	From         string `json:"from,omitempty" jsonschema:"The job that the session was forked from."`
	Epoch        uint64 `json:"epoch,omitempty" jsonschema:"The epoch of the capsule; anew, of the salvage that there is."`
	Conversation string `json:"conversation,omitempty" jsonschema:"What the agent calls the conversation."`
	Turn         int    `json:"turn,omitempty" jsonschema:"The turn that the conversation goes on after."`
	Why          string `json:"why,omitempty" jsonschema:"Why it began anew."`
}

// BranchDelivered says where the result went. A retry that replaces what a lost
// attempt of the same job had delivered names that commit.
type BranchDelivered struct {
	Repo     string `json:"repo,omitempty" jsonschema:"The repository, without credentials."`
	Branch   string `json:"branch" jsonschema:"The branch's name."`
	Commit   string `json:"commit" jsonschema:"The commit that the branch names."`
	Replaced string `json:"replaced,omitempty" jsonschema:"The commit of a lost attempt that the branch named before."`
}

// Budget is the shape of [BudgetWarned] and [BudgetExceeded].
type Budget struct {
	Of          string  `json:"of,omitempty" jsonschema:"The budget that jobs share, as queue:default=50/day; empty is the job's own."`
	USD         float64 `json:"usd" jsonschema:"What the job has cost so far, in US dollars."`
	Tokens      int64   `json:"tokens" jsonschema:"How many tokens the job has used so far."`
	LimitUSD    float64 `json:"limit_usd,omitempty" jsonschema:"The job's budget in US dollars; 0 is no limit."`
	LimitTokens int64   `json:"limit_tokens,omitempty" jsonschema:"The job's budget in tokens; 0 is no limit."`
}

// OverlapFound says that another job changes the same files. It is told again when there are
// more of them.
type OverlapFound jobs.Overlap

// BudgetWarned says that most of the job's budget is spent, or of one that it shares.
type BudgetWarned Budget

// BudgetExceeded says that the job's budget is spent, or one that it shares.
type BudgetExceeded Budget
