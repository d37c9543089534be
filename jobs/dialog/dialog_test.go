package dialog

import (
	"fmt"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// What an agent was set to last holds on, each setting by itself; what was refused does not.
func TestSettingsHoldOn(t *testing.T) {
	var p Past
	for i, c := range []control.Message{{Model: "a", Mode: "ask"}, {Model: "b", Effort: "low"}, {Mode: "never"}} {
		c.ID, c.Verb = fmt.Sprint(i), control.Set
		p.Read(event.New(event.InputState(c.Input())))
	}
	p.Read(event.New(event.JobFinished{}))
	p.Read(event.New(event.InputState{Input: "x", Verb: control.Set, State: "queued", Mode: "other"}))
	if want := (control.Settings{Model: "b", Mode: "never", Effort: "low"}); p.Settings != want {
		t.Errorf("it is set to %+v, want %+v", p.Settings, want)
	}
}

// Without an option a permission is granted; the other answers are told from refusals.
func TestAnsweringAPermission(t *testing.T) {
	asked := func(answer control.Message) Asked {
		var p Past
		p.Read(event.New(event.AskOpened{Ask: "a", Type: "permission", Questions: []byte(`[{"question":"May it?","options":[{"label":"Allow","kind":"allow_once"},{"label":"Never","kind":"reject_always"}]}]`)}))
		c, err := p.Answering(answer)
		if err != nil {
			t.Fatal(err)
		}
		c.ID, c.Verb = "1", control.Answer
		p.Read(event.New(event.InputState(c.Input())))
		return p.Asks[0]
	}
	for _, tt := range []struct {
		answer control.Message
		denied bool
	}{{control.Message{}, false}, {control.Message{Options: []string{"1"}}, false}, {control.Message{Options: []string{"Never"}}, true}, {control.Message{Deny: true}, true}} {
		if got := asked(tt.answer); got.Denied() != tt.denied {
			t.Errorf("%+v: denied %t", tt.answer, got.Denied())
		}
	}
	for _, options := range []string{"", `,"options":[{"label":"Allow","kind":"allow_once"},{"label":"Never","kind":"reject_always"}]`} {
		for _, answer := range []control.Message{{Options: []string{"Perhaps"}}, {Text: "no"}, {Text: "yes"}, {Answers: map[string]control.Words{"1": {"no"}}}} {
			var p Past
			p.Read(event.New(event.AskOpened{Ask: "a", Type: "permission", Questions: []byte(`[{"question":"May it?"` + options + `}]`)}))
			if _, err := p.Answering(answer); err == nil {
				t.Errorf("%+v is taken, which is neither yes nor no, nor an option of %s", answer, options)
			}
		}
	}
}

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
