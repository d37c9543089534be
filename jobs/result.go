package jobs

import "encoding/json"

// A Result is what is left of a finished job: one line of results.jsonl, and
// the data of the event job.finished.
type Result struct {
	// ID is the item's identifier in its batch, Job the job's own.
	ID      string  `json:"id"`
	Job     string  `json:"job"`
	Session string  `json:"session"`
	Key     string  `json:"key"`
	Outcome Outcome `json:"outcome"`
	Reason  Reason  `json:"reason"`
	Message string  `json:"message"`

	Attempts     int     `json:"attempts"`
	BaseCommit   string  `json:"base_commit"`
	Commits      int     `json:"commits"`
	FilesChanged int     `json:"files_changed"`
	PatchSHA256  string  `json:"patch_sha256"`
	Branch       string  `json:"branch"`
	Checks       []Check `json:"checks"`

	Durations Durations `json:"durations"`
	// Usage and CostUSD are of all attempts, as far as they could tell before
	// they ended; LastAttempt is of the last one alone.
	Usage       Usage   `json:"usage"`
	CostUSD     float64 `json:"cost_usd"`
	LastAttempt Spent   `json:"last_attempt"`
	Model       string  `json:"model"`
	// AgentVersion and AgentDigest are the version of the agent's program, and the SHA-256
	// of the list of its files, if the job names a version.
	AgentVersion string `json:"agent_version,omitempty"`
	AgentDigest  string `json:"agent_digest,omitempty"`

	Isolation Isolation `json:"isolation"`
	Backend   string    `json:"backend"`
	// Weaker lists what the host could not enforce and the job allowed.
	Weaker []string `json:"weaker"`
	// Roots are what the programs of the attempt's jails came from: images by their ids, or the
	// SHA-256 of the list of what the host shows to every jail. Empty: unknown, or no jail.
	Roots  []string `json:"roots,omitempty"`
	Worker string   `json:"worker"`
	// Value is what the agent has set as the job's result; it fits the job's
	// ResultSchema, where there is one.
	Value json.RawMessage `json:"value,omitempty"`
	// Disk is what the last attempt's workspace took on its worker's disk when
	// the agent had ended, beside what it shared with others.
	Disk      DiskUse    `json:"disk"`
	Artifacts []Artifact `json:"artifacts"`
}

// DiskUse is what a workspace takes on the host's disk.
type DiskUse struct {
	Bytes  int64 `json:"bytes" jsonschema:"The size of its files."`
	Inodes int64 `json:"inodes" jsonschema:"The number of its files and directories."`
}

// A Check is one setup or check command that the pool ran itself.
type Check struct {
	Command string  `json:"command" jsonschema:"The command."`
	Exit    int     `json:"exit" jsonschema:"Its exit code."`
	Seconds float64 `json:"seconds" jsonschema:"How long it took."`
	// Cached: it is a setup command that ran for another job, and succeeded.
	Cached bool `json:"cached,omitempty" jsonschema:"It did not run: what it had written for another job was taken over."`
	// Tests is nil for setup commands, and without CheckReports.
	Tests *Tests `json:"tests,omitempty" jsonschema:"What its reports of tests say."`
}

// Tests are counts from the reports that a check's programs wrote. These programs are part
// of the change, so the counts decide nothing: the exit code does.
type Tests struct {
	Passed  int `json:"passed" jsonschema:"How many tests passed."`
	Failed  int `json:"failed" jsonschema:"How many failed."`
	Errors  int `json:"errors" jsonschema:"How many ended with an error."`
	Skipped int `json:"skipped" jsonschema:"How many did not run."`
	Flaky   int `json:"flaky,omitempty" jsonschema:"How many of those that passed had failed before they ran again."`
	// FailedCases has up to 20 names of up to 200 bytes, without control characters.
	FailedCases []string `json:"failed_cases,omitempty" jsonschema:"The first tests that failed or ended with an error."`
	Notes       []string `json:"notes,omitempty" jsonschema:"What could not be read, and why."`
}

// Durations of the stages of a job, in seconds.
type Durations struct {
	Queue     float64 `json:"queue"`
	Provision float64 `json:"provision"`
	Jail      float64 `json:"jail"`
	Agent     float64 `json:"agent"`
	Check     float64 `json:"check"`
	Collect   float64 `json:"collect"`
	Total     float64 `json:"total"`
}

// Usage counts tokens as the agent or the gate reported them.
type Usage struct {
	Input      int64 `json:"input" jsonschema:"Tokens read."`
	Output     int64 `json:"output" jsonschema:"Tokens written."`
	CacheRead  int64 `json:"cache_read" jsonschema:"Tokens read from the model's cache."`
	CacheWrite int64 `json:"cache_write" jsonschema:"Tokens written to the model's cache."`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// Total returns the number of all tokens.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Spent is what agents have used.
type Spent struct {
	Usage   Usage   `json:"usage"`
	CostUSD float64 `json:"cost_usd"`
}

// Add returns the sum of both.
func (s Spent) Add(t Spent) Spent {
	return Spent{s.Usage.Add(t.Usage), AddUSD(s.CostUSD, t.CostUSD)}
}

// MostUSD bounds an amount that is summed up.
const MostUSD = 1e12

// AddUSD adds amounts that agents report, each as 0 to [MostUSD]. They may report
// any number, and the sum of two large ones would be infinite, which JSON cannot
// hold: then no event, heartbeat or result could be written.
func AddUSD(a, b float64) float64 {
	within := func(usd float64) float64 { return min(max(usd, 0), MostUSD) }
	return within(within(a) + within(b))
}

// Spend puts into the result what the last attempt has used, and those before it.
func (r *Result) Spend(before, last Spent) {
	all := before.Add(last)
	r.Usage, r.CostUSD, r.LastAttempt = all.Usage, all.CostUSD, last
}

// An Artifact is one stored file of an attempt. Path is where it was in the
// workspace, quoted as in Go where it is not plain text; empty for what the
// worker made itself.
type Artifact struct {
	Name   string `json:"name" jsonschema:"The name in the store."`
	Path   string `json:"path,omitempty" jsonschema:"The file's path in the workspace, if it comes from there."`
	Bytes  int64  `json:"bytes" jsonschema:"Its size."`
	SHA256 string `json:"sha256" jsonschema:"Its checksum."`
}
