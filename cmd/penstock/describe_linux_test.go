package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
)

// kinds are all kinds of events, and one that this version does not know.
func kinds() []jobs.Kind {
	all := []jobs.Kind{"of.tomorrow"}
	for _, row := range event.Kinds() {
		all = append(all, row.Kind)
	}
	return all
}

// No kind of event shows JSON to a person, whatever is in it, nor what a terminal
// acts on, nor a line that could be one of ours.
func TestEveryKindIsWords(t *testing.T) {
	t.Parallel()
	nested := map[string]any{"inner": map[string]any{"list": []any{1, true, nil, "x"}}}
	full := map[string]any{"extra": nested, "strange\x1b\n": evil}
	for _, name := range []string{
		"text", "role", "name", "title", "message", "reason", "status", "state", "stage", "command", "question", "what", "by", "tool", "type",
		"how", "path", "change", "backend", "worker", "model", "version", "key", "item", "branch", "repo", "commit", "host", "setting", "output",
	} {
		full[name] = strings.ToValidUTF8(evil, "") + ` {"a":1}`[:1]
	}
	full["input"], full["value"], full["result"] = nested, nested, nested
	full["questions"] = []any{map[string]any{"question": evil, "options": []any{map[string]any{"label": evil, "description": evil}}}}
	for _, e := range kinds() {
		for _, data := range []any{full, nested, []any{nested}, "text", nil} {
			raw, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			event := jobs.Event{Kind: e, Job: "01a205f6-dbaa-771f-ac99-41d2010d55db", Data: raw}
			for _, color := range []string{"", "1"} {
				var b bytes.Buffer
				out := sessionview.New(console.New(&b, func(name string) string { return map[string]string{"FORCE_COLOR": color}[name] }))
				if err := out.Show(event); err != nil {
					t.Fatal(err)
				}
				shown := ours.ReplaceAllString(b.String(), "")
				if regexp.MustCompile(`\{"|":|map\[|<nil>|%!`).MatchString(shown) {
					t.Errorf("%s of %s shows raw data: %q", e, raw, shown)
				}
				(&screen{TB: t}).holds([]string{string(e)}, shown)
			}
		}
	}
}

func TestFieldsAreBounded(t *testing.T) {
	t.Parallel()
	if got := summary.Fields(json.RawMessage(`{"b":[1,{"c":null,"d":true}],"a":"` + strings.Repeat("x", 1000) + `"}`)); len(got) > 400 || !strings.HasPrefix(got, "a xxx") {
		t.Errorf("got %q", got)
	}
}
