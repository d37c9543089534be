package transcript

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

var options = Options{Base: "/ui/jobs/j1", Answer: true}

// ofAgents are the fields that hold an agent's own JSON, as some agent writes it.
func ofAgents(text string) map[string]any {
	q := control.Question{Question: text, Header: text, Options: []control.Option{{Label: text, Description: text, Kind: text}, {Label: "2"}}, Multi: false}
	return map[string]any{
		"Questions": []control.Question{q, q},
		"Input":     map[string]any{"file_path": text, "old_string": text + "\n" + text, "new_string": text, "command": text, text: text},
		"Items":     []map[string]string{{"content": text, "status": text}},
	}
}

// fill writes a text into every string of a value, and into the JSON that it holds.
func fill(v reflect.Value, name, text string) {
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		value, ok := ofAgents(text)[name]
		if !ok {
			value = map[string]string{text: text}
		}
		data, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		v.SetBytes(data)
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, text)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), name, text)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name, text)
		fill(value, name, text)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i), field.Name, text)
			}
		}
	case v.CanInt():
		v.SetInt(4711)
	case v.CanUint():
		v.SetUint(4711)
	case v.CanFloat():
		v.SetFloat(4711)
	}
}

// filled are events of a kind whose texts are all the same, in the ways in which the kind
// is shown.
func filled(t *testing.T, row event.Row, text string) []jobs.Event {
	t.Helper()
	payload := reflect.New(reflect.TypeOf(row.Payload))
	fill(payload.Elem(), "", text)
	whole := event.New(payload.Elem().Interface().(event.Payload))
	var fields map[string]any
	if len(text) > mostText || json.Unmarshal(whole.Data, &fields) != nil { // one of a long text is enough
		return []jobs.Event{whole}
	}
	all := []jobs.Event{whole}
	for _, change := range []map[string]any{
		{"state": "accepted"}, {"state": "accepted", "verb": "prompt"}, {"role": "user"}, {"type": "permission"},
		{"type": "permission", "questions": nil}, {"type": "question", "questions": ofAgents(text)["Questions"].([]control.Question)[:1]},
		{"outcome": "success"}, {"status": "ok", "usage_scope": "turn"}, {"input": map[string]string{"command": text}}, {"input": map[string]string{text: text}},
		{"input": []map[string]string{{"path": text, "diff": "@@\n-" + text + "\n+" + text}}},
	} {
		other := map[string]any{}
		for name, value := range fields {
			other[name] = value
		}
		for name, value := range change {
			if _, has := fields[name]; has {
				other[name] = value
			}
		}
		data, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, jobs.Event{Kind: whole.Kind, Data: data})
	}
	return all
}

// numbered gives events the numbers that a log gives them.
func numbered(events []jobs.Event) []jobs.Event {
	for i := range events {
		events[i].Seq, events[i].Job, events[i].Session, events[i].Attempt = uint64(i+1), "j1", "j1", 1
		events[i].Time = time.Date(2026, 11, 23, 12, 0, i, 0, time.UTC)
	}
	return events
}

