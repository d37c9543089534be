package jobs

import (
	"reflect"
	"slices"
	"time"
)

// Reason says why a job is not a success. The list is closed; [Reasons] says
// of each what follows from it, and is the only place that does.
type Reason string

// The reasons, in the order of a job's way.
const (
	InvalidJob       Reason = "invalid_job"
	UnknownAgent     Reason = "unknown_agent"
	AgentMissing     Reason = "agent_missing"
	AgentVersion     Reason = "agent_version_unavailable"
	RepoUnreachable  Reason = "repo_unreachable"
	NotARepository   Reason = "not_a_repository"
	RepoUnsupported  Reason = "repository_unsupported"
	NoCredentials    Reason = "credentials_missing"
	RefNotFound      Reason = "ref_not_found"
	WorkspaceFailed  Reason = "workspace_failed"
	NotResumed       Reason = "not_resumed"
	SecretMissing    Reason = "secret_missing"
	Unsigned         Reason = "unsigned"
	PolicyDenied     Reason = "policy_denied"
	ImageMissing     Reason = "image_missing"
	SandboxMissing   Reason = "sandbox_unavailable"
	SandboxFailed    Reason = "sandbox_failed"
	SetupFailed      Reason = "setup_failed"
	AgentFailed      Reason = "agent_failed"
	AgentCrashed     Reason = "agent_crashed"
	AgentProtocol    Reason = "agent_protocol"
	TurnLimit        Reason = "turn_limit"
	BudgetExceeded   Reason = "budget_exceeded"
	BatchBudget      Reason = "batch_budget_exceeded"
	BudgetWaiting    Reason = "budget_waiting"
	BudgetParked     Reason = "budget_parked"
	QuotaWaiting     Reason = "quota_waiting"
	KeyRefused       Reason = "key_refused"
	Unauthorized     Reason = "model_unauthorized"
	Billing          Reason = "model_billing"
	ModelNotFound    Reason = "model_not_found"
	RateLimited      Reason = "model_rate_limited"
	ModelUnavailable Reason = "model_unavailable"
	OutOfMemory      Reason = "out_of_memory"
	DiskFull         Reason = "disk_full"
	DiskLimit        Reason = "disk_limit"
	InodeLimit       Reason = "inode_limit"
	ProcessLimit     Reason = "process_limit"
	CheckFailed      Reason = "check_failed"
	NoChanges        Reason = "no_changes"
	NoResult         Reason = "no_result"
	CollectFailed    Reason = "collect_failed"
	TooLarge         Reason = "workspace_too_large"
	StoreFailed      Reason = "store_failed"
	BranchExists     Reason = "branch_exists"
	DeliveryFailed   Reason = "delivery_failed"
	TimeLimit        Reason = "time_limit"
	IdleLimit        Reason = "idle_limit"
	StartLimit       Reason = "start_limit"
	AgentHalted      Reason = "agent_halted"
	Unanswered       Reason = "unanswered"
	OutputLimit      Reason = "output_limit"
	RetryLimit       Reason = "retry_limit"
	Cancelled        Reason = "cancelled"
	WorkerLost       Reason = "worker_lost"
	WorkerDrained    Reason = "worker_drained"
	LeaseLost        Reason = "lease_lost"
	DependencyFailed Reason = "dependency_failed"
	Undeliverable    Reason = "undeliverable"
	Internal         Reason = "internal"
)

// Fault says which side a reason blames.
type Fault string

// The parties to blame for a reason, which are also those that can fix it.
const (
	FaultJob      Fault = "job"      // the submitter: change the job
	FaultAgent    Fault = "agent"    // the agent's work
	FaultProvider Fault = "provider" // the model's provider, or the account there
	FaultPool     Fault = "pool"     // the operator: a worker, its host, the broker
)

// When says when a job is tried again.
type When string

// When another attempt may end better.
const (
	Never  When = "never"
	AtOnce When = "at once" // elsewhere: nothing is wrong with the job
	Later  When = "later"   // after a back-off
)

// Charge says which of a job's bounds an attempt uses up. A job whose bound is
// used up gets no other attempt.
type Charge string

