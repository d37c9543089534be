package schema

import (
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/events.md")

const eventsHead = `# Events

This page is made from the program: ` + "`make generate`" + ` writes it. ` + "`penstock logs ID -o jsonl`" + ` prints a session's
events, one a line; ` + "`penstock schema event`" + ` describes them, and ` + "`penstock schema event KIND`" + ` the data of one kind.

Every event has ` + "`seq`, `ts`, `job`, `session`, `attempt`, `agent`, `turn`, `kind`" + ` and, unless it is empty, ` + "`data`" + `; what
` + "`data`" + ` has depends on ` + "`kind`" + `. Names and types of fields stay as they are; kinds and fields are added, so a reader
ignores those that it does not know. A field of data that is not in an event is empty, zero or false.

*Sent by* says where an event comes from: the ` + "`dispatcher`" + `, the ` + "`worker`" + `, the output of the ` + "`agent`" + `, or a program in the
agent's ` + "`jail`" + `. Kinds that are sent ` + "`later`" + ` are promised, and no version sends them yet.

| kind | sent by | what it tells |
|---|---|---|
`

// TestEventsReference holds docs/reference/events.md against the table of kinds.
func TestEventsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(eventsHead)
	for _, row := range event.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.Kind, row.Sender, row.About)
	}
	b.WriteString("\n## Data\n")
	described := map[jobs.Kind]bool{}
	for _, row := range event.Kinds() {
		if described[row.Kind] {
			continue
		}
		var names []string
		for _, other := range event.Kinds() { // those of the same fields are told together
			if reflect.TypeOf(other.Payload).ConvertibleTo(reflect.TypeOf(row.Payload)) {
				described[other.Kind] = true
				names = append(names, "`"+string(other.Kind)+"`")
			}
		}
		fmt.Fprintf(&b, "\n### %s\n\n", strings.Join(names, ", "))
		s, err := payload(row)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case row.Kind == jobs.JobFinished:
			b.WriteString("The job's result, as `penstock schema result` describes it.\n")
		case row.Kind == jobs.LimitReported:
			b.WriteString("What the agent says, as it says it.\n")
		case len(s.Properties) == 0:
			b.WriteString("None.\n")
		default:
			b.WriteString("| field | type | meaning |\n|---|---|---|\n")
			fields(&b, s, "")
		}
	}
	goldentest.Compare(t, "../../../docs/reference/events.md", b.String(), *update)
}

// fields writes a row for each field of an object, and for those below it.
func fields(b *strings.Builder, s *jsonschema.Schema, prefix string) {
	for _, name := range s.PropertyOrder {
		field, ok := s.Properties[name]
		if !ok {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", prefix+name, typeOf(field), field.Description)
		fields(b, field, prefix+name+".")
		if field.Items != nil {
			fields(b, field.Items, prefix+name+"[].")
		}
	}
}

// typeOf names a type, for people.
func typeOf(s *jsonschema.Schema) string {
	var names []string
	for _, name := range append(s.Types, s.Type) {
		switch {
		case name == "array" && s.Items != nil && typeOf(s.Items) != "any":
			names = append(names, "list of "+typeOf(s.Items))
		case name == "array":
			names = append(names, "list")
		case name == "string" && s.Format == "date-time":
			names = append(names, "time")
		case name != "" && name != "null":
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "any"
	}
	return strings.Join(names, " or ")
}

// Every field of every payload is described.
func TestEventFields(t *testing.T) {
	for _, row := range event.Kinds() {
		s, err := payload(row)
		if err != nil {
			t.Errorf("%s: %v", row.Kind, err)
			continue
		}
		var walk func(path string, s *jsonschema.Schema)
		walk = func(path string, s *jsonschema.Schema) {
			for name, field := range s.Properties {
				if field.Description == "" {
					t.Errorf("%s: %s has no description", row.Kind, join(path, name))
				}
				walk(join(path, name), field)
			}
			if s.Items != nil {
				walk(path+"[]", s.Items)
			}
		}
		walk("", s)
	}
}

// samples are payloads of kinds whose zero payload has words that do not exist.
var samples = map[jobs.Kind]event.Payload{
	jobs.JobSubmitted:  event.JobSubmitted{Priority: jobs.Normal},
	jobs.JobFinished:   event.JobFinished{Outcome: jobs.Success},
	jobs.WorkspaceDone: event.WorkspaceReady{Isolation: jobs.IsolationWorktree},
}

// The schemas accept what is written of each kind, and what later versions add, and nothing else.
func TestKindsOfData(t *testing.T) {
	all := resolved(t, For, "event")
	for _, row := range event.Kinds() {
		own := resolved(t, ForKind, string(row.Kind))
		e := event.New(row.Payload)
		if sample := samples[row.Kind]; sample != nil {
			e = event.New(sample)
		}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, own, string(e.Data)); err != nil {
			t.Errorf("%s refuses %s: %v", row.Kind, e.Data, err)
		}
		if err := validate(t, all, string(line)); err != nil {
			t.Errorf("event refuses %s: %v", line, err)
		}
	}
	for line, want := range map[string]bool{
		`"message","data":{"text":"hello"}`:                      true,
		`"message","data":{"text":"hello","new":1}`:              true,
		`"message","data":{"text":1}`:                            false,
		`"message","data":{"role":"user"}`:                       false,
		`"usage","data":{"scope":"call","tokens":{"context":1}}`: true,
		`"usage","data":{"scope":"call","tokens":{"input":""}}`:  false,
		`"moon.landed","data":[]`:                                true,
		`"limit","data":{"anything":["goes"]}`:                   true,
	} {
		text := `{"seq":1,"ts":"2026-01-02T03:04:05Z","job":"j","session":"s","attempt":1,"turn":0,"kind":` + line + `}`
		if err := validate(t, all, text); (err == nil) != want {
			t.Errorf("%s: %v, want ok %v", line, err, want)
		}
	}
	if _, err := ForKind("moon.landed"); err == nil || !strings.Contains(err.Error(), "moon.landed") {
		t.Errorf("an unknown kind: %v", err)
	}
}
