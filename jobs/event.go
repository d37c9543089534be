package jobs

import (
	"encoding/json"
	"time"
)

// MaxEventBytes is the largest event that is kept inline. What is larger is
// cut, and says so; the whole of it goes to the object store.
const MaxEventBytes = 256 << 10

// An Event is one line of a session's log. Seq has neither gap nor double
// within a session, over all its attempts and workers.
type Event struct {
	Seq     uint64          `json:"seq"`
	Time    time.Time       `json:"ts"`
	Job     string          `json:"job"`
	Session string          `json:"session"`
	Attempt int             `json:"attempt"`
	Agent   string          `json:"agent,omitempty"`
	Turn    int             `json:"turn"`
	Kind    Kind            `json:"kind"`
	Data    json.RawMessage `json:"data,omitempty"`
	// Raw is the agent's own line. It stands on the first event made of that
	// line and on no other, so the output can be put together again.
	Raw *Raw `json:"raw,omitempty"`
}

// Raw is one line as the agent wrote it: JSON where it is valid, else Text.
type Raw struct {
	Stream string          `json:"stream"` // stdout or stderr
	N      int             `json:"n"`      // the line's number in its stream, from 1
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   string          `json:"text,omitempty"`
}

// Kind is what an event tells. Package event has the payload of each.
type Kind string

// The events of the pool around an agent.
const (
	JobSubmitted  Kind = "job.submitted"
	JobClaimed    Kind = "job.claimed"
	JobRequeued   Kind = "job.requeued"
	JobWaiting    Kind = "job.waiting"
	JobFinished   Kind = "job.finished"
	JobReopened   Kind = "job.reopened"
	JobRejected   Kind = "job.rejected"
	WorkspaceDone Kind = "workspace.ready"

	WorkspaceProgress Kind = "workspace.progress"
	WorkspaceGrew     Kind = "workspace.grown"
	JailStarted       Kind = "jail.started"
	JailViolation     Kind = "jail.violation"
	NetworkUsed       Kind = "jail.network"
	SetupEnded        Kind = "setup.ended"
	CheckStarted      Kind = "check.started"
	CheckEnded        Kind = "check.ended"
	CheckReturned     Kind = "check.returned"
	BranchDone        Kind = "branch.delivered"
	HangDetected      Kind = "hang.detected"
	HangEnded         Kind = "hang.ended"
	SalvageStored     Kind = "salvage.stored"
	CapsuleStored     Kind = "capsule.stored"
	SessionContinued  Kind = "session.continued"
	OverlapFound      Kind = "overlap.found"
	BudgetWarned      Kind = "budget.warned"
	BudgetSpent       Kind = "budget.exceeded"
)

// What the programs of a jail tell their worker, and what happens in the
// terminals there.
const (
	Milestone      Kind = "milestone"
	ArtifactStored Kind = "artifact.stored"
	ResultSet      Kind = "result.set"

	TerminalCreated  Kind = "terminal.created"
	TerminalAttached Kind = "terminal.attached"
	TerminalOutput   Kind = "terminal.output"
	TerminalExited   Kind = "terminal.exited"
)

// The events of an agent's run, one vocabulary for all agents.
const (
	RunExited      Kind = "run.exited"
	SessionStarted Kind = "session.started"
	TurnStarted    Kind = "turn.started"
	TurnEnded      Kind = "turn.ended"
	StateChanged   Kind = "state.changed"
	InputState     Kind = "input.state"
	Message        Kind = "message"
	MessageDelta   Kind = "message.delta"
	Thought        Kind = "thought"
	ThoughtDelta   Kind = "thought.delta"
	ToolStarted    Kind = "tool.started"
	ToolDelta      Kind = "tool.delta"
	ToolOutput     Kind = "tool.output"
	ToolEnded      Kind = "tool.ended"
	FileChanged    Kind = "file.changed"
	PlanUpdated    Kind = "plan.updated"
	TaskUpdated    Kind = "task.updated"
	AskOpened      Kind = "ask.opened"
	AskClosed      Kind = "ask.closed"
	UsageReported  Kind = "usage"
	RetryReported  Kind = "retry"
	LimitReported  Kind = "limit"
	Notice         Kind = "notice"
	HookReported   Kind = "hook"
	ControlReply   Kind = "control.reply"
	OutputLine     Kind = "output.line"
	AgentRaw       Kind = "agent.raw"
)
