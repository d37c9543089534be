package agent

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// An answer is repeated with its question, to the agent that asked and to one that does
// not know the question.
func TestReplies(t *testing.T) {
	l := Launch{Job: jobs.Job{Prompt: "do it"}, Replies: []control.Reply{
		{Questions: []string{"Which?", "Why?"}, Answers: []string{"B", "it burns"}},
		{Questions: []string{"When?"}, Answers: []string{""}, Declined: true, Why: "not today"},
		{Questions: []string{"Who?"}, Answers: []string{""}, Declined: true},
	}}
	want := "The question was: Which?\nThe answer is: B\n\nThe question was: Why?\nThe answer is: it burns\n\n" +
		"The question was: When?\nIt was declined: not today\n\nThe question was: Who?\n" + unattended
	for name, tt := range map[string]struct{ got, begins string }{
		"in its conversation": {l.Continued(true).Prompt, "This conversation goes on in a new process."},
		"knowing nothing":     {l.prompt(), "do it\n\nAn earlier run"},
	} {
		if !strings.HasPrefix(tt.got, tt.begins) || !strings.Contains(tt.got, want) {
			t.Errorf("%s it is told:\n%s", name, tt.got)
		}
	}
}
