package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// errand is the prompt of a subagent.
const errand = promptWord + ": say " + nextWord

// subagentTime is how long the model of an agent waits for the first request of its subagent.
const subagentTime = 20 * time.Second

// A delegate is how a model starts a subagent of an agent.
type delegate struct {
	offered string // the tool by which the agent is seen to have some
	call    agenttest.Call
}

// delegates are those of each protocol. Codex tells its model of the tool when that searches for one.
var delegates = map[string]delegate{
	"claude":   {"Agent", agenttest.Call{Name: "Agent", Input: map[string]any{"description": "d", "prompt": errand, "subagent_type": "general-purpose", "run_in_background": false}}},
	"codex":    {"tool_search", agenttest.Call{Name: "multi_agent_v1/spawn_agent", Input: map[string]any{"message": errand}}},
	"gemini":   {"invoke_agent", agenttest.Call{Name: "invoke_agent", Input: map[string]any{"agent_name": "generalist", "prompt": errand}}},
	"opencode": {"task", agenttest.Call{Name: "task", Input: map[string]any{"description": "d", "prompt": errand, "subagent_type": "general"}}},
}

func hasSubagents(a agent.About) bool { return delegates[a.Protocol].offered != "" }

func subagents(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	by := delegates[t.about.Protocol]
	var offered atomic.Bool
	asked := make(chan struct{})
	tell := sync.OnceFunc(func() { close(asked) })
	s, err := t.run(ctx, task{launch: interactive, model: func(r agenttest.Request) agenttest.Reply {
		switch {
		case strings.Contains(r.First, errand):
			tell()
			if slices.Contains(r.Tools, "complete_task") && r.Turn == 0 {
				return agenttest.Reply{Calls: []agenttest.Call{{Name: "complete_task", Input: map[string]any{"result": answerWord}}}}
			}
			return answer(r)
		case r.Turn > 0:
			// Some agents do not wait for a subagent, and one that has just begun ends with them.
			select {
			case <-asked:
			case <-time.After(subagentTime):
			case <-ctx.Done():
			}
			return answer(r)
		}
		if slices.Contains(r.Tools, by.offered) {
			offered.Store(true)
		}
		return agenttest.Reply{Calls: []agenttest.Call{by.call}}
	}})
	if err != nil {
		return err
	}
	var begun, over bool
	for _, e := range s.Events {
		switch tool := e.Payload.(type) {
		case event.ToolStarted:
			begun = begun || tool.Kind == "agent"
		case event.ToolEnded:
			over = over || tool.Kind == "agent" && tool.OK != nil && *tool.OK
		}
	}
	switch {
	case !offered.Load():
		return untried("the agent offers its model no subagents by a tool that this test knows")
	case !slices.ContainsFunc(s.requests, func(r agenttest.Request) bool { return r.Turn == 0 && strings.Contains(r.First, errand) }):
		return errors.Join(fmt.Errorf("its subagent did not ask the model"), s.ended())
	case !begun || !over:
		return fmt.Errorf("its subagent is not seen to begin and end; the events are %s", kinds(s.Run))
	}
	return s.ended()
}
