package claude

import (
	"encoding/json"

	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

// outputLine is any line of Claude Code. Only the fields that are used have names. The
// order of keys is not stable, and a field of an unexpected type stays zero.
type outputLine struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	UUID      string `json:"uuid"`
	Parent    string `json:"parent_tool_use_id"`

	// system
	Cwd            string          `json:"cwd"`
	Model          string          `json:"model"`
	PermissionMode string          `json:"permissionMode"`
	Version        string          `json:"claude_code_version"`
	Tools          []string        `json:"tools"`
	MCP            json.RawMessage `json:"mcp_servers"`
	State          string          `json:"state"`
	Status         string          `json:"status"`
	Tasks          []task          `json:"tasks"`
	TaskID         string          `json:"task_id"`
	ToolUseID      string          `json:"tool_use_id"`
	ToolName       string          `json:"tool_name"`
	Description    string          `json:"description"`
	Summary        string          `json:"summary"`
	Patch          struct {
		Status string `json:"status"`
	} `json:"patch"`
	Attempt     int     `json:"attempt"`
	MaxRetries  int     `json:"max_retries"`
	RetryDelay  float64 `json:"retry_delay_ms"`
	ErrorStatus int     `json:"error_status"`
	Error       string  `json:"error"`
	HookName    string  `json:"hook_name"`
	HookEvent   string  `json:"hook_event"`
	Outcome     string  `json:"outcome"`
	ExitCode    *int    `json:"exit_code"`
	Tokens      int     `json:"estimated_tokens"`

	// assistant and user
	Message    json.RawMessage `json:"message"`
	IsReplay   bool            `json:"isReplay"`
	Synthetic  bool            `json:"isSynthetic"`
	Aborted    bool            `json:"aborted"`
	ToolResult json.RawMessage `json:"tool_use_result"`

	// command_lifecycle, stream_event, rate_limit_event
	CommandID string          `json:"command_uuid"`
	Event     streamEvent     `json:"event"`
	RateLimit json.RawMessage `json:"rate_limit_info"`

	// control
	RequestID string          `json:"request_id"`
	Request   request         `json:"request"`
	Response  json.RawMessage `json:"response"`

	resultLine
}

// resultLine is what a line of type result adds.
type resultLine struct {
	IsError    bool                  `json:"is_error"`
	Terminal   string                `json:"terminal_reason"`
	APIStatus  int                   `json:"api_error_status"`
	DurationMS float64               `json:"duration_ms"`
	Result     string                `json:"result"`
	Errors     []string              `json:"errors"`
	Usage      usage                 `json:"usage"`
	CostUSD    float64               `json:"total_cost_usd"`
	ModelUsage map[string]modelUsage `json:"modelUsage"`
	Since      map[string]modelUsage `json:"model_usage_since_last_result"`
	Denials    json.RawMessage       `json:"permission_denials"`
}

type task struct {
	ID          string `json:"task_id"`
	Type        string `json:"task_type"`
	Description string `json:"description"`
}

type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Total      int64 `json:"total_tokens"` // of a task, which reports nothing else
}

type modelUsage struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	CostUSD    float64 `json:"costUSD"`
	Window     int64   `json:"contextWindow"` // of the model
}

type apiMessage struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   usage           `json:"usage"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type streamEvent struct {
	Type  string `json:"type"`
	Delta struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
		Partial  string `json:"partial_json"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
}

type request struct {
	Subtype     string          `json:"subtype"`
	ToolName    string          `json:"tool_name"`
	Input       json.RawMessage `json:"input"`
	ToolUseID   string          `json:"tool_use_id"`
	Interaction bool            `json:"requires_user_interaction"`
	Suggestions json.RawMessage `json:"permission_suggestions"`
}

type controlResponse struct {
	Type     string `json:"type"`
	Response struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Response  any    `json:"response,omitempty"`
		Error     string `json:"error,omitempty"`
	} `json:"response"`
}

func answerLine(request string, response any) []byte {
	r := controlResponse{Type: "control_response"}
	r.Response.Subtype, r.Response.RequestID, r.Response.Response = "success", request, response
	return decode.JSON(r)
}

func refusalLine(request, why string) []byte {
	r := controlResponse{Type: "control_response"}
	r.Response.Subtype, r.Response.RequestID, r.Response.Error = "error", request, why
	return decode.JSON(r)
}
