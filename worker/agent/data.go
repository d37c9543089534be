package agent

import "encoding/json"

// The data of those events that package jobs leaves open.

// sessionData is the data of session.started.
type sessionData struct {
	Session string          `json:"session"`
	Model   string          `json:"model,omitempty"`
	Cwd     string          `json:"cwd,omitempty"`
	Mode    string          `json:"mode,omitempty"`
	Version string          `json:"version,omitempty"`
	Tools   []string        `json:"tools,omitempty"`
	MCP     json.RawMessage `json:"mcp,omitempty"`
	CanAsk  bool            `json:"can_ask"`
}

// stateData is the data of state.changed and turn.started.
type stateData struct {
	State string `json:"state,omitempty"` // running waiting idle compacting requesting
}

// taskData is the data of task.updated. Live lists what runs in the
// background, when that is what changed.
type taskData struct {
	Task   string    `json:"task,omitempty"`
	Status string    `json:"status,omitempty"`
	Call   string    `json:"call,omitempty"`
	Text   string    `json:"text,omitempty"`
	Live   *[]string `json:"live,omitempty"`
}

// fileData is the data of file.changed.
type fileData struct {
	Path   string `json:"path"`
	Change string `json:"change"` // create update delete
	Call   string `json:"call,omitempty"`
}

// usageData is the data of usage.
type usageData struct {
	Scope  string `json:"scope"` // call turn process session
	Tokens any    `json:"tokens"`
}

// noticeData is the data of notice, hook and control.reply.
type noticeData struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Call     string `json:"call,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Event    string `json:"event,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	OK       *bool  `json:"ok,omitempty"`
}

// rawData is the data of agent.raw.
type rawData struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype,omitempty"`
}

// planData is the data of plan.updated.
type planData struct {
	Call  string          `json:"call,omitempty"`
	Items json.RawMessage `json:"items"`
}
