package schema

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Operations lists the operations that [ForOperation] knows.
func Operations() []string {
	var names []string
	for _, row := range operation.All() {
		names = append(names, row.Name)
	}
	return names
}

// ForOperation returns the schemas of one operation's request, answer and refusal, as
// indented JSON: the properties of one object, beside the documents that they name.
func ForOperation(name string) ([]byte, error) {
	rows := operation.All()
	at := slices.IndexFunc(rows, func(r operation.Row) bool { return r.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("operation %q is not known; use %s", name, strings.Join(Operations(), ", "))
	}
	d, err := newDefinitions()
	if err != nil {
		return nil, err
	}
	s, err := d.operation(rows[at])
	if err != nil {
		return nil, err
	}
	d.complete(s)
	s.Schema, s.ID, s.Title = dialect, home+"operation/"+name+".json", "Penstock operation "+name
	return indented(name, s)
}

// operations is the schema of an object that has one property for each operation.
func operations() (*jsonschema.Schema, error) {
	d, err := newDefinitions()
	if err != nil {
		return nil, err
	}
	all := &jsonschema.Schema{
		Schema: dialect, ID: home + allOperations + ".json", Title: "Penstock operations", Type: "object",
		Description: "What can be asked of a pool, by name: a request, its answer, and a refusal.",
		Properties:  map[string]*jsonschema.Schema{},
	}
	for _, row := range operation.All() {
		if all.Properties[row.Name], err = d.operation(row); err != nil {
			return nil, err
		}
		all.PropertyOrder = append(all.PropertyOrder, row.Name)
	}
	d.complete(all)
	return all, nil
}

// parts are the types that stand in $defs, where requests and answers refer to them.
var parts = map[string]reflect.Type{
	"job": reflect.TypeFor[jobs.Job](), "record": reflect.TypeFor[jobs.Record](), "result": reflect.TypeFor[jobs.Result](),
	"control": reflect.TypeFor[control.Message](), "schedule": reflect.TypeFor[calendar.Schedule](), "dead": reflect.TypeFor[jobs.DeadLetter](),
	"event": reflect.TypeFor[jobs.Event](), "refusal": reflect.TypeFor[operation.Refusal](), "schedule-record": reflect.TypeFor[calendar.Record](),
}

// definitions are the schemas of the parts, and of the types of single fields.
type definitions struct {
	parts map[string]*jsonschema.Schema
	types map[reflect.Type]*jsonschema.Schema
}

func newDefinitions() (*definitions, error) {
	d := &definitions{parts: map[string]*jsonschema.Schema{}, types: types()}
	add := func(name string, part *jsonschema.Schema) {
		part.Schema, part.ID = "", ""
		d.parts[name], d.types[parts[name]] = part, &jsonschema.Schema{Ref: "#/$defs/" + name}
	}
	for name := range parts {
		if documents[name].of == nil {
			continue
		}
		part, err := build(name)
		if err != nil {
			return nil, err
		}
		add(name, part)
	}
	// What belongs to each kind of event has schemas of its own.
	d.parts["event"].Defs, d.parts["event"].AllOf = nil, nil
	for _, name := range []string{"refusal", "schedule-record"} { // which refer to documents
		part, err := d.shape(parts[name], false)
		if err != nil {
			return nil, err
		}
		add(name, part)
	}
	return d, nil
}

// operation makes the schema of one operation.
func (d *definitions) operation(row operation.Row) (*jsonschema.Schema, error) {
	request, err := d.shape(row.Request, true)
	if err != nil {
		return nil, fmt.Errorf("make the schema of a request to %s: %w", row.Name, err)
	}
	answer, err := d.shape(row.Answer, false)
	if err != nil {
		return nil, fmt.Errorf("make the schema of the answer to %s: %w", row.Name, err)
	}
	return &jsonschema.Schema{
		Type: "object", Description: row.Sentence,
		Properties:    map[string]*jsonschema.Schema{"request": request, "answer": answer, "refusal": {Ref: "#/$defs/refusal"}},
		PropertyOrder: []string{"request", "answer", "refusal"},
	}, nil
}

// embedded describe the fields of documents that an answer has among its own.
var embedded = map[reflect.Type]map[string]string{
	parts["record"]: recordFields, parts["dead"]: deadFields, parts["schedule"]: scheduleFields,
	reflect.TypeFor[control.Receipt](): receiptFields,
}

// shape makes the schema of a request, which is read strictly, or of an answer, which
// later versions may add fields to.
func (d *definitions) shape(of reflect.Type, request bool) (*jsonschema.Schema, error) {
	known := maps.Clone(d.types)
	doc := document{of: of, fields: map[string]string{}}
	maps.Copy(doc.fields, embedded[of])
	if of.Kind() == reflect.Struct && known[of] == nil {
		for field := range of.Fields() {
			if field.Anonymous {
				delete(known, field.Type) // its fields are the answer's
				maps.Copy(doc.fields, embedded[field.Type])
			}
		}
	}
	s, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	if !request {
		doc.finish(s, "")
	}
	tidy(s, request)
	if isolation := s.Properties["isolation"]; isolation != nil {
		unknownIsolation(isolation)
	}
	return s, nil
}

// tidy takes null from references, which are never null where they stand, and from
// requests, whose authors leave out what they do not mean.
func tidy(s *jsonschema.Schema, request bool) {
	if s.Ref != "" {
		s.Types = nil
	}
	if at := slices.Index(s.Types, "null"); request && at >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-at], nil
	}
	for child := range children(s) {
		tidy(child, request)
	}
}

// complete adds the parts that a schema refers to, and what these refer to.
func (d *definitions) complete(s *jsonschema.Schema) {
	s.Defs = map[string]*jsonschema.Schema{}
	var visit func(*jsonschema.Schema)
	visit = func(at *jsonschema.Schema) {
		if name, ok := strings.CutPrefix(at.Ref, "#/$defs/"); ok && s.Defs[name] == nil {
			s.Defs[name] = d.parts[name]
			visit(d.parts[name])
		}
		for child := range children(at) {
			visit(child)
		}
	}
	visit(s)
}

// children are the schemas of what a value has in it.
func children(s *jsonschema.Schema) iter.Seq[*jsonschema.Schema] {
	return func(yield func(*jsonschema.Schema) bool) {
		for _, property := range s.Properties {
			if !yield(property) {
				return
			}
		}
		for _, child := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
			if child != nil && !yield(child) {
				return
			}
		}
	}
}
