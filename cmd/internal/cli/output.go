package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Format is how data is written to standard output. Tables are for people
// and may change; the others have the API's keys.
type Format string

// The formats of -o.
const (
	Table Format = "table"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	YAML  Format = "yaml"
	IDs   Format = "id"
)

// String, Set and Type make Format a flag.
func (f *Format) String() string { return string(*f) }

// Type names the flag's value in help texts.
func (f *Format) Type() string { return "format" }

// Set accepts one of the five formats.
func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case Table, JSON, JSONL, YAML, IDs:
		*f = v
		return nil
	}
	return fmt.Errorf("%q is not a format: use table, json, jsonl, yaml or id", s)
}

// A View is how one kind of data looks in a table and as an id.
type View[T any] struct {
	Header []string
	Row    func(T) []string
	ID     func(T) string
}

// List writes many values.
func (v View[T]) List(w io.Writer, f Format, values []T) error {
	switch f {
	case JSON, YAML:
		if values == nil {
			values = []T{}
		}
		return encode(w, f, values)
	case JSONL:
		for _, value := range values {
			if err := encode(w, f, value); err != nil {
				return err
			}
		}
		return nil
	case IDs:
		for _, value := range values {
			if _, err := io.WriteString(w, visible.Line(v.ID(value))+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	return v.table(w, values)
}

// One writes a single value: the same as a list of it, but not as a list.
func (v View[T]) One(w io.Writer, f Format, value T) error {
	if f == Table || f == IDs {
		return v.List(w, f, []T{value})
	}
	return encode(w, f, value)
}

func (v View[T]) table(w io.Writer, values []T) error {
	rows := make([][]string, len(values))
	for i, value := range values {
		rows[i] = v.Row(value)
	}
	return console.Table(w, v.Header, rows)
}

func encode(w io.Writer, f Format, value any) error {
	data, err := json.Marshal(value)
	data = console.JSON(data)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	switch f {
	case YAML:
		// Through JSON, so that the keys are the API's.
		if err := console.YAML(w, value); err != nil {
			return fmt.Errorf("write yaml: %w", err)
		}
		return nil
	case JSON:
		var indented strings.Builder
		enc := json.NewEncoder(&indented)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(json.RawMessage(data)); err != nil {
			return fmt.Errorf("write json: %w", err)
		}
		_, err = io.WriteString(w, indented.String())
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
