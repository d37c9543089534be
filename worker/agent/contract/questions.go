package contract

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

func asksQuestions(a agent.About) bool { return a.Questions }

// options are those of each question that the model has.
var options = []any{
	map[string]any{"label": "contract-left", "description": "a"}, map[string]any{"label": "contract-right", "description": "b"},
}

// askers are the tools by which agents ask, and the rest of what each wants of a question.
var askers = map[string]map[string]any{"AskUserQuestion": {"multiSelect": false}, "request_user_input": {}}

// question has the model ask something, and answers it: the first question with these words, each
// later one with the second option.
func question(words string, texts ...string) func(context.Context, *trial) error {
	answers := map[string]control.Words{}
	for _, text := range texts {
		answers[text] = control.Words{"contract-right"}
	}
	answers[texts[0]] = control.Words{words}
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		offered := false
		s, err := t.run(ctx, task{launch: interactive, with: &harness.Conversation{Answers: answers}, model: func(r agenttest.Request) agenttest.Reply {
			i := slices.IndexFunc(r.Tools, func(name string) bool { return askers[name] != nil })
			if i < 0 || r.Turn > 0 {
				return answer(r)
			}
			offered = true
			return agenttest.Reply{Calls: []agenttest.Call{{Name: r.Tools[i], Input: inputOf(r.Tools[i], texts)}}}
		}})
		switch {
		case err != nil:
			return err
		case !offered:
			return untried("the agent offers no tool for questions that this test knows")
		case s.Count(jobs.AskOpened) == 0:
			return fmt.Errorf("its question is not among the events: %s", kinds(s.Run))
		}
		for text, given := range answers {
			if s.asked(given[0]) == nil {
				return fmt.Errorf("the answer to %s did not come to the model", text)
			}
		}
		return s.ended()
	}
}

// inputOf is the input of a tool that asks these questions.
func inputOf(tool string, texts []string) map[string]any {
	var questions []any
	for i, text := range texts {
		q := map[string]any{"header": fmt.Sprintf("H%d", i), "question": text, "options": options}
		for name, value := range askers[tool] {
			q[name] = value
		}
		if tool == "request_user_input" {
			q["id"] = fmt.Sprintf("which%d", i)
		}
		questions = append(questions, q)
	}
	return map[string]any{"questions": questions}
}
