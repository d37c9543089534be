package event

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// RunExited says how the agent's process ended.
type RunExited struct {
	Code     int    `json:"code" jsonschema:"Its exit code."`
	Signal   string `json:"signal,omitempty" jsonschema:"The signal that ended it."`
	Class    string `json:"class" jsonschema:"ok, error, interrupted, limit, died or no_turn."` // series are made of these
	OpenTurn bool   `json:"open_turn,omitempty" jsonschema:"A turn was open."`
}

// SessionStarted is what the agent says of itself when it begins.
type SessionStarted struct {
	Session string          `json:"session" jsonschema:"What the agent calls its conversation."`
	Model   string          `json:"model,omitempty" jsonschema:"The model that it uses."`
	Cwd     string          `json:"cwd,omitempty" jsonschema:"The directory that it works in."`
	Mode    string          `json:"mode,omitempty" jsonschema:"Its mode of permissions, in its own words."`
	Version string          `json:"version,omitempty" jsonschema:"Its version."`
	Tools   []string        `json:"tools,omitempty" jsonschema:"The tools that it has."`
	MCP     json.RawMessage `json:"mcp,omitempty" jsonschema:"Its MCP servers, as it tells them."`
	CanAsk  bool            `json:"can_ask" jsonschema:"It can ask questions."`
}

// TurnStarted says that a turn of the agent begins. Nothing belongs to it.
type TurnStarted struct{}

// TurnEnded says how a turn ended. Usage and cost are those of the scope that is
// named beside them: an agent may report them per turn or per process.
type TurnEnded struct {
	Status     string                `json:"status" jsonschema:"ok, error, interrupted or limit."`
	Reason     string                `json:"reason,omitempty" jsonschema:"Why the turn ended, in the agent's words."`
	Result     string                `json:"result,omitempty" jsonschema:"What the agent said last."`
	Errors     []string              `json:"errors,omitempty" jsonschema:"What went wrong."`
	HTTP       int                   `json:"http,omitempty" jsonschema:"The model API's status, of a turn that it failed."`
	Usage      jobs.Usage            `json:"usage" jsonschema:"Tokens."`
	UsageScope string                `json:"usage_scope,omitempty" jsonschema:"What usage is of: turn, process or session."`
	CostUSD    float64               `json:"cost_usd,omitempty" jsonschema:"The cost in US dollars, as the agent estimates it."`
	CostScope  string                `json:"cost_scope,omitempty" jsonschema:"What cost_usd is of: turn, process or session."`
	Denials    json.RawMessage       `json:"denials,omitempty" jsonschema:"What the agent was not permitted, as it tells it."`
	ByModel    map[string]jobs.Usage `json:"by_model,omitempty" jsonschema:"Tokens by model."`
	Seconds    float64               `json:"duration_seconds,omitempty" jsonschema:"How long the turn took, as the agent tells it or as its worker measured it."`
}

// StateChanged says what the agent is doing.
type StateChanged struct {
	State string `json:"state,omitempty" jsonschema:"running, waiting, idle, compacting or requesting."`
}

// InputState says what has become of a message to the agent.
type InputState control.Input

// Content is what the message says, for people: its text, and what images it has.
func (d InputState) Content() string {
	if len(d.Images) == 0 {
		return d.Text
	}
	return strings.TrimSpace(d.Text + " [" + control.DescribeImages(d.Images) + "]")
}

// Message is what was said, as a whole. It is the shape of [MessageDelta],
// [Thought] and [ThoughtDelta], too.
type Message struct {
	Role    string `json:"role,omitempty" jsonschema:"assistant, or user."`
	Text    string `json:"text" jsonschema:"The text; of a delta, the next piece of it."`
	Message string `json:"message,omitempty" jsonschema:"The agent's id of the message."`
	Parent  string `json:"parent,omitempty" jsonschema:"The tool call of the subagent that said it."`
	Error   string `json:"error,omitempty" jsonschema:"Why the model did not answer."`
	Aborted bool   `json:"aborted,omitempty" jsonschema:"The message was not finished."`
}

// MessageDelta is a piece of a message. The whole follows.
type MessageDelta Message

// Thought is what the agent thinks, as a whole.
type Thought Message

// ThoughtDelta is a piece of a thought, or says that the agent thinks.
type ThoughtDelta Message

// Tool is the shape of [ToolStarted], [ToolOutput] and [ToolEnded]. OK, Output
// and ExitCode are known when the tool has ended.
type Tool struct {
	Call     string          `json:"call" jsonschema:"The agent's id of the call."`
	Name     string          `json:"name,omitempty" jsonschema:"The tool's name, as the agent has it."`
	Kind     string          `json:"kind,omitempty" jsonschema:"read, edit, execute, search, fetch, mcp, agent, plan, ask or other."`
	Title    string          `json:"title,omitempty" jsonschema:"What it is used for, in a line."`
	Parent   string          `json:"parent,omitempty" jsonschema:"The tool call of the subagent that uses it."`
	Input    json.RawMessage `json:"input,omitempty" jsonschema:"The tool's input, as the agent has it."`
	OK       *bool           `json:"ok,omitempty" jsonschema:"It succeeded."`
	Output   string          `json:"output,omitempty" jsonschema:"What it put out."`
	ExitCode *int            `json:"exit_code,omitempty" jsonschema:"Its exit code, if it is a program."`
	Result   json.RawMessage `json:"result,omitempty" jsonschema:"Its result, as the agent has it."`
}

// ToolStarted says that the agent uses a tool.
type ToolStarted Tool

