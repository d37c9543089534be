package intake

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// overlay returns the fields of over on top of those of under. Objects are
// merged, so labels and env add up; lists and values are replaced. It works
// on JSON and not on jobs, because there "false" and "not said" differ.
func overlay(under, over json.RawMessage) (json.RawMessage, error) {
	var low, high map[string]json.RawMessage
	if err := json.Unmarshal(under, &low); err != nil {
		return nil, fmt.Errorf("merge defaults: %w", err)
	}
	if err := json.Unmarshal(over, &high); err != nil {
		return nil, fmt.Errorf("merge defaults: %w", err)
	}
	// Another agent does not inherit the command, model and arguments that
	// were meant for the first one.
	if name := agentName(high); name != "" && agentName(low) != "" && name != agentName(low) {
		delete(low, "agent")
	}
	return encode(mergeObjects(low, high, 0)), nil
}

// deepest bounds the recursion: a job has four levels.
const deepest = 16

func mergeObjects(low, high map[string]json.RawMessage, depth int) map[string]json.RawMessage {
	if low == nil {
		return high
	}
	for name, value := range high {
		var a, b map[string]json.RawMessage
		if depth < deepest && isObject(low[name]) && isObject(value) &&
			json.Unmarshal(low[name], &a) == nil && json.Unmarshal(value, &b) == nil {
			value = encode(mergeObjects(a, b, depth+1))
		}
		low[name] = value
	}
	return low
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

func agentName(job map[string]json.RawMessage) string {
	var agent jobs.Agent
	if json.Unmarshal(job["agent"], &agent) != nil {
		return ""
	}
	if agent.Name == "" && len(agent.Command) > 0 {
		return "command"
	}
	return agent.Name
}
