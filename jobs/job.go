package jobs

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Limits of what a submitter may send. They keep a job inside one message of
// the broker and a record inside one value.
const (
	MaxJobBytes = 768 << 10 // of a job's JSON, files included
	MaxLabels   = 32
	MaxEnv      = 128
	MaxAllowed  = 64      // entries of each list of what a job allows its calls of models
	MaxTokens   = 1 << 50 // of a budget
	MaxUSD      = 1e9     // of a budget
	MaxHosts    = 256
	MaxAttempts = 20
	MaxPatterns = 64
	MaxDepends  = 64
	MaxSchema   = 64 << 10
	// MaxInstructions: agents get them in one argument, which Linux bounds to 128 KiB,
	// and quoting may make them three times as long.
	MaxInstructions = 32 << 10
)

// A Job is a request to run an agent once, as its submitter wrote it. The
// zero value of a field means "the default", which [Job.WithDefaults] fills
// in. Unknown fields are refused by [Decode].
type Job struct {
	// Key makes submitting idempotent: the same key gives the same job for
	// as long as the job is kept. At most 256 bytes.
	Key string `json:"key,omitempty"`
	// Batch is the batch that the job belongs to, and Item its identifier
	// in there: an issue's number, a benchmark's instance.
	Batch string `json:"batch,omitempty"`
	Item  string `json:"item,omitempty"`
	// Session continues an earlier job's session. Empty opens a new one.
	Session string `json:"session,omitempty"`
	// Parent is the job on whose behalf this one is submitted, by its agent or
	// by a program that watches it. How many generations there may be, the pool
	// decides; the children of a job with a budget stay within what it has left.
	Parent   string            `json:"parent,omitempty"`
	Queue    string            `json:"queue,omitempty"`
	Priority Priority          `json:"priority,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Needs are labels that a worker must have to claim the job: "docker",
	// "gpu". They are the worker's own words.
	Needs []string `json:"needs,omitempty"`

	Prompt string `json:"prompt,omitempty"`
	Issue  *Issue `json:"issue,omitempty"`
	Files  []File `json:"files,omitempty"`

	Repo Repo `json:"repo,omitzero"`
	// FromSalvage is an earlier job of the same repository: attempts begin from
	// what was last saved of it.
	FromSalvage string `json:"from_salvage,omitempty"`
	// Fork is an earlier job of the same repository and agent: this one begins
	// with a copy of its conversation, and of what it had changed by then.
	Fork      string    `json:"fork,omitempty"`
	Isolation Isolation `json:"isolation,omitempty"`
	Image     string    `json:"image,omitempty"`
	Sandbox   Sandbox   `json:"sandbox,omitzero"`
	Agent     Agent     `json:"agent,omitzero"`

	// Env is given to the agent as it is. Secrets are names only: their
	// values live on workers and never travel in a job.
	Env     map[string]string `json:"env,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`

	// Setup runs before the agent and Check after it, in the same workspace. A
	// failing check goes back to the agent up to CheckRounds times. With
	// ExpectChanges an agent that changed nothing has not done its work.
	Setup         []string `json:"setup,omitempty"`
	Check         []string `json:"check,omitempty"`
	CheckRounds   int      `json:"check_rounds,omitempty"`
	ExpectChanges bool     `json:"expect_changes,omitempty"`
	// CheckReports are files of the workspace, in the syntax of Artifacts, that checks
	// write in the format of JUnit. See [Check.Tests].
	CheckReports []string `json:"check_reports,omitempty"`
	// ResultSchema is the JSON Schema of what the agent has to set as the job's
	// result, with the command penstock in its jail. See [Result.Value].
	ResultSchema json.RawMessage `json:"result_schema,omitempty"`
	// FreshSetup runs Setup for this job, whether what it writes is there
	// already or not.
	FreshSetup bool `json:"fresh_setup,omitempty"`

	Ask         Ask      `json:"ask,omitzero"`
	Timeout     Duration `json:"timeout,omitempty"`
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
	Budget      Budget   `json:"budget,omitzero"`
	Retry       Retry    `json:"retry,omitzero"`
	Deliver     Deliver  `json:"deliver,omitzero"`

	// Artifacts are files of the workspace to keep besides the patch, whether
	// they were changed or not, and ignored or not: paths in the syntax of
	// [path.Match], with ** for any number of directories. A directory stands
	// for all that is in it.
	Artifacts []string `json:"artifacts,omitempty"`

	RunAt *time.Time `json:"run_at,omitempty"`
	// DependsOn are jobs that must succeed before this one begins. Where one
	// ends otherwise, this one is skipped.
	DependsOn []string `json:"depends_on,omitempty"`

	// Trace is where the submission stands in a trace. A job without one begins
	// its own.
	Trace Trace `json:"trace,omitzero"`
	// Signature lets workers see who wrote the job.
	Signature *Signature `json:"signature,omitempty"`
}

