package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs/control"
)

// Say implements [Speaker].
func (d *claudeDecoder) Say(id, text string, images ...control.Image) [][]byte {
	d.resting = false
	remember(d.said, id, false)
	return [][]byte{claudeUser(text, id, images...)}
}

// TakesImages implements [Speaker].
func (d *claudeDecoder) TakesImages() error { return nil }

// Interrupt implements [Speaker].
func (d *claudeDecoder) Interrupt() [][]byte {
	return [][]byte{claudeControl("interrupt-"+uuid.NewString(), map[string]string{"subtype": "interrupt"})}
}

// Set implements [Speaker].
func (d *claudeDecoder) Set(id, model, mode string) (lines [][]byte) {
	if model != "" {
		lines = append(lines, claudeControl(id+"-model", map[string]string{"subtype": "set_model", "model": model}))
	}
	if mode != "" {
		lines = append(lines, claudeControl(id+"-mode", map[string]string{"subtype": "set_permission_mode", "mode": mode}))
	}
	return lines
}

func claudeControl(id string, request any) []byte {
	return jsonLine(map[string]any{"type": "control_request", "request_id": id, "request": request})
}

// claudeRaw are the requests that people may send as they are. Others would make the
// program ask questions without anybody to answer, or change what the worker has set.
var claudeRaw = []string{
	"interrupt", "set_model", "set_permission_mode", "set_max_thinking_tokens",
	"mcp_status", "get_context_usage", "get_settings", "get_session_cost",
}

// Raw implements [Speaker]. A line that is no JSON, or a user's line without a message,
// would end the program.
func (d *claudeDecoder) Raw(id string, line []byte) ([][]byte, error) {
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
		if in.Message.Role != "user" || claudeBlocks(in.Message.Content) == nil {
			return wrong("a line of type user needs a message with role user and content")
		}
		d.resting = false
		remember(d.said, id, false)
		fields["uuid"] = jsonLine(id)
	case "control_request":
		if !slices.Contains(claudeRaw, in.Request.Subtype) {
			return wrong("request %q is not among %s", in.Request.Subtype, fmt.Sprint(claudeRaw))
		}
		fields["request_id"] = jsonLine(id)
	default:
		return wrong("its type is %q, and may be user or control_request; answers have a verb of their own", in.Type)
	}
	return [][]byte{jsonLine(fields)}, nil
}
