package sessionview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// describeMessage describes a message to a session. How the agent receives it is a detail.
func describeMessage(d event.InputState) string {
	if d.State != control.Accepted {
		return ""
	}
	who := cmp.Or(d.By, "unknown")
	if d.Verb == control.Prompt {
		return fmt.Sprintf("%s: %s", who, d.Content())
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", who, d.Verb, console.FirstLine(d.Text)))
}

// inquiry is what the agent asks, with its options and how to answer.
func inquiry(job string, d control.Ask) string {
	var questions []control.Question
	_ = json.Unmarshal(d.Questions, &questions) // of a newer kind: then it is shown as a permission is
	var b strings.Builder
	if len(questions) == 0 || d.Type == "permission" {
		fmt.Fprintf(&b, "? the agent wants %s: %s\n", cmp.Or(d.Tool, d.Type), transcript.Fields(d.Input))
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
			fmt.Fprintf(&b, ": %s", console.FirstLine(o.Description))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func parked(d event.JobWaiting) string {
	return fmt.Sprintf("parked: the job holds no slot until it gets an answer, or until %s: %s", d.Until.Format(time.DateTime), console.FirstLine(d.Question))
}
