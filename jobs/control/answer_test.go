package control

import (
	"encoding/json"
	"errors"
	"testing"
)

// An answer is to the questions that were asked, and to all of them.
func TestFit(t *testing.T) {
	paint := Question{Question: "Paint it?", Header: "Paint", Options: []Option{{Label: "Red"}, {Label: "Blue"}}}
	sides := Question{Question: "Both sides?", Options: paint.Options, Multi: true}
	for _, tt := range []struct {
		name      string
		questions []Question
		answer    Message
		want      string // to the last question; empty: refused
	}{
		{"by label", []Question{paint}, Message{Options: []string{"blue "}}, "Blue"},
		{"by number", []Question{paint}, Message{Options: []string{"1"}}, "Red"},
		{"in words of one's own", []Question{paint}, Message{Text: "green"}, "green"},
		{"several", []Question{sides}, Message{Options: []string{"1", "2"}}, "Red, Blue"},
		{"each by header and number", []Question{paint, sides}, Message{Answers: map[string]Words{"paint": {"x"}, "2": {"y"}}}, "y"},
		{"several of one among others", []Question{paint, sides}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"red", "2"}}}, "Red, Blue"},
		{"one of several", []Question{paint, sides}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"2"}}}, "Blue"},
		{"one option twice", []Question{sides}, Message{Options: []string{"Red", "1"}}, ""},
		{"one option twice among others", []Question{paint, sides}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"red", "Red"}}}, ""},
		{"an option and words", []Question{paint, sides}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"red", "green"}}}, ""},
		{"several of one that takes one", []Question{sides, paint}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"red", "blue"}}}, ""},
		{"one question by two names", []Question{sides, paint}, Message{Answers: map[string]Words{"1": {"x"}, "2": {"red"}, "paint": {"blue"}}}, ""},
		{"no words", []Question{sides}, Message{Answers: map[string]Words{"1": {}}}, ""},
		{"several of one", []Question{paint}, Message{Options: []string{"1", "2"}}, ""},
		{"none of its options", []Question{paint}, Message{Options: []string{"3"}}, ""},
		{"nothing", []Question{paint}, Message{}, ""},
		{"one of two", []Question{paint, sides}, Message{Answers: map[string]Words{"1": {"x"}}}, ""},
		{"another question", []Question{paint}, Message{Answers: map[string]Words{"3": {"x"}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.answer.Fit(tt.questions)
			refused, _ := errors.AsType[*RefusedError](err)
			if tt.want == "" {
				if refused == nil || refused.Code != Unfit {
					t.Errorf("got %v, %v; want a refusal", got, err)
				}
				return
			}
			if last := tt.questions[len(tt.questions)-1].Question; err != nil || got[last] != tt.want {
				t.Errorf("got %q, %v; want %q", got[last], err, tt.want)
			}
		})
	}
}

// An answer is a text or a list of options, by the bus as by the command line.
func TestWords(t *testing.T) {
	const id = `{"id":"01a20469-c2c3-40ac-8d40-5c69956aa7d6","verb":"answer","answers":`
	for in, want := range map[string]string{
		`{"1":"red","2":["red","blue"]}`: `{"1":"red","2":["red","blue"]}`,
		`{"1":["red"]}`:                  `{"1":"red"}`,
		`{"1":2}`:                        "",
		`{"1":null}`:                     "",
		`{"1":["red",2]}`:                "",
		`{"1":["red","a\u0000"]}`:        "",
	} {
		c, err := Decode([]byte(id + in + "}"))
		if (err != nil) != (want == "") {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, _ := json.Marshal(c.Input().Answers); want != "" && string(got) != want {
			t.Errorf("%s is read as %s", in, got)
		}
	}
}
