package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

// Formats are the words for [Options].Format.
func Formats() []string { return slices.Clone(formats) }

var formats = []string{"auto", "jsonl", "json", "yaml", "csv", "gh-issues", "swebench"}

const lookedFor = "looked for JSON Lines or a JSON list (of jobs, of SWE-bench instances, of what gh issue list --json prints), YAML with jobs:, and CSV with a header; name the format with --format"

var yamlTop = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(jobs|defaults|matrix)[ \t]*:|^---[ \t]*$`) })

// decode reads the entries in the format that was asked for or is found.
func decode(data []byte, name string, opts Options) (string, []*entry, error) {
	format := opts.Format
	if format == "" || format == "auto" {
		format = detect(data, name, len(opts.Map) > 0)
	}
	if len(opts.Map) > 0 && format != "csv" {
		return "", nil, inputError(0, "is read as %s: columns can be mapped in CSV only", orUnknown(format))
	}
	switch format {
	case "csv":
		entries, err := readCSV(data, opts)
		return format, entries, err
	case "yaml":
		if len(data) > maxYAML {
			return "", nil, inputError(0, "is YAML of more than %s: write it as JSON Lines", jobs.Bytes(maxYAML))
		}
		entries, err := readYAML(data, opts.Limits)
		return format, entries, err
	case "":
		return "", nil, inputError(0, "is in no format that is known: %s", lookedFor)
	}
	return decodeJSON(data, format, opts.Limits)
}

// decodeJSON reads a list or lines of objects. The first object that can be read
// says what they are, unless the format names it.
func decodeJSON(data []byte, format string, limits Limits) (string, []*entry, error) {
	var objects []object
	var err error
	switch {
	case format == "jsonl", data[firstByte(data)] != '[' && format != "json" && !oneValue(data):
		objects = readLines(data, limits.Items)
	default:
		objects, err = readList(data, limits)
	}
	if err != nil {
		return "", nil, err
	}
	kind := format
	if kind == "json" || kind == "jsonl" {
		kind = kindOf(objects)
	}
	entries := make([]*entry, len(objects))
	for i, o := range objects {
		entries[i] = o.entry(kind)
	}
	if kind != "gh-issues" && kind != "swebench" {
		kind = format
	}
	return kind, entries, nil
}

// detect tells the format by the content, and by the name where the content
// can be two things. Columns that were mapped mean CSV.
func detect(data []byte, name string, mapped bool) string {
	ext := strings.ToLower(path.Ext(name))
	switch c := data[firstByte(data)]; {
	case c == '{' && !oneValue(data):
		return "jsonl"
	case c == '[' || c == '{':
		return "json"
	case ext == ".yaml" || ext == ".yml":
		return "yaml"
	case ext == ".csv" || ext == ".tsv":
		return "csv"
	case yamlTop().Match(data):
		return "yaml"
	case mapped || looksLikeCSV(data):
		return "csv"
	}
	return ""
}

// kindOf tells jobs from issues and from benchmark instances by their fields.
func kindOf(objects []object) string {
	for _, o := range objects {
		if o.err != nil {
			continue
		}
		has := func(names ...string) bool {
			return !slices.ContainsFunc(names, func(n string) bool { _, ok := o.fields[n]; return !ok })
		}
		switch {
		case has("problem_statement"):
			return "swebench"
		case has("number", "title") && !has("prompt") && !has("agent"):
			return "gh-issues"
		}
		return "job"
	}
	return "job"
}

// object is one JSON object of a list or of lines.
type object struct {
	line   int
	raw    json.RawMessage
	fields map[string]json.RawMessage
	err    error
}

func newObject(line int, raw []byte) object {
	o := object{line: line, raw: raw}
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		o.err = inputError(line, "is not a JSON object: %s", jsonReason(err, raw))
	} else if o.fields == nil {
		o.err = inputError(line, "is null, wants a JSON object")
	}
	return o
}

func (o object) entry(kind string) *entry {
	if o.err != nil {
		return &entry{line: o.line, err: o.err}
	}
	switch kind {
	case "gh-issues":
		return issueEntry(o)
	case "swebench":
		return instanceEntry(o)
	}
	return jobEntry(o)
}

// readLines reads one object a line, and one more than are allowed. A line that
// cannot be read is its own item's error.
func readLines(data []byte, most int) []object {
	var objects []object
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if text = bytes.TrimSpace(text); len(text) > 0 {
			objects = append(objects, newObject(line, text))
		}
		if len(objects) > most {
			break
		}
	}
	return objects
}

// readList reads a JSON list of objects, or one object alone.
func readList(data []byte, limits Limits) ([]object, error) {
	if err := syntax(data); err != nil {
		return nil, err
	}
	if data[firstByte(data)] == '{' {
		if jobs.Bytes(len(data)) > limits.Line {
			return nil, inputError(0, "is one object of more than %s; --max-line raises the limit", limits.Line)
		}
		return []object{newObject(lineAt(data, firstByte(data)), data)}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil, inputError(0, "is not a JSON list: %v", err)
	}
	var objects []object
	line, seen := 1, 0
	for dec.More() && len(objects) <= limits.Items {
		// The decoder stands behind the last value: the comma and the white
		// space before the next one still belong to the lines above.
		at := int(dec.InputOffset())
		at += len(data[at:]) - len(bytes.TrimLeft(data[at:], ", \t\r\n"))
		line += bytes.Count(data[seen:at], []byte("\n"))
		seen = at
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, inputError(line, "is not JSON: %v", err)
		}
		objects = append(objects, newObject(line, raw))
	}
	return objects, nil
}

func syntax(data []byte) error {
	if json.Valid(data) {
		return nil
	}
	var any json.RawMessage
	err := json.Unmarshal(data, &any)
	line := 0
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		line = lineAt(data, int(s.Offset))
	}
	return inputError(line, "is not JSON: %v", err)
}

func jsonReason(err error, raw []byte) string {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "it is a " + kind.Value
	}
	return fmt.Sprintf("%v (it begins %s)", err, excerpt(raw))
}

func excerpt(raw []byte) string {
	const most = 40
	if len(raw) <= most {
		return fmt.Sprintf("%q", raw)
	}
	return fmt.Sprintf("%q…", raw[:most])
}

func firstByte(data []byte) int {
	return len(data) - len(bytes.TrimLeft(data, " \t\r\n"))
}

// oneValue reports whether data is one JSON value, on however many lines.
func oneValue(data []byte) bool { return json.Valid(data) }

func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(offset, len(data))], []byte("\n"))
}

func named(name string, err error) error {
	if in, ok := errors.AsType[*InputError](err); ok && in.Name == "" {
		in.Name = name
		return in
	}
	return err
}

func orUnknown(format string) string {
	if format == "" {
		return "no known format"
	}
	return format
}
