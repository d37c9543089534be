package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestDecode(t *testing.T) {
	const id = `"id":"0198c0de-0000-7000-8000-000000000000"`
	tests := []struct {
		name, message string
		field         string // that is wrong; empty: none is
	}{
		{"a prompt", `{` + id + `,"verb":"prompt","by":"ann","text":"go on"}`, ""},
		{"an answer", `{` + id + `,"verb":"answer","options":["A"]}`, ""},
		{"a permission", `{` + id + `,"verb":"answer"}`, ""},
		{"a refusal with its why", `{` + id + `,"verb":"answer","deny":true,"text":"not that"}`, ""},
		{"a permission for something else", `{` + id + `,"verb":"answer","tool_input":{"command":"ls"}}`, ""},
		{"an interrupt", `{` + id + `,"verb":"interrupt"}`, ""},
		{"a raw line", `{` + id + `,"verb":"raw","line":{"type":"user"}}`, ""},
		{"another model", `{` + id + `,"verb":"set","model":"m"}`, ""},
		{"another effort", `{` + id + `,"verb":"set","effort":"low"}`, ""},
		{"no id", `{"verb":"interrupt"}`, "id"},
		{"an id that is none", `{"id":"1","verb":"interrupt"}`, "id"},
		{"an id in other letters", `{"id":"0198C0DE-0000-7000-8000-000000000000","verb":"interrupt"}`, "id"},
		{"an unknown verb", `{` + id + `,"verb":"dance"}`, "verb"},
		{"an unknown field", `{` + id + `,"verb":"stop","now":true}`, "now"},
		{"nothing said", `{` + id + `,"verb":"prompt","text":" \n"}`, "text"},
		{"a NUL", `{` + id + `,"verb":"prompt","text":"a\u0000b"}`, "text"},
		{"too much said", `{` + id + `,"verb":"prompt","text":"` + strings.Repeat("x", MaxText+1) + `"}`, "text"},
		{"a text for an interrupt", `{` + id + `,"verb":"interrupt","text":"please"}`, "text"},
		{"an option for a prompt", `{` + id + `,"verb":"prompt","text":"x","options":["A"]}`, "options"},
		{"two kinds of answer", `{` + id + `,"verb":"answer","options":["A"],"text":"B"}`, "options"},
		{"another input that is no object", `{` + id + `,"verb":"answer","tool_input":["ls"]}`, "tool_input"},
		{"another input that is too long", `{` + id + `,"verb":"answer","tool_input":{"x":"` + strings.Repeat("x", MaxText) + `"}}`, "tool_input"},
		{"a refusal with another input", `{` + id + `,"verb":"answer","deny":true,"tool_input":{}}`, "options"},
		{"another input for a prompt", `{` + id + `,"verb":"prompt","text":"x","tool_input":{}}`, "tool_input"},
		{"a raw line that is a text", `{` + id + `,"verb":"raw","line":"x"}`, "line"},
		{"an effort for a prompt", `{` + id + `,"verb":"prompt","text":"x","effort":"low"}`, "effort"},
		{"an effort with a NUL", `{` + id + `,"verb":"set","effort":"a\u0000"}`, "effort"},
		{"nothing to set", `{` + id + `,"verb":"set"}`, "model"},
		{"no JSON", `{`, "(job)"},
		{"too long", `{"text":"` + strings.Repeat("x", MaxBytes) + `"}`, "(message)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Decode([]byte(tt.message))
			invalid, refused := errors.AsType[*jobs.InvalidError](err)
			if tt.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				again, err := json.Marshal(c)
				if second, bad := Decode(again); err != nil || bad != nil || second.ID != c.ID || second.Verb != c.Verb {
					t.Errorf("written and read again: %+v, %v, %v", second, err, bad)
				}
				return
			}
			if !refused || invalid.Fields[0].Field != tt.field {
				t.Errorf("got %v, want the field %s named", err, tt.field)
			}
		})
	}
}