// What an attempt is charged to.
const (
	ChargeAttempt Charge = "attempt" // the job's doing: one of retry.max_attempts
	ChargeDeath   Charge = "death"   // a worker died under it: one of MaxDeaths
	ChargeHost    Charge = "host"    // a host or the store failed: one of MaxHostFailures
	ChargeLoss    Charge = "loss"    // the job did not fail: a shutdown, a quota; one of MaxLost
	ChargeNothing Charge = "nothing" // the attempt ended on purpose
)

// Bounds of attempts that are not the job's doing. A job that kills its
// workers must not travel for ever; one that is handed on by shutdowns, or
// waits for a quota, may for long.
const (
	MaxDeaths       = 4
	MaxHostFailures = 8
	MaxLost         = 100
)

// DefaultRefusals is how often a job is lost to one reason of its model's
// provider before it is given up: with the back-off that is over an hour.
const DefaultRefusals = 20

// MaxRetryAfter is the longest that a job waits because the provider asked for
// it. One that asks for more is tried again by then.
const MaxRetryAfter = 24 * time.Hour

// Scope says which other jobs would meet the same end.
type Scope string

// What jobs that meet the same end have in common.
const (
	ScopeJob     Scope = ""        // nothing: another one may do better
	ScopeAgent   Scope = "agent"   // the agent: its program, its credentials
	ScopeModel   Scope = "model"   // the agent and its model
	ScopeImage   Scope = "image"   // the image
	ScopeSecrets Scope = "secrets" // the names of its secrets
	ScopeBatch   Scope = "batch"   // the batch
	ScopeSandbox Scope = "sandbox" // the isolation, and what they ask of the jail
)

// A Cause is what the pool knows about a [Reason].
type Cause struct {
	Outcome Outcome `json:"outcome" jsonschema:"The outcome that goes with the reason."`
	// Retry is when another attempt may end better.
	Retry  When   `json:"retry" jsonschema:"When another attempt may end better."`
	Charge Charge `json:"charge" jsonschema:"Whom the attempt is counted against."`
	// Scope is ScopeJob unless no job that shares it can end better, so that a
	// batch of such jobs stops.
	Scope Scope `json:"scope" jsonschema:"What else ends the same way."`
	Fault Fault `json:"fault" jsonschema:"Whose fault it is."`
	// Advice tells the user what to do, in one sentence.
	Advice string `json:"advice" jsonschema:"What to do, in a sentence."`
}

// Hopeless reports whether not only this job would end so again.
func (c Cause) Hopeless() bool { return c.Scope != ScopeJob }

// Continues reports whether the attempt after one that ended for this reason
// goes on with what that one had begun. One that failed for what its agent did
// begins anew; empty, it is not known how it ended.
func (r Reason) Continues() bool {
	return r == "" || r == AgentCrashed || Reasons[r].Charge != ChargeAttempt && Reasons[r].Retry != Never
}

// Meets reports whether other would end for this cause as met has.
func (c Cause) Meets(met, other Job) bool {
	same := met.Agent.Name == other.Agent.Name && met.Agent.Version == other.Agent.Version && slices.Equal(met.Agent.Command, other.Agent.Command)
	switch c.Scope {
	case ScopeAgent:
		return same
	case ScopeModel:
		return same && met.Agent.Model == other.Agent.Model
	case ScopeBatch:
		return met.Batch == other.Batch
	case ScopeImage:
		return met.Image == other.Image
	case ScopeSecrets:
		return slices.Equal(met.Secrets, other.Secrets)
	case ScopeSandbox:
		return met.Isolation == other.Isolation && reflect.DeepEqual(met.Sandbox, other.Sandbox)
	}
	return false
}

// Ended is how an attempt ends for this reason.
func (r Reason) Ended(message string) Ended {
	return Ended{Outcome: Reasons[r].Outcome, Reason: r, Message: message}
}

