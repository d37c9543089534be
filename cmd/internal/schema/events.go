package schema

import (
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Kinds lists the kinds of events that [ForKind] knows.
func Kinds() []string {
	var names []string
	for _, row := range event.Kinds() {
		names = append(names, string(row.Kind))
	}
	return names
}

// ForKind returns the schema of one kind's data as indented JSON.
func ForKind(kind string) ([]byte, error) {
	row, ok := event.Lookup(jobs.Kind(kind))
	if !ok {
		return nil, &event.UnknownKindError{Kind: jobs.Kind(kind)}
	}
	s, err := payload(row)
	if err != nil {
		return nil, err
	}
	s.Schema, s.ID, s.Title = dialect, home+"event/"+kind+".json", "Data of the Penstock event "+kind
	return indented(kind, s)
}

// payload makes the schema of the data of one kind.
func payload(row event.Row) (*jsonschema.Schema, error) {
	doc := document{of: reflect.TypeOf(row.Payload)}
	if row.Kind == jobs.JobFinished {
		doc.fields = resultFields
	}
	s, err := jsonschema.ForType(doc.of, &jsonschema.ForOptions{TypeSchemas: types()})
	if err != nil {
		return nil, fmt.Errorf("make the schema of event %s: %w", row.Kind, err)
	}
	doc.finish(s, "")
	if row.Kind == jobs.JobFinished {
		unknownIsolation(at(s, "isolation"))
	}
	s.Description = row.About
	return s, nil
}

// addKinds says of an event what its data is, by its kind. Data of other kinds
// may be anything.
func addKinds(s *jsonschema.Schema) error {
	s.Defs = map[string]*jsonschema.Schema{}
	for _, row := range event.Kinds() {
		data, err := payload(row)
		if err != nil {
			return err
		}
		name := string(row.Kind)
		s.Defs[name] = data
		s.AllOf = append(s.AllOf, &jsonschema.Schema{
			If:   &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"kind": {Const: jsonschema.Ptr[any](name)}}},
			Then: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"data": {Ref: "#/$defs/" + name}}},
		})
	}
	return nil
}

// tokens is the schema of [event.Tokens], whose fields are there or not
// together.
func tokens() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, field := range [][2]string{
		{"input", "Tokens read."}, {"output", "Tokens written."},
		{"cache_read", "Tokens read from the model's cache."}, {"cache_write", "Tokens written to the model's cache."},
		{"context", "How many tokens the model reads with the next call."},
	} {
		s.Properties[field[0]] = &jsonschema.Schema{Type: "integer", Description: field[1]}
		s.PropertyOrder = append(s.PropertyOrder, field[0])
	}
	return s
}
