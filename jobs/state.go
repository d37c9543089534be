package jobs

// State is where a job stands.
type State string

// The states of a job. Only Finished is terminal.
const (
	Pending   State = "pending"   // ready to be claimed
	Delayed   State = "delayed"   // waits for a time: run_at, or a back-off
	Executing State = "executing" // an attempt holds the lease
	Waiting   State = "waiting"   // parked: a question or a quota; no slot is held
	Finished  State = "finished"  // has an outcome
)

// Outcome is how a finished job ended.
type Outcome string

// The outcomes of a finished job.
const (
	Success      Outcome = "success"
	Failure      Outcome = "failure"      // the agent ended, its result is not good
	Error        Outcome = "error"        // ours, or the infrastructure's
	TimedOut     Outcome = "timeout"      // a limit of time was reached
	Cancellation Outcome = "cancellation" // a user or a client asked for it
	Skip         Outcome = "skip"         // was not run, and need not be
)
