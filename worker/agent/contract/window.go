package contract

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// windows are the checks of what the model is sent of a long conversation.
var windows = []check{
	{"", "context", "it tells how many tokens its conversation has, and how many its model takes", tellsContext, tokensOfContext},
	{"", "compaction", "told to make its conversation shorter, it tells so, and goes on", compacts, compact},
}

// tellsContext: Gemini CLI tells neither by its protocol.
func tellsContext(a agent.About) bool { return a.Interactive && a.Protocol != "gemini" }

func tokensOfContext(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{launch: interactive, model: answer})
	if err != nil {
		return err
	}
	for _, e := range s.Events {
		used, ok := e.Payload.(event.Usage)
		if ok && used.Tokens.Context != nil && *used.Tokens.Context > 0 && used.Tokens.Window != nil && *used.Tokens.Window > *used.Tokens.Context {
			return s.ended()
		}
	}
	missing := fmt.Errorf("it told of %s", s.Data(jobs.UsageReported))
	if t.about.Protocol == "acp" {
		return &cannotError{missing.Error()}
	}
	return missing
}

// compactions are the lines of an agent's own protocol that make its conversation shorter. Others
// do so by themselves, and their protocol does not tell.
var compactions = map[string]string{
	"claude": `{"type":"user","message":{"role":"user","content":"/compact"}}`,
	"codex":  `{"method":"thread/compact/start"}`,
}

func compacts(a agent.About) bool { return a.Interactive && compactions[a.Protocol] != "" }

// compact sends a prompt with the line: it has to wait.
func compact(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	c := &harness.Conversation{}
	var refused error
	afterFirst(c, func(speaker agent.Speaker) [][]byte {
		var lines [][]byte
		lines, refused = speaker.Raw(jobs.NewID(), []byte(compactions[t.about.Protocol]))
		return append(lines, speaker.Say(jobs.NewID(), nextWord)...)
	})
	s, err := t.run(ctx, task{launch: interactive, with: c, model: answer})
	if err != nil {
		return err
	}
	told := false
	for _, e := range s.Events {
		notice, ok := e.Payload.(event.Notice)
		told = told || ok && notice.Type == "compact_boundary"
	}
	switch {
	case refused != nil:
		return refused
	case !told:
		return fmt.Errorf("it did not tell of a shorter conversation; the events are %s", kinds(s.Run))
	case s.asked(nextWord) == nil:
		return fmt.Errorf("the prompt after it did not come to the model; it ended with %s", s.how())
	}
	return s.ended()
}
