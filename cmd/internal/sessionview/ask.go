package sessionview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Summary is [summary.Event], with the ways to answer a question.
func Summary(e jobs.Event) string {
	if e.Kind == jobs.AskOpened {
		payload, _ := event.Decode(e) // of a newer version, what fits is shown
		if d, ok := payload.(event.AskOpened); ok {
			return inquiry(e.Job, control.Ask(d))
		}
	}
	return summary.Event(e)
}

// inquiry is what the agent asks, with its options and how to answer.
func inquiry(job string, d control.Ask) string {
	var questions []control.Question
	_ = json.Unmarshal(d.Questions, &questions) // of a newer kind: then it is shown as a permission is
	var b strings.Builder
	if len(questions) == 0 || d.Type == "permission" {
		fmt.Fprintf(&b, "? the agent wants %s: %s\n", cmp.Or(d.Tool, d.Type), summary.Fields(d.Input))
		how := "[--deny]"
		if len(questions) > 0 {
			how = "[--option LABEL | --deny]"
			b.WriteString(optionLines(questions[0]))
		}
		fmt.Fprintf(&b, "  penstock answer %s %s", job, how)
		return b.String()
	}
	for i, q := range questions {
		number := ""
		if len(questions) > 1 {
			number = fmt.Sprintf("%d. ", i+1)
		}
		fmt.Fprintf(&b, "? %s%s", number, q.Question)
		if q.Multi {
			b.WriteString(" (several may be chosen)")
		}
		b.WriteByte('\n')
		b.WriteString(optionLines(q))
	}
	how := "--option LABEL | --text WORDS | --deny"
	if len(questions) > 1 {
		how = "--answer 1=WORDS --answer 2=WORDS … | --deny"
	}
	fmt.Fprintf(&b, "  penstock answer %s %s", job, how)
	return b.String()
}

// optionLines are the options of a question, a line each.
func optionLines(q control.Question) string {
	var b strings.Builder
	for _, o := range q.Options {
		fmt.Fprintf(&b, "    %s", o.Label)
		if o.Description != "" {
			fmt.Fprintf(&b, ": %s", visible.FirstLine(o.Description))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
