package dialog

import (
	"fmt"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// What is remembered of a talk are the questions that led to the last attempt.
func TestPast(t *testing.T) {
	opened := func(id string) jobs.Event {
		return event.New(event.AskOpened{Ask: id, Questions: []byte(`[{"question":"` + id + `?"}]`)})
	}
	closed := func(id, how string) jobs.Event { return event.New(event.AskClosed{Ask: id, How: how}) }
	said := func(input, id, text string) jobs.Event {
		return event.New(event.InputState(control.Message{ID: input, Verb: control.Answer, Ask: id, Text: text}.Input()))
	}
	requeued := func(why jobs.Reason) jobs.Event {
		return event.New(event.JobRequeued{Reason: why})
	}
	for _, tt := range []struct {
		name   string
		events []jobs.Event
		want   string // each question, how it was closed, and its answer
	}{
		{"open", []jobs.Event{opened("a")}, "[a ]"},
		{"answered", []jobs.Event{opened("a"), said("1", "a", "x"), closed("a", "answered")}, "[a answered x]"},
		{"the log has the answer first", []jobs.Event{said("1", "a", "x"), opened("a")}, "[a  x]"},
		{"the first answer counts", []jobs.Event{opened("a"), said("1", "a", "x"), said("2", "a", "y")}, "[a  x]"},
		{"a message that came twice", []jobs.Event{opened("a"), opened("b"), said("1", "a", "x"), said("1", "b", "y")}, "[a  x][b ]"},
		{"asked twice", []jobs.Event{opened("a"), opened("a")}, "[a ]"},
		{"withdrawn", []jobs.Event{opened("a"), closed("a", "withdrawn")}, ""},
		{"nobody came", []jobs.Event{opened("a"), closed("a", "expired")}, "[a expired]"},
		{"handed on", []jobs.Event{opened("a"), said("1", "a", "x"), requeued(jobs.WorkerDrained)}, "[a  x]"},
		{"failed", []jobs.Event{opened("a"), said("1", "a", "x"), requeued(jobs.CheckFailed)}, ""},
		{"begun again", []jobs.Event{opened("a"), event.New(event.JobFinished{}), opened("b")}, "[b ]"},
		{"of another job", []jobs.Event{{Kind: jobs.AskOpened, Job: "other", Data: opened("a").Data}}, ""},
		{"nonsense", []jobs.Event{{Kind: jobs.AskOpened, Data: []byte(`"x"`)}, {Kind: jobs.InputState, Data: []byte(`[]`)}}, "[ ]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p Past
			for _, e := range tt.events {
				p.Read(e)
			}
			got := ""
			for _, a := range p.Asks {
				got += fmt.Sprintf("[%s %s", a.Ask.Ask, a.How)
				for _, text := range a.Said() {
					got += " " + text
				}
				got += "]"
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
