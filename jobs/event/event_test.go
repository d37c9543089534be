package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// constants reads the kinds that package jobs declares, by their Go names.
func constants(t *testing.T) map[string]jobs.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]jobs.Kind{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds[spec.Names[0].Name] = jobs.Kind(word)
		}
		return true
	})
	return kinds
}

// Every kind that package jobs declares has a row, once, whose payload is named
// after it.
func TestEveryKindHasAPayload(t *testing.T) {
	known := map[jobs.Kind]bool{}
	for name, kind := range constants(t) {
		known[kind] = true
		if _, ok := event.Lookup(kind); !ok {
			t.Errorf("jobs.%s (%s) has no row in the table", name, kind)
		}
	}
	seen := map[jobs.Kind]bool{}
	for _, row := range event.Kinds() {
		typ := reflect.TypeOf(row.Payload)
		if seen[row.Kind] || !known[row.Kind] || row.Payload.EventKind() != row.Kind {
			t.Errorf("row %s: there twice, or of no kind, or with the payload of %s", row.Kind, row.Payload.EventKind())
		}
		seen[row.Kind] = true
		if got, want := strings.ToLower(typ.Name()), strings.ReplaceAll(string(row.Kind), ".", ""); got != want {
			t.Errorf("the payload of %s is called %s", row.Kind, typ.Name())
		}
		if !strings.HasSuffix(row.About, ".") || row.Sender == "" {
			t.Errorf("row %s: %q by %q", row.Kind, row.About, row.Sender)
		}
	}
}

// What was written is read as the type that it was written as, without loss.
func TestRoundTrip(t *testing.T) {
	for _, row := range event.Kinds() {
		p, err := event.Decode(event.New(row.Payload))
		if err != nil || reflect.TypeOf(p) != reflect.TypeOf(row.Payload) {
			t.Errorf("%s: %T, %v", row.Kind, p, err)
		}
		// An event that an older version, or a test, wrote without data.
		p, err = event.Decode(jobs.Event{Kind: row.Kind})
		if err != nil || reflect.TypeOf(p) != reflect.TypeOf(row.Payload) {
			t.Errorf("%s without data: %T, %v", row.Kind, p, err)
		}
	}
	ok := true
	tool := event.ToolEnded{Call: "1", OK: &ok, Result: json.RawMessage(`{"a":1}`)}
	if got := event.As[event.ToolEnded](event.New(tool)); !reflect.DeepEqual(got, tool) {
		t.Errorf("got %+v", got)
	}
	if got := event.As[event.ToolStarted](event.New(tool)); got.Call != "" {
		t.Errorf("tool.ended read as tool.started: %+v", got)
	}
}

// The bytes of payloads with a form of their own.
func TestWire(t *testing.T) {
	context, files := int64(7), 0
	for want, p := range map[string]event.Payload{
		`{"scope":"session","tokens":{"context":7}}`: event.Usage{Scope: "session", Tokens: event.Tokens{Context: &context}},
		`{"scope":"call","tokens":{"input":1,"output":0,"cache_read":0,"cache_write":0}}`: event.Usage{
			Scope: "call", Tokens: event.Tokens{Usage: &jobs.Usage{Input: 1}}},
		`{"status":"allowed"}`: event.Limit{RawMessage: json.RawMessage(`{"status":"allowed"}`)},
		`null`:                 event.Limit{},
		`{}`:                   event.TurnStarted{},
		`{"text":"x","salvage_epoch":3,"files_changed":0,"commits":0}`: event.Notice{
			Text: "x", SalvageEpoch: 3, Files: &files, Commits: &files},
		`{"command":"make","exit":2,"seconds":0.5,"round":1,"of":2}`: event.CheckReturned{
			Check: jobs.Check{Command: "make", Exit: 2, Seconds: 0.5}, Round: 1, Of: 2},
	} {
		if got := event.New(p).Data; !bytes.Equal(got, []byte(want)) {
			t.Errorf("%T is %s, want %s", p, got, want)
		}
		if got, err := event.Decode(event.New(p)); err != nil || !bytes.Equal(event.New(got).Data, []byte(want)) {
			t.Errorf("%s read and written again is %s, %v", want, event.New(got).Data, err)
		}
	}
}

func TestDecodeWhatIsNew(t *testing.T) {
	_, err := event.Decode(jobs.Event{Kind: "moon.landed"})
	if unknown, ok := errors.AsType[*event.UnknownKindError](err); !ok || unknown.Kind != "moon.landed" {
		t.Errorf("an unknown kind: %v", err)
	}
	e := jobs.Event{Kind: jobs.Message, Data: json.RawMessage(`{"text":"hello","role":["a"],"added":1}`)}
	p, err := event.Decode(e)
	if m, ok := p.(event.Message); !ok || err == nil || m.Text != "hello" || !strings.Contains(err.Error(), "data of event message: ") {
		t.Errorf("data that fits in part: %#v, %v", p, err)
	}
	if p, err := event.Decode(jobs.Event{Kind: jobs.Message, Data: json.RawMessage(`{"text":"a","added":1}`)}); err != nil || p.(event.Message).Text != "a" {
		t.Errorf("a field of a later version: %#v, %v", p, err)
	}
}
