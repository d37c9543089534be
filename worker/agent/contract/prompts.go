package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// prompts are the checks that a prompt comes to the model as it is.
var prompts = []check{
	{"", "special_prompt", "a prompt comes to the model as it is: quotes, variables, templates, several lines, other scripts", nil, comes(special)},
	{"", "option_prompt", "a prompt that looks like an option is a prompt", nil, comes("--help " + promptWord)},
	{"", "slash_prompt", "a prompt that looks like a command of the agent is a prompt", nil, comes("/help " + promptWord)},
	{"", "long_prompt", "a prompt that is longer than a variable may be comes to the model", nil, longPrompt},
}

// special has in it what shells, JSON, TOML and templates of agents act on.
const special = promptWord + ": \"it's\" $HOME ${HOME} {env:HOME} {{x}} %s \\n \\u0041 C:\\new <b>&amp; #1 !! `id` $(id) \u00e9 \u65e5\u672c \U0001f642\n\n\tsecond line"

// longPrompt gives it more than 128 KiB, which is all that Linux allows for a variable or an argument.
func longPrompt(ctx context.Context, t *trial) error {
	return comes(promptWord+": "+strings.Repeat("and so on, ", 20_000)+lastWord)(ctx, t)
}

// comes is a check of a prompt.
func comes(prompt string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		s, err := t.run(ctx, task{model: answer, launch: func(l *agent.Launch) { l.Job.Prompt = prompt }})
		if err != nil {
			return err
		}
		if err := s.ended(); err != nil {
			return err
		}
		for _, r := range s.requests {
			if strings.Contains(r.First, prompt) || strings.Contains(r.Last, prompt) {
				return nil
			}
		}
		told := ""
		if len(s.requests) > 0 {
			told = s.requests[len(s.requests)-1].Last
		}
		return fmt.Errorf("the prompt did not come to the model as it was; in %d requests, the last of which says %.200q", len(s.requests), told)
	}
}

// answersOf are the checks that the model's answer becomes an event as it is.
var answersOf = []check{
	{"", "special_answer", "an answer becomes an event as it is: quotes, escapes, several lines, other scripts", nil, told(agenttest.Reply{Text: specialAnswer}, specialAnswer)},
	{"", "large_answer", "an answer of 200 KiB becomes an event", nil, longAnswer(200 << 10)},
	{"", "long_answer", "an answer of a megabyte becomes an event", tellsLongAnswers, longAnswer(1 << 20)},
	{"", "slow_answer", "it waits for a model that takes its time", nil, told(agenttest.Reply{Text: answerWord, Delay: 2 * time.Second}, answerWord)},
	{"", "dropped_answer", "half an answer is no success: it asks again, or fails", nil, dropped},
}

// longAnswer is a check with text that does not repeat itself, which some agents take for a loop.
func longAnswer(size int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		var b strings.Builder
		for n := 0; b.Len() < size; n++ {
			fmt.Fprintf(&b, "%x and ", n*n)
		}
		return told(agenttest.Reply{Text: b.String() + lastWord}, lastWord)(ctx, t)
	}
}

const specialAnswer = "\"it's\" \\n \\u0041 <b>&amp; \u00e9 \u65e5\u672c \U0001f642 %s `id`"

// told is a check of an answer, some of which has to be in an event.
func told(reply agenttest.Reply, want string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		s, err := t.run(ctx, task{model: func(agenttest.Request) agenttest.Reply { return reply }})
		if err != nil {
			return err
		}
		if err := s.ended(); err != nil {
			return err
		}
		if !s.says(want) {
			return fmt.Errorf("no event has the model's answer as it is; the events are %s", kinds(s.Run))
		}
		return nil
	}
}

// says reports whether a text is in what the agent said.
func (s *seen) says(text string) bool {
	for _, e := range s.Events {
		var said struct{ Text, Result string }
		if json.Unmarshal(e.Data, &said) == nil && (strings.Contains(said.Text, text) || strings.Contains(said.Result, text)) {
			return true
		}
		if e.Raw != nil && strings.Contains(e.Raw.Text, text) {
			return true
		}
	}
	return false
}

func dropped(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{model: func(r agenttest.Request) agenttest.Reply {
		if r.Try == 0 {
			return agenttest.Reply{Text: "contract-half", Drop: true}
		}
		return answer(r)
	}})
	switch {
	case err != nil:
		return err
	case s.ended() == nil && !s.says(answerWord):
		return fmt.Errorf("it ended with success after half an answer; the model was asked %d times", len(s.requests))
	}
	return nil
}