// Reasons is the closed table of all reasons.
var Reasons = map[Reason]Cause{
	InvalidJob:       {Error, Never, ChargeLoss, ScopeJob, FaultJob, "fix the fields that the message names and submit the job again"},
	UnknownAgent:     {Error, Never, ChargeLoss, ScopeAgent, FaultJob, "name an agent that the workers know; see penstock worker --help"},
	AgentMissing:     {Error, Never, ChargeLoss, ScopeAgent, FaultPool, "install the agent's program on the worker, or name its path"},
	AgentVersion:     {Error, Later, ChargeLoss, ScopeJob, FaultPool, "install the version on the hosts of workers again: penstock agent remove NAME@VERSION, then penstock agent install NAME@VERSION"},
	RepoUnreachable:  {Error, Later, ChargeAttempt, ScopeJob, FaultJob, "check the repository's URL or path, and that the worker may read it"},
	NotARepository:   {Error, Never, ChargeLoss, ScopeJob, FaultJob, "name a git repository, or use isolation none for a plain directory"},
	RepoUnsupported:  {Error, Never, ChargeLoss, ScopeJob, FaultJob, "the repository exists, but no job can begin from it as it is; follow the message, or name another"},
	NoCredentials:    {Error, Never, ChargeLoss, ScopeJob, FaultPool, "give the worker's git credentials for the repository, as docs/how-to/private-repositories.md says, then penstock job retry"},
	RefNotFound:      {Error, Never, ChargeLoss, ScopeJob, FaultJob, "check the ref or commit: the repository does not have it"},
	WorkspaceFailed:  {Error, Later, ChargeHost, ScopeJob, FaultPool, "see the worker's log; penstock doctor checks the host"},
	NotResumed:       {Error, Never, ChargeLoss, ScopeJob, FaultPool, "the message says why the conversation cannot continue; penstock job retry starts the job anew, and keeps what earlier attempts stored"},
	SecretMissing:    {Error, Never, ChargeLoss, ScopeSecrets, FaultPool, "set the secret on the worker, or remove its name from the job"},
	Unsigned:         {Error, Never, ChargeLoss, ScopeJob, FaultJob, "sign the job with a key that the workers of its queue require, and submit it as it was signed: --sign-key"},
	PolicyDenied:     {Error, Never, ChargeLoss, ScopeSandbox, FaultJob, "ask for what the worker's policy permits, as the message says, or have the policy changed"},
	ImageMissing:     {Error, Never, ChargeLoss, ScopeImage, FaultPool, "pull or build the image on the worker's host, or name an existing one"},
	SandboxMissing:   {Error, Never, ChargeLoss, ScopeSandbox, FaultPool, "run penstock doctor on the worker's host; it names the fix"},
	SandboxFailed:    {Error, Later, ChargeHost, ScopeJob, FaultPool, "run penstock doctor on the worker's host"},
	SetupFailed:      {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "fix the setup command; its output is in the session's events"},
	AgentFailed:      {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "read the session with penstock logs, then change the prompt"},
	AgentCrashed:     {Error, Later, ChargeAttempt, ScopeJob, FaultAgent, "read the session's last events; the agent was killed by a signal"},
	AgentProtocol:    {Error, Later, ChargeAttempt, ScopeJob, FaultAgent, "the agent did not speak as expected; check its version"},
	TurnLimit:        {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise agent.max_turns, or make the task smaller"},
	BudgetExceeded:   {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise the budget (penstock job resume ID --max-cost …, or --max-tokens), or make the task smaller"},
	BatchBudget:      {Failure, Never, ChargeLoss, ScopeBatch, FaultJob, "raise --batch-max-cost or --batch-max-tokens and run the rest as another batch"},
	BudgetWaiting:    {Error, Later, ChargeNothing, ScopeJob, FaultPool, "wait for the budget's next period, or raise it: serve --budget"},
	BudgetParked:     {Error, Later, ChargeNothing, ScopeJob, FaultJob, "raise the budget (penstock job resume ID --max-cost …, or --max-tokens), or end the job with penstock job cancel"},
	QuotaWaiting:     {Error, Later, ChargeNothing, ScopeJob, FaultProvider, "wait: the job goes on by itself when the model's provider takes calls again; a higher limit there makes it sooner"},
	KeyRefused:       {Error, Later, ChargeNothing, ScopeJob, FaultProvider, "give the workers a key that the model's provider accepts, or its account credit; jobs go on by themselves within minutes"},
	Unauthorized:     {Error, Never, ChargeLoss, ScopeAgent, FaultProvider, "give the worker a valid API key"},
	Billing:          {Error, Never, ChargeLoss, ScopeAgent, FaultProvider, "the account at the model's provider needs credit"},
	ModelNotFound:    {Error, Never, ChargeLoss, ScopeModel, FaultJob, "name a model that the provider has"},
	RateLimited:      {Error, Later, ChargeLoss, ScopeJob, FaultProvider, "run fewer jobs at once, or wait"},
	ModelUnavailable: {Error, Later, ChargeLoss, ScopeJob, FaultProvider, "the model API failed or could not be reached; wait and retry"},
	OutOfMemory:      {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise sandbox.limits.memory"},
	DiskFull:         {Error, Later, ChargeHost, ScopeJob, FaultPool, "free space on the worker's data directory"},
	DiskLimit:        {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise sandbox.limits.disk"},
	InodeLimit:       {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise sandbox.limits.inodes"},
	ProcessLimit:     {Failure, Never, ChargeAttempt, ScopeJob, FaultJob, "raise sandbox.limits.pids"},
	CheckFailed:      {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "the check command did not pass; its output is in the session's events"},
	NoChanges:        {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "the agent ended without a change, and the job expects one; read the session with penstock logs, then change the prompt"},
	NoResult:         {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "the agent ended without setting the result that the job's result_schema describes; have the prompt tell it to run penstock result"},
	CollectFailed:    {Error, Later, ChargeAttempt, ScopeJob, FaultAgent, "what the agent left in the workspace could not be collected; the message says what stood in the way"},
	TooLarge:         {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "have the agent remove files that are not part of its work, or let git ignore them; the result is the part that could be stored, and the message says where all of it is"},
	StoreFailed:      {Error, Later, ChargeHost, ScopeJob, FaultPool, "the object store refused the result; check the broker's disk and limits"},
	BranchExists:     {Error, Never, ChargeAttempt, ScopeJob, FaultJob, "delete or rename the existing branch, or name another with deliver.branch; the result is kept: penstock job apply"},
	DeliveryFailed:   {Error, Never, ChargeAttempt, ScopeJob, FaultPool, "see that the worker may write to the repository; the result is kept: penstock job apply"},
	TimeLimit:        {TimedOut, Never, ChargeAttempt, ScopeJob, FaultJob, "raise timeout, or make the task smaller"},
	IdleLimit:        {TimedOut, Later, ChargeAttempt, ScopeJob, FaultAgent, "the agent was silent for idle_timeout; read its last events"},
	StartLimit:       {TimedOut, Later, ChargeAttempt, ScopeJob, FaultAgent, "the agent wrote nothing after its start; penstock doctor starts it in a jail, and worker.start_timeout is the limit"},
	AgentHalted:      {TimedOut, Later, ChargeAttempt, ScopeJob, FaultAgent, "a signal stopped a process of the agent and nothing continued it; read its last events; worker.halt_timeout is the limit"},
	Unanswered:       {TimedOut, Never, ChargeAttempt, ScopeJob, FaultJob, "no answer to the agent's question came in time; answer it with penstock answer, raise ask.timeout, or set ask.default"},
	OutputLimit:      {Failure, Never, ChargeAttempt, ScopeJob, FaultAgent, "the agent wrote without end; read its first events, or raise worker.output_limit"},
	RetryLimit:       {Error, Later, ChargeAttempt, ScopeJob, FaultProvider, "the model API failed, and the agent only tried again; wait and retry; worker.retry_limit is the limit"},
	Cancelled:        {Cancellation, Never, ChargeNothing, ScopeJob, FaultJob, "the job was cancelled; retry it if that was a mistake"},
	WorkerLost:       {Error, AtOnce, ChargeDeath, ScopeJob, FaultPool, "workers died under this job; look at their hosts' memory and logs"},
	WorkerDrained:    {Error, AtOnce, ChargeLoss, ScopeJob, FaultPool, "a worker shut down; the job continues on another one"},
	LeaseLost:        {Error, AtOnce, ChargeLoss, ScopeJob, FaultPool, "a worker could not renew its lease; check its connection to the broker"},
	DependencyFailed: {Skip, Never, ChargeLoss, ScopeJob, FaultJob, "see why the job that the message names did not succeed; when it has, retry this one"},
	Undeliverable:    {Error, Never, ChargeLoss, ScopeJob, FaultPool, "the queue's consumer must deliver for ever: set its max_deliver to -1, then penstock dead retry"},
	Internal:         {Error, Later, ChargeHost, ScopeJob, FaultPool, "this is a defect of Penstock; please report it with the worker's log"},
}