// An Issue is the report that the agent works on. It is data written by
// strangers: nothing in it is ever interpreted by the pool.
type Issue struct {
	Number int      `json:"number,omitempty"`
	Title  string   `json:"title,omitempty"`
	Body   string   `json:"body,omitempty"`
	URL    string   `json:"url,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

// A File is handed to the agent read-only, under Name in the directory that
// PENSTOCK_INPUT_DIR names.
type File struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// A Repo says what the agent works on: a URL or an absolute path, and the
// ref or commit to begin from. Without either the default branch is taken.
type Repo struct {
	URL    string `json:"url,omitempty"`
	Ref    string `json:"ref,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Sandbox says what the agent's processes may touch.
type Sandbox struct {
	Backend    string   `json:"backend,omitempty"`
	Preset     string   `json:"preset,omitempty"`
	Network    Network  `json:"network,omitempty"`
	AllowHosts []string `json:"allow_hosts,omitempty"`
	Limits     Limits   `json:"limits,omitzero"`
	// AllowWeaker lists the features that may be missing on the worker's
	// host. What was missing is written in the result.
	AllowWeaker []string `json:"allow_weaker,omitempty"`
}

// Limits bound what one attempt may use. Zero means the worker's default.
type Limits struct {
	Memory     Bytes   `json:"memory,omitempty"`
	CPUs       float64 `json:"cpus,omitempty"`
	CPUWeight  int     `json:"cpu_weight,omitempty"` // against the 100 of a job without
	PIDs       int     `json:"pids,omitempty"`
	Disk       Bytes   `json:"disk,omitempty"`        // that each program's workspace may grow by
	Inodes     int64   `json:"inodes,omitempty"`      // the same, in files and directories
	OutputRate Bytes   `json:"output_rate,omitempty"` // per second; a program that writes faster is slowed

	// For network allowlist, of all programs of the attempt together.
	Traffic     Bytes `json:"traffic,omitempty"`     // to and from the allowed hosts
	Connections int   `json:"connections,omitempty"` // to them, at once
}

// Agent names the coding agent and how to start it. Command is for the agent
// "command" only.
type Agent struct {
	Name string `json:"name,omitempty"`
	// Version is the version of the agent's program, which workers have installed beside
	// others. Empty is the one that the worker finds.
	Version string   `json:"version,omitempty"`
	Command []string `json:"command,omitempty"`
	Model   string   `json:"model,omitempty"`
	// Effort is how much the model is to think, as the agent names it: "low", "high".
	Effort string `json:"effort,omitempty"`
	// AllowModels are the models that the agent may call, by the names that they have on the
	// wire; one that ends with * stands for all that begin so. Empty is all that the worker's
	// policy permits. At most MaxAllowed, as of each list below.
	AllowModels []string `json:"allow_models,omitempty"`
	// AllowServiceTiers, AllowInferenceGeos, AllowBetas, AllowFileIDs and AllowContainerIDs are in
	// the same way the service tiers and speeds that calls of models may ask for, the places where
	// the model is to run, the beta features, and the files and containers of the provider that
	// they may use.
	AllowServiceTiers  []string `json:"allow_service_tiers,omitempty"`
	AllowInferenceGeos []string `json:"allow_inference_geos,omitempty"`
	AllowBetas         []string `json:"allow_betas,omitempty"`
	AllowFileIDs       []string `json:"allow_file_ids,omitempty"`
	AllowContainerIDs  []string `json:"allow_container_ids,omitempty"`
	MaxTurns           int      `json:"max_turns,omitempty"`
	Args               []string `json:"args,omitempty"`
	Interactive        bool     `json:"interactive,omitempty"`
	// Terminals gives the agent terminals in its jail, which people can look at.
	Terminals bool `json:"terminals,omitempty"`
	// Instructions are added to what the agent is told in each of its conversations,
	// beside the instruction files of the repository. At most MaxInstructions bytes.
	Instructions string `json:"instructions,omitempty"`
	// Skills are directories of instructions for the agent, by name: those that its user would
	// have in its configuration.
	Skills map[string]Skill `json:"skills,omitempty"`
	// MCPServers are servers of tools for the agent, by name.
	MCPServers map[string]MCPServer `json:"mcp_servers,omitempty"`
}

// Budget bounds what a job may spend, and what all jobs of its batch may spend together.
// Zero means no bound.
type Budget struct {
	USD         float64 `json:"usd,omitempty"`
	Tokens      int64   `json:"tokens,omitempty"`
	BatchUSD    float64 `json:"batch_usd,omitempty"`
	BatchTokens int64   `json:"batch_tokens,omitempty"`
	// OnSpent says what follows when a budget is spent. Empty: the job's own ends it, and one
	// of a queue, a key or the pool parks it until the next period.
	OnSpent OnSpent `json:"on_spent,omitempty"`
}

// OnSpent says what follows for a job when a budget is spent.
type OnSpent string

// What may follow. A budget of a batch ends its jobs in any case.
const (
	SpentEnds  OnSpent = "end"
	SpentParks OnSpent = "park" // until it has room again
)

// An Allowance is what a job may spend in all its attempts.
type Allowance struct {
	USD    float64 `json:"usd,omitempty" jsonschema:"In US dollars. Left out, as it was."`
	Tokens int64   `json:"tokens,omitempty" jsonschema:"In tokens. Left out, as it was."`
}

// Retry bounds how often an agent is run for a job. Attempts that the pool
// lost do not count; see [Reason].
type Retry struct {
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// Deliver says where the result goes besides the store.
type Deliver struct {
	Mode   string `json:"mode,omitempty"`
	Branch string `json:"branch,omitempty"`
	// Base is the branch that a pull request is to be merged into; empty is the
	// repository's default branch. Labels and Reviewers are those of the pull request.
	Base      string   `json:"base,omitempty"`
	Labels    []string `json:"labels,omitempty"`
	Reviewers []string `json:"reviewers,omitempty"`
	// Draft has no effect: pull requests are drafts, and a person says that one is ready.
	Draft bool `json:"draft,omitempty"`
	// DraftText: the agent writes title and text for its change.
	DraftText bool `json:"draft_text,omitempty"`
}

// Priority orders the jobs of a queue.
type Priority string

// The three priorities; each is a lane of its own in the queue.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Isolation says where an attempt's files live.
type Isolation string

// The three modes of isolation. Worktree is the default; None is asked for
// by name.
const (
	IsolationNone      Isolation = "none"
	IsolationWorktree  Isolation = "worktree"
	IsolationContainer Isolation = "container"
)

// Network says what an agent's processes can reach besides the model API.
type Network string

// The three networks. None is the default: only the gate to the model.
const (
	NetworkNone      Network = "none"
	NetworkAllowlist Network = "allowlist"
	NetworkFull      Network = "full"
)

// WithDefaults returns the job with every default filled in.
func (j Job) WithDefaults() Job {
	setDefault(&j.Queue, "default")
	setDefault(&j.Priority, Normal)
	setDefault(&j.Isolation, IsolationWorktree)
	setDefault(&j.Sandbox.Backend, "auto")
	setDefault(&j.Sandbox.Preset, "strict")
	setDefault(&j.Sandbox.Network, NetworkNone)
	setDefault(&j.Timeout, Duration(30*time.Minute))
	setDefault(&j.IdleTimeout, Duration(10*time.Minute))
	setDefault(&j.Retry.MaxAttempts, 3)
	setDefault(&j.Deliver.Mode, "patch")
	if j.Agent.Name == "" && len(j.Agent.Command) > 0 {
		j.Agent.Name = "command"
	}
	return j
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// class is the queue among those that have the same needs: workers that lack
// one are never offered the job. No queue's name and no need has "--" in it.
func (j Job) class() string {
	return strings.Join(append([]string{j.Queue}, slices.Compact(slices.Sorted(slices.Values(j.needed())))...), "--")
}

// Title is one short line that tells people which job this is.
func (j Job) Title() string {
	if j.Issue != nil && j.Issue.Title != "" {
		return oneLine(j.Issue.Title, 120)
	}
	return oneLine(j.Prompt, 120)
}

// ItemID is the job's identifier in its batch: the item that the importer
// named, else the issue's number, else the job's own id.
func (j Job) ItemID(id string) string {
	switch {
	case j.Item != "":
		return j.Item
	case j.Issue != nil && j.Issue.Number > 0:
		return itoa(j.Issue.Number)
	}
	return id
}