// parse reads a fragment as a browser does.
func parse(t *testing.T, fragment string) []*html.Node {
	t.Helper()
	nodes, err := html.ParseFragment(strings.NewReader(fragment), &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Every kind of event has a look, and what its payload says is seen, unless the table
// says that it is seen among the raw events alone. A new kind fails until it is there.
func TestEveryKindHasALook(t *testing.T) {
	for _, row := range event.Kinds() {
		if _, ok := looks[row.Kind]; !ok {
			t.Errorf("%s (%s) has no look: choose one in looks, or rawOnly", row.Kind, row.About)
			continue
		}
		seen := ""
		for _, e := range numbered(filled(t, row, "sentinel")) {
			fragment, err := Fragment(e, options)
			if err != nil {
				t.Errorf("%s: %v", row.Kind, err)
			}
			seen += string(fragment)
		}
		if (seen != "") != Shown(row.Kind) {
			t.Errorf("%s is shown: %v; its look says %v", row.Kind, seen != "", Shown(row.Kind))
		}
		about := strings.Contains(seen, "sentinel") || strings.Contains(strings.ReplaceAll(seen, ",", ""), "4711")
		if seen != "" && !about {
			t.Errorf("%s shows nothing of its payload: %.300s", row.Kind, seen)
		}
	}
	if len(looks) != len(event.Kinds()) {
		t.Errorf("%d kinds have looks, of %d", len(looks), len(event.Kinds()))
	}
	unknown, err := Fragment(jobs.Event{Seq: 1, Kind: "brand.new", Data: json.RawMessage(`{"a":"sentinel"}`)}, options)
	if err != nil || !strings.Contains(string(unknown), "sentinel") {
		t.Errorf("a kind of a newer version: %s, %v", unknown, err)
	}
}

// What came of a tool stands in its call, where the page has that, and by itself where it
// does not. Every event that is shown is there once.
func TestAWindow(t *testing.T) {
	events := []jobs.Event{event.New(event.JobClaimed{Worker: "w", Epoch: 3})}
	for n := range 40 {
		call := fmt.Sprint("call", n)
		ok := n%2 == 0
		events = append(events,
			event.New(event.ToolStarted{Call: call, Name: "Bash", Input: json.RawMessage(fmt.Sprintf(`{"command":"run %d"}`, n))}),
			event.New(event.Message{Role: "assistant", Text: "between"}),
			event.New(event.ToolEnded{Call: call, OK: &ok, Output: strings.Repeat("x", 500)}))
	}
	numbered(events)
	for _, most := range []int{0, 9000, 20000, 1} {
		o := options
		o.Most = most
		w, err := Render(events, o)
		if err != nil {
			t.Fatal(err)
		}
		if most > 1 && len(w.HTML) > most+4000 {
			t.Errorf("%d bytes, of %d", len(w.HTML), most)
		}
		seqs := map[string]int{}
		for _, node := range parse(t, string(w.HTML)) {
			for n := range node.Descendants() {
				count(seqs, n)
			}
			count(seqs, node)
		}
		for _, e := range events {
			wanted := 0
			if e.Seq >= w.First {
				wanted = 1
			}
			if got := seqs[fmt.Sprint(e.Seq)]; got != wanted {
				t.Errorf("of %d bytes: event %d is there %d times, want %d, from %d on", most, e.Seq, got, wanted, w.First)
			}
		}
		if w.Last != events[len(events)-1].Seq || most == 0 && w.First != 1 {
			t.Errorf("events %d to %d", w.First, w.Last)
		}
	}
}

func count(seqs map[string]int, n *html.Node) {
	for _, a := range n.Attr {
		if a.Key == "data-seq" {
			seqs[a.Val]++
		}
	}
}

// A question has a form until it is over, and only for those who may answer.
func TestQuestions(t *testing.T) {
	asked := event.New(event.AskOpened{Ask: "q1", Type: "question", Questions: json.RawMessage(`[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]`)})
	for _, tt := range []struct {
		name  string
		after []event.Payload
		may   bool
		forms bool
	}{
		{"open", nil, true, true},
		{"to a viewer", nil, false, false},
		{"answered", []event.Payload{event.AskClosed{Ask: "q1", How: "answered"}}, true, false},
		{"another one is", []event.Payload{event.AskClosed{Ask: "q2", How: "answered"}}, true, true},
		{"its agent is gone", []event.Payload{event.JobClaimed{Worker: "w"}}, true, false},
		{"the job has finished", []event.Payload{event.JobFinished{}}, true, false},
	} {
		events := []jobs.Event{asked}
		for _, p := range tt.after {
			events = append(events, event.New(p))
		}
		w, err := Render(numbered(events), Options{Base: "/ui/jobs/j1", Answer: tt.may})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(w.HTML), "<form"); got != tt.forms {
			t.Errorf("%s: form %v, want %v", tt.name, got, tt.forms)
		}
	}
}
