package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

var _ agent.Speaker = (*decoder)(nil)

// Say implements [agent.Speaker].
func (d *decoder) Say(id, text string, images ...control.Image) [][]byte {
	d.resting = false
	decode.Remember(d.pending, id, false)
	return [][]byte{userMessage(text, id, images...)}
}

// TakesImages implements [agent.Speaker].
func (d *decoder) TakesImages() error { return nil }

// Interrupt implements [agent.Speaker].
func (d *decoder) Interrupt() [][]byte {
	return [][]byte{controlRequest("interrupt-"+uuid.NewString(), map[string]string{"subtype": "interrupt"})}
}

// Set implements [agent.Speaker].
func (d *decoder) Set(id string, to control.Settings) (lines [][]byte, err error) {
	if to.Effort != "" && !slices.Contains(settable, to.Effort) {
		return nil, control.Refuse(control.Cannot, "agent claude goes on with effort %s, not %q", strings.Join(settable, ", "), to.Effort)
	}
	if to.Model != "" {
		lines = append(lines, controlRequest(id+"-model", map[string]string{"subtype": "set_model", "model": to.Model}))
	}
	if to.Mode != "" {
		lines = append(lines, setMode(id, to.Mode))
	}
	if to.Effort != "" {
		lines = append(lines, controlRequest(id+"-effort", map[string]any{
			"subtype": "apply_flag_settings", "settings": map[string]string{"effortLevel": to.Effort},
		}))
	}
	return lines, nil
}

// efforts are those with which the program begins. What it can be set to while it runs are all
// but the last, and it says nothing when it ignores another.
var (
	efforts  = []string{"low", "medium", "high", "xhigh", "max"}
	settable = efforts[:len(efforts)-1]
)

func setMode(id, mode string) []byte {
	return controlRequest(id+"-mode", map[string]string{"subtype": "set_permission_mode", "mode": mode})
}

func controlRequest(id string, request any) []byte {
	return decode.JSON(map[string]any{"type": "control_request", "request_id": id, "request": request})
}

// rawRequests are the requests that people may send as they are. Others would make the
// program ask questions without anybody to answer, or change what the worker has set.
var rawRequests = []string{
	"interrupt", "set_model", "set_permission_mode", "set_max_thinking_tokens",
	"mcp_status", "get_context_usage", "get_settings", "get_session_cost",
}

// Raw implements [agent.Speaker]. A line that is no JSON, or a user's line without a message,
// would end the program.
func (d *decoder) Raw(id string, line []byte) ([][]byte, error) {
	wrong := func(format string, args ...any) ([][]byte, error) {
		return nil, control.Refuse(control.Cannot, "agent claude does not take this line: "+format, args...)
	}
	var in struct {
		Type    string `json:"type"`
		Message struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"message"`
		Request struct {
			Subtype string `json:"subtype"`
		} `json:"request"`
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &in); err != nil {
		return wrong("%v", err)
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return wrong("%v", err)
	}
	switch in.Type {
	case "user":
		if in.Message.Role != "user" || blocksOf(in.Message.Content) == nil {
			return wrong("a line of type user needs a message with role user and content")
		}
		d.resting = false
		decode.Remember(d.pending, id, false)
		fields["uuid"] = decode.JSON(id)
	case "control_request":
		if !slices.Contains(rawRequests, in.Request.Subtype) {
			return wrong("request %q is not among %s", in.Request.Subtype, fmt.Sprint(rawRequests))
		}
		fields["request_id"] = decode.JSON(id)
	default:
		return wrong("its type is %q, and may be user or control_request; answers have a verb of their own", in.Type)
	}
	return [][]byte{decode.JSON(fields)}, nil
}
