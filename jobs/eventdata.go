package jobs

import (
	"encoding/json"
	"strings"
)

// MessageData is the data of [Message], [MessageDelta], [Thought] and
// [ThoughtDelta].
type MessageData struct {
	Role    string `json:"role,omitempty"`
	Text    string `json:"text"`
	Message string `json:"message,omitempty"` // the agent's id of the message
	Parent  string `json:"parent,omitempty"`  // the tool call of a subagent
	Error   string `json:"error,omitempty"`
	Aborted bool   `json:"aborted,omitempty"`
}

// ToolData is the data of the tool events. OK, Output and ExitCode are known
// when the tool has ended.
type ToolData struct {
	Call     string          `json:"call"`
	Name     string          `json:"name,omitempty"`
	Kind     string          `json:"kind,omitempty"` // read edit execute search fetch mcp agent plan ask other
	Title    string          `json:"title,omitempty"`
	Parent   string          `json:"parent,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	OK       *bool           `json:"ok,omitempty"`
	Output   string          `json:"output,omitempty"`
	ExitCode *int            `json:"exit_code,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// ProgressData is the data of [WorkspaceProgress]. Phase is git's own word for
// what it does, as "Receiving objects"; Done and Total are counted in what the
// phase is about.
type ProgressData struct {
	Step    string  `json:"step"` // fetch history checkout
	Phase   string  `json:"phase"`
	Percent int     `json:"percent"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total"`
	Seconds float64 `json:"seconds"` // since the step began
}

// TurnData is the data of [TurnEnded]. Usage and cost are those of the scope
// that is named beside them: an agent may report them per turn or per process.
type TurnData struct {
	Status     string           `json:"status"` // ok error interrupted limit
	Reason     string           `json:"reason,omitempty"`
	Result     string           `json:"result,omitempty"`
	Errors     []string         `json:"errors,omitempty"`
	HTTP       int              `json:"http,omitempty"`
	Usage      Usage            `json:"usage"`
	UsageScope string           `json:"usage_scope,omitempty"` // turn process session
	CostUSD    float64          `json:"cost_usd,omitempty"`
	CostScope  string           `json:"cost_scope,omitempty"`
	Denials    json.RawMessage  `json:"denials,omitempty"`
	ByModel    map[string]Usage `json:"by_model,omitempty"`
}

// RetryData is the data of [RetryReported]: the agent tries the model API
// again. Hopeless says that trying again will not help.
type RetryData struct {
	Attempt  int     `json:"attempt"`
	Max      int     `json:"max,omitempty"`
	DelayMS  float64 `json:"delay_ms,omitempty"`
	HTTP     int     `json:"http,omitempty"`
	Class    string  `json:"class,omitempty"`
	Hopeless bool    `json:"hopeless,omitempty"`
}

// ExitData is the data of [RunExited].
type ExitData struct {
	Code     int    `json:"code"`
	Signal   string `json:"signal,omitempty"`
	Class    string `json:"class"` // ok error interrupted limit died no_turn
	OpenTurn bool   `json:"open_turn,omitempty"`
}

// ViolationData is the data of [JailViolation]: what a jail wanted and did not
// get. It stands in the log once for each thing that was wanted, however often
// it was; [NetworkUsed] has the number.
type ViolationData struct {
	Kind   string `json:"kind"`             // network, model, policy, limit
	Method string `json:"method,omitempty"` // CONNECT, DNS, TLS, TCP or a request's own
	Host   string `json:"host,omitempty"`   // empty where none could be read
	Port   int    `json:"port,omitempty"`
	// Setting is what a policy did not permit, "limits.memory: 2GiB", the limit
	// that was reached, "memory", or what was asked of a model API and is not
	// the agent's to ask, "POST /v1/files".
	Setting string `json:"setting,omitempty"`
	Reason  string `json:"reason"` // of a network: not-listed address other-name not-tls malformed budget
}

// What names what was wanted: host:port, the host alone, or the setting.
func (v ViolationData) What() string {
	if v.Setting != "" {
		return v.Setting
	}
	if v.Port == 0 {
		return v.Host
	}
	if strings.Contains(v.Host, ":") {
		return "[" + v.Host + "]:" + itoa(v.Port)
	}
	return v.Host + ":" + itoa(v.Port)
}

// NetworkData is the data of [NetworkUsed]: what an attempt reached besides
// the model API.
type NetworkData struct {
	Hosts    []HostData `json:"hosts"`
	Sent     int64      `json:"sent_bytes"`
	Received int64      `json:"received_bytes"`
	Refused  int        `json:"refused"` // requests, all in all
}

// HostData is what went to one host. The one without a name sums up those
// beyond the first hundreds.
type HostData struct {
	Host        string `json:"host"`
	Port        int    `json:"port,omitempty"`
	Connections int    `json:"connections"`
	Sent        int64  `json:"sent_bytes"`
	Received    int64  `json:"received_bytes"`
}

// BranchData is the data of [BranchDone]: where the result went. A retry that
// replaces what a lost attempt of the same job had delivered names that commit.
type BranchData struct {
	Repo     string `json:"repo,omitempty"` // without credentials
	Branch   string `json:"branch"`
	Commit   string `json:"commit"`
	Replaced string `json:"replaced,omitempty"`
}

// MilestoneData is the data of [Milestone].
type MilestoneData struct {
	Text string `json:"text"`
}

// ResultData is the data of [ResultSet]: what the agent set as the job's result.
// The last one counts.
type ResultData struct {
	Value json.RawMessage `json:"value"`
}

// LineData is the data of [OutputLine]. Cut counts the bytes that are missing
// because the line was longer than an event may be.
type LineData struct {
	Stream string `json:"stream"`
	Text   string `json:"text"`
	Cut    int    `json:"cut,omitempty"`
}
