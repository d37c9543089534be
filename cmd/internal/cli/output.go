package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
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
			fmt.Fprintln(w, v.ID(value))
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
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(v.Header, "\t"))
	for _, value := range values {
		fmt.Fprintln(tw, Plain(strings.Join(v.Row(value), "\t")))
	}
	return tw.Flush()
}

func encode(w io.Writer, f Format, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	switch f {
	case YAML:
		// Through JSON, so that the keys are the API's.
		var plain any
		if err := yaml.Unmarshal(data, &plain); err != nil {
			return fmt.Errorf("write yaml: %w", err)
		}
		enc := yaml.NewEncoder(w)
		enc.SetIndent(2)
		if err := enc.Encode(plain); err != nil {
			return fmt.Errorf("write yaml: %w", err)
		}
		return enc.Close()
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
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// Plain removes what could move the cursor, ring, or change a title when text
// of an agent or an issue is shown on a terminal. Tabs and line ends stay.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return r
		}
		if r < 0x20 || 0x7f <= r && r < 0xa0 || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
			return -1
		}
		return r
	}, s)
}
