package control

import (
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
		{"each by header and number", []Question{paint, sides}, Message{Answers: map[string]string{"paint": "x", "2": "y"}}, "y"},
		{"several of one", []Question{paint}, Message{Options: []string{"1", "2"}}, ""},
		{"none of its options", []Question{paint}, Message{Options: []string{"3"}}, ""},
		{"nothing", []Question{paint}, Message{}, ""},
		{"one of two", []Question{paint, sides}, Message{Answers: map[string]string{"1": "x"}}, ""},
		{"another question", []Question{paint}, Message{Answers: map[string]string{"3": "x"}}, ""},
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