// ToolDelta is a piece of a tool's input, while the model writes it.
type ToolDelta struct {
	Text   string `json:"text" jsonschema:"The next piece of the input's JSON."`
	Parent string `json:"parent,omitempty" jsonschema:"The tool call of the subagent that uses the tool."`
}

// ToolOutput is what a tool puts out while it runs.
type ToolOutput Tool

// ToolEnded says what came of a tool.
type ToolEnded Tool

// FileChanged says that the agent changed a file.
type FileChanged struct {
	Path   string `json:"path" jsonschema:"The file, as the agent names it."`
	Change string `json:"change" jsonschema:"create, update or delete."`
	Call   string `json:"call,omitempty" jsonschema:"The tool call that did it."`
}

// PlanUpdated is the agent's list of what it is going to do.
type PlanUpdated struct {
	Call  string          `json:"call,omitempty" jsonschema:"The tool call that wrote it."`
	Items json.RawMessage `json:"items" jsonschema:"The list, as the agent has it."`
}

// TaskUpdated is about what the agent runs in the background.
type TaskUpdated struct {
	Task   string    `json:"task,omitempty" jsonschema:"The agent's id of the task."`
	Status string    `json:"status,omitempty" jsonschema:"The task's state, in the agent's words."`
	Call   string    `json:"call,omitempty" jsonschema:"The tool call that began it."`
	Text   string    `json:"text,omitempty" jsonschema:"What the task does, or came to."`
	Live   *[]string `json:"live,omitempty" jsonschema:"All tasks that run, where that is what changed."`
	Tokens int64     `json:"tokens,omitempty" jsonschema:"How many tokens a subagent has used so far."`
}

// AskOpened says that the agent waits for an answer.
type AskOpened control.Ask

// AskClosed says what became of a question.
type AskClosed control.Ask

// Usage is what the agent says it used.
type Usage struct {
	Scope  string `json:"scope" jsonschema:"What tokens are of: call, turn, process or session."`
	Tokens Tokens `json:"tokens" jsonschema:"How many."`
}

// Tokens are counted by direction or, by agents that tell no more, as the size
// of the conversation.
type Tokens struct {
	*jobs.Usage
	Context *int64 `json:"context,omitempty" jsonschema:"How many tokens the model reads with the next call."`
	Window  *int64 `json:"window,omitempty" jsonschema:"How many tokens it can read, as far as the agent knows; nearer to it the agent compacts the conversation."`
}

// Retry says that the agent tries the model API again.
type Retry struct {
	Attempt  int     `json:"attempt" jsonschema:"Which time this is."`
	Max      int     `json:"max,omitempty" jsonschema:"How often the agent tries."`
	DelayMS  float64 `json:"delay_ms,omitempty" jsonschema:"How long it waits before that, in milliseconds."`
	HTTP     int     `json:"http,omitempty" jsonschema:"The status that the API answered with."`
	Class    string  `json:"class,omitempty" jsonschema:"The kind of error, in the agent's words."`
	Hopeless bool    `json:"hopeless,omitempty" jsonschema:"Trying again will not help."`
}

// Limit is what the agent says of the limits of its account, as it says it.
type Limit struct{ json.RawMessage }

// Notice is something that a person should see. Which fields there are depends
// on what it is about.
type Notice struct {
	Type string `json:"type,omitempty" jsonschema:"What it is about, in the agent's words."`
	Text string `json:"text,omitempty" jsonschema:"What a person should know."`
	Call string `json:"call,omitempty" jsonschema:"The tool call that it is about."`
	Tool string `json:"tool,omitempty" jsonschema:"The tool that it is about."`

	Skipped  []string `json:"skipped,omitempty" jsonschema:"Files that are not kept, each with the reason."`
	RunsCode []string `json:"runs_code,omitempty" jsonschema:"Changes of files that others' tools execute."`
	Notes    []string `json:"notes,omitempty" jsonschema:"What else a person should look at before using the patch."`

	Dropped int `json:"dropped_events,omitempty" jsonschema:"How many events were not kept."`
	Limit   int `json:"limit_bytes,omitempty" jsonschema:"How much of an agent's output is kept."`

	SalvageEpoch uint64 `json:"salvage_epoch,omitempty" jsonschema:"The epoch of the salvage that the workspace begins with."`
	Files        *int   `json:"files_changed,omitempty" jsonschema:"How many files the salvage changes."`
	Commits      *int   `json:"commits,omitempty" jsonschema:"How many commits the salvage has."`
}

// Hook is what a hook of the agent reports.
type Hook struct {
	Type     string `json:"type" jsonschema:"The hook's name."`
	Event    string `json:"event,omitempty" jsonschema:"The agent's event that the hook ran for."`
	Outcome  string `json:"outcome,omitempty" jsonschema:"How the hook ended, in the agent's words."`
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"The hook's exit code."`
}

// ControlReply is the agent's answer to a request that is no message.
type ControlReply struct {
	Type string `json:"type" jsonschema:"The id of the control message, or the request's name."`
	Text string `json:"text,omitempty" jsonschema:"What went wrong."`
	OK   *bool  `json:"ok,omitempty" jsonschema:"It was done."`
}

// OutputLine is a line of the agent's output that is no message of its protocol.
type OutputLine struct {
	Stream string `json:"stream" jsonschema:"stdout or stderr."`
	Text   string `json:"text" jsonschema:"The line."`
	Cut    int    `json:"cut,omitempty" jsonschema:"How many bytes are missing, of a line longer than an event may be."`
}

// AgentRaw is a message of the agent that has no kind of its own. The event's
// raw has all of it.
type AgentRaw struct {
	Type    string `json:"type" jsonschema:"The message's type, in the agent's words."`
	Subtype string `json:"subtype,omitempty" jsonschema:"Its subtype."`
}
