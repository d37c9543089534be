package event

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// WorkspaceReady says where the session's files are.
type WorkspaceReady struct {
	Base      string         `json:"base_commit,omitempty" jsonschema:"The commit that the agent begins from."`
	Isolation jobs.Isolation `json:"isolation" jsonschema:"Where the files live."`
	Strategy  string         `json:"strategy,omitempty" jsonschema:"How the workspace was made: overlay, clone, linked or hook."`
	Seconds   float64        `json:"seconds" jsonschema:"How long that took."`

	OriginalDir    string `json:"original_dir,omitempty" jsonschema:"The path that the job named, if the repository is a path."`
	OriginalBranch string `json:"original_branch,omitempty" jsonschema:"The branch that is checked out there."`

	Name   string `json:"name,omitempty" jsonschema:"The name of the user's worktree, if the workspace is one."`
	Path   string `json:"path,omitempty" jsonschema:"The worktree's path."`
	Branch string `json:"branch,omitempty" jsonschema:"The worktree's branch."`
	Head   string `json:"head_commit,omitempty" jsonschema:"The worktree's commit."`
	Reused bool   `json:"reused,omitempty" jsonschema:"The worktree was there before."`
}

// WorkspaceProgress says how far a fetch or a checkout has come. Done and Total
// are counted in what the phase is about.
type WorkspaceProgress struct {
	Step    string  `json:"step" jsonschema:"fetch, history or checkout."`
	Phase   string  `json:"phase" jsonschema:"Git's own name for what it does, such as Receiving objects."`
	Percent int     `json:"percent" jsonschema:"How much of the phase is done."`
	Done    int64   `json:"done" jsonschema:"How many objects or files are done."`
	Total   int64   `json:"total" jsonschema:"How many there are."`
	Seconds float64 `json:"seconds" jsonschema:"The time since the step began."`
}

// WorkspaceGrown says what the workspace takes on the host's disk.
type WorkspaceGrown jobs.DiskUse

// JailStarted says that the agent's process runs.
type JailStarted struct {
	Backend string   `json:"backend" jsonschema:"What made the jail."`
	Command []string `json:"command" jsonschema:"The agent's program and its arguments."`
	Version string   `json:"agent_version,omitempty" jsonschema:"The version of the agent's program, if the job names one."`
	Digest  string   `json:"agent_digest,omitempty" jsonschema:"The SHA-256 of the list of that program's files."`
	Root    string   `json:"root,omitempty" jsonschema:"What its programs come from: the image by its id, or the SHA-256 of the list of what the host shows to every jail."`
	Weaker  []string `json:"weaker,omitempty" jsonschema:"What the host cannot enforce and the job allowed."`
	Watched []string `json:"watched,omitempty" jsonschema:"Limits that can be exceeded for a moment."`
}

// JailViolation says what a jail wanted and did not get. It stands in the log
// once for each thing that was wanted, however often it was; [JailNetwork] has
// the number.
type JailViolation struct {
	Kind   string `json:"kind" jsonschema:"network, model, mcp, policy or limit."`
	Method string `json:"method,omitempty" jsonschema:"CONNECT, DNS, TLS, TCP, or the method of an HTTP request."`
	Host   string `json:"host,omitempty" jsonschema:"The host that was asked for, if one could be read."`
	Port   int    `json:"port,omitempty" jsonschema:"Its port."`
	// Setting is "limits.memory: 2GiB" of a policy, "memory" of a limit, and
	// "POST /v1/files" of a model API, and the name of an MCP server.
	Setting string `json:"setting,omitempty" jsonschema:"The setting that a policy did not permit, the limit, the request to a model API, or the MCP server."`
	Field   string `json:"field,omitempty" jsonschema:"What of a request to a model API was not permitted: model, service_tier, inference_geo, beta, file_id or container_id."`
	Reason  string `json:"reason" jsonschema:"Why; of a network: not-listed, address, other-name, not-tls, malformed or budget."`
}

// What names what was wanted: host:port, the host alone, or the setting.
func (v JailViolation) What() string {
	if v.Setting != "" {
		return v.Setting
	}
	if v.Port == 0 {
		return v.Host
	}
	if strings.Contains(v.Host, ":") {
		return "[" + v.Host + "]:" + strconv.Itoa(v.Port)
	}
	return v.Host + ":" + strconv.Itoa(v.Port)
}

