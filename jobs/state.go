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
	Cancellation Outcome = "cancellation" // somebody asked for it
	Skip         Outcome = "skip"         // was not run, and need not be
)

// Reason says why a job is not a success. The list is closed; [Reasons] says
// of each whether another attempt may help and whether the attempt counts.
type Reason string

// The reasons, in the order of a job's way.
const (
	InvalidJob       Reason = "invalid_job"
	UnknownAgent     Reason = "unknown_agent"
	AgentMissing     Reason = "agent_missing"
	RepoUnreachable  Reason = "repo_unreachable"
	NotARepository   Reason = "not_a_repository"
	RefNotFound      Reason = "ref_not_found"
	WorkspaceFailed  Reason = "workspace_failed"
	SecretMissing    Reason = "secret_missing"
	SandboxMissing   Reason = "sandbox_unavailable"
	SandboxFailed    Reason = "sandbox_failed"
	SetupFailed      Reason = "setup_failed"
	AgentFailed      Reason = "agent_failed"
	AgentCrashed     Reason = "agent_crashed"
	AgentProtocol    Reason = "agent_protocol"
	TurnLimit        Reason = "turn_limit"
	BudgetExceeded   Reason = "budget_exceeded"
	Unauthorized     Reason = "model_unauthorized"
	Billing          Reason = "model_billing"
	ModelNotFound    Reason = "model_not_found"
	RateLimited      Reason = "model_rate_limited"
	ModelUnavailable Reason = "model_unavailable"
	OutOfMemory      Reason = "out_of_memory"
	DiskFull         Reason = "disk_full"
	CheckFailed      Reason = "check_failed"
	CollectFailed    Reason = "collect_failed"
	StoreFailed      Reason = "store_failed"
	TimeLimit        Reason = "time_limit"
	IdleLimit        Reason = "idle_limit"
	Cancelled        Reason = "cancelled"
	WorkerLost       Reason = "worker_lost"
	WorkerDrained    Reason = "worker_drained"
	LeaseLost        Reason = "lease_lost"
	DependencyFailed Reason = "dependency_failed"
	Internal         Reason = "internal"
)

// Fault says whom a reason blames.
type Fault string

// Who is to blame, and so who can mend it.
const (
	FaultJob      Fault = "job"      // the submitter: change the job
	FaultAgent    Fault = "agent"    // the agent's work
	FaultProvider Fault = "provider" // the model's provider, or the account there
	FaultPool     Fault = "pool"     // the operator: a worker, its host, the broker
)

// A Cause is what the pool knows about a [Reason].
type Cause struct {
	Outcome Outcome
	// Retry: another attempt may end better.
	Retry bool
	// Counts: the attempt uses up one of retry.max_attempts. What the pool or
	// the provider caused does not count, but is bounded by [MaxLost].
	Counts bool
	// Hopeless: every job of a batch will meet the same, so the batch stops.
	Hopeless bool
	Fault    Fault
	// Advice tells the user what to do, in one sentence.
	Advice string
}

// MaxLost bounds the attempts of one job that do not count, so that a job
// which kills its workers does not travel for ever.
const MaxLost = 10

// Reasons is the closed table of all reasons.
var Reasons = map[Reason]Cause{
	InvalidJob:       {Error, false, false, false, FaultJob, "mend the fields that the message names and submit the job again"},
	UnknownAgent:     {Error, false, false, true, FaultJob, "name an agent that the workers know; see penstock worker --help"},
	AgentMissing:     {Error, false, false, true, FaultPool, "install the agent's program on the worker, or name its path"},
	RepoUnreachable:  {Error, true, true, false, FaultJob, "check the repository's URL or path, and that the worker may read it"},
	NotARepository:   {Error, false, false, false, FaultJob, "name a git repository, or use isolation none for a plain directory"},
	RefNotFound:      {Error, false, false, false, FaultJob, "check the ref or commit: the repository does not have it"},
	WorkspaceFailed:  {Error, true, true, false, FaultPool, "see the worker's log; penstock doctor checks the host"},
	SecretMissing:    {Error, false, false, true, FaultPool, "set the secret on the worker, or remove its name from the job"},
	SandboxMissing:   {Error, false, false, true, FaultPool, "run penstock doctor on the worker's host; it names the fix"},
	SandboxFailed:    {Error, true, true, false, FaultPool, "run penstock doctor on the worker's host"},
	SetupFailed:      {Failure, false, true, false, FaultJob, "mend the setup command; its output is in the session's events"},
	AgentFailed:      {Failure, false, true, false, FaultAgent, "read the session with penstock logs, then change the prompt"},
	AgentCrashed:     {Error, true, true, false, FaultAgent, "read the session's last events; the agent was killed by a signal"},
	AgentProtocol:    {Error, true, true, false, FaultAgent, "the agent did not speak as expected; check its version"},
	TurnLimit:        {Failure, false, true, false, FaultJob, "raise agent.max_turns, or make the task smaller"},
	BudgetExceeded:   {Failure, false, true, false, FaultJob, "raise the budget, or make the task smaller"},
	Unauthorized:     {Error, false, false, true, FaultProvider, "give the worker a valid API key"},
	Billing:          {Error, false, false, true, FaultProvider, "the account at the model's provider needs credit"},
	ModelNotFound:    {Error, false, false, true, FaultJob, "name a model that the provider has"},
	RateLimited:      {Error, true, false, false, FaultProvider, "run fewer jobs at once, or wait"},
	ModelUnavailable: {Error, true, false, false, FaultProvider, "the model API failed or could not be reached; wait and retry"},
	OutOfMemory:      {Failure, false, true, false, FaultJob, "raise sandbox.limits.memory"},
	DiskFull:         {Error, true, true, false, FaultPool, "free space on the worker's data directory, or raise sandbox.limits.disk"},
	CheckFailed:      {Failure, false, true, false, FaultAgent, "the check command did not pass; its output is in the session's events"},
	CollectFailed:    {Error, true, true, false, FaultAgent, "the result could not be taken from the workspace; the message says what stood in the way"},
	StoreFailed:      {Error, true, false, false, FaultPool, "the object store refused the result; check the broker's disk and limits"},
	TimeLimit:        {TimedOut, false, true, false, FaultJob, "raise timeout, or make the task smaller"},
	IdleLimit:        {TimedOut, true, true, false, FaultAgent, "the agent was silent for idle_timeout; read its last events"},
	Cancelled:        {Cancellation, false, false, false, FaultJob, "somebody cancelled the job; retry it if that was a mistake"},
	WorkerLost:       {Error, true, false, false, FaultPool, "workers died under this job; look at their hosts' memory and logs"},
	WorkerDrained:    {Error, true, false, false, FaultPool, "a worker shut down; the job goes on elsewhere"},
	LeaseLost:        {Error, true, false, false, FaultPool, "a worker could not renew its lease; check its connection to the broker"},
	DependencyFailed: {Skip, false, false, false, FaultJob, "the job that this one depends on did not succeed"},
	Internal:         {Error, true, true, false, FaultPool, "this is a defect of Penstock; please report it with the worker's log"},
}