// JailNetwork says what an attempt reached besides the model API.
type JailNetwork struct {
	Hosts    []Host `json:"hosts" jsonschema:"The hosts, up to some hundreds."`
	Sent     int64  `json:"sent_bytes" jsonschema:"Bytes to all of them."`
	Received int64  `json:"received_bytes" jsonschema:"Bytes from all of them."`
	Refused  int    `json:"refused" jsonschema:"How many requests were refused."`
}

// Host is what went to one host. The one without a name sums up those beyond
// the first hundreds.
type Host struct {
	Host        string `json:"host" jsonschema:"The host's name; empty: all others."`
	Port        int    `json:"port,omitempty" jsonschema:"The port."`
	Connections int    `json:"connections" jsonschema:"How many connections there were."`
	Sent        int64  `json:"sent_bytes" jsonschema:"Bytes to it."`
	Received    int64  `json:"received_bytes" jsonschema:"Bytes from it."`
}

// SetupEnded says how the job's setup commands went.
type SetupEnded struct {
	Cached  bool    `json:"cached" jsonschema:"What they had written for another job was taken over."`
	Seconds float64 `json:"seconds" jsonschema:"How long it took, with the time that was waited for another job."`
	Saved   float64 `json:"saved_seconds,omitempty" jsonschema:"How much of the other job's time was saved."`
	Reason  string  `json:"reason,omitempty" jsonschema:"Why the commands ran for this job alone."`
}

// CheckStarted says that a command of setup or check begins. Of its fields,
// command is known.
type CheckStarted jobs.Check

// CheckEnded says how a command of setup or check has ended.
type CheckEnded struct {
	jobs.Check
	Output string `json:"output" jsonschema:"The end of its output."`
}

// CheckReturned says that a failed check goes back to the agent.
type CheckReturned struct {
	jobs.Check
	Round int `json:"round" jsonschema:"Which time this is, from 1."`
	Of    int `json:"of" jsonschema:"How often it may be."`
}

// Hang is the shape of [HangDetected] and [HangEnded].
type Hang struct {
	What    string      `json:"what" jsonschema:"start, idle, stopped, output, retry or exit."` // series are made of these
	Message string      `json:"message,omitempty" jsonschema:"What was seen, for people."`
	Seconds float64     `json:"seconds" jsonschema:"How long it lasted; of hang.ended, how long the agent's end took."`
	Step    string      `json:"step,omitempty" jsonschema:"The step that ended the agent: interrupt, input, term or kill."`
	Reason  jobs.Reason `json:"reason,omitempty" jsonschema:"What the attempt ends for; empty: what the agent did counts."`
}

// HangDetected says that the agent hangs, and is being ended.
type HangDetected Hang

// HangEnded says that nothing of an agent that hung is alive any more.
type HangEnded Hang

// Milestone is what a program of the jail reports, in a line.
type Milestone struct {
	Text string `json:"text" jsonschema:"What was reached."`
}

// ArtifactStored says that a file is kept.
type ArtifactStored jobs.Artifact

// ResultSet says what the agent set as the job's result. The last one counts.
type ResultSet struct {
	Value json.RawMessage `json:"value" jsonschema:"Any JSON; of a job with result_schema, such as that describes."`
}

// Terminal is the shape of the events about terminals.
type Terminal struct {
	Terminal int      `json:"terminal" jsonschema:"The terminal's number in the session."`
	By       string   `json:"by,omitempty" jsonschema:"Who opened it, or began to look at it."`
	Args     []string `json:"args,omitempty" jsonschema:"Its program and arguments, where it was created."`
	Rows     uint16   `json:"rows,omitempty" jsonschema:"Its height, where it was created."`
	Columns  uint16   `json:"columns,omitempty" jsonschema:"Its width, where it was created."`
	// Text is UTF-8, with control characters and all.
	Text    string `json:"text,omitempty" jsonschema:"What it has shown, without the values of secrets."`
	Code    *int   `json:"exit_code,omitempty" jsonschema:"The program's exit code."`
	Signal  string `json:"signal,omitempty" jsonschema:"The signal that ended the program."`
	Why     string `json:"why,omitempty" jsonschema:"Why the code is not known."`
	Dropped int64  `json:"dropped_bytes,omitempty" jsonschema:"Bytes that it has shown and no event or recording has."`
}

// TerminalCreated says that a terminal was opened.
type TerminalCreated Terminal

// TerminalAttached says that a person looks at a terminal that is there.
type TerminalAttached Terminal

// TerminalOutput is what a terminal has shown.
type TerminalOutput Terminal

// TerminalExited says that a terminal's program has ended.
type TerminalExited Terminal
