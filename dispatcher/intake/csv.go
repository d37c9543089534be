package intake

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// columns are the fields that a column can fill, and the headers that fill
// them without being mapped. Trackers export theirs under the later names.
var columns = map[string][]string{
	"id":       {"id", "key", "issue key", "instance_id"},
	"prompt":   {"prompt"},
	"title":    {"title", "summary"},
	"body":     {"body", "description"},
	"url":      {"url"},
	"number":   {"number"},
	"labels":   {"labels"},
	"repo":     {"repo"},
	"ref":      {"ref"},
	"commit":   {"commit", "base_commit"},
	"priority": nil,
	"queue":    nil,
	"model":    nil,
	"image":    nil,
}

// table is a CSV file's header, and which columns fill which field.
type table struct {
	header []string
	fields map[string][]int
}

func readCSV(data []byte, opts Options) ([]*entry, error) {
	// If the file had to be read to know that it is CSV, its rows are known only now.
	if err := newMeter(rows, opts.Limits).feed(data); err != nil {
		return nil, err
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma = delimiter(data)
	r.FieldsPerRecord = -1 // counted below, so that one short row is one error
	r.LazyQuotes = false
	header, err := r.Read()
	if err != nil {
		return nil, inputError(1, "the header cannot be read: %v", err)
	}
	t, err := newTable(header, opts.Map)
	if err != nil {
		return nil, err
	}
	var entries []*entry
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			entries = append(entries, &entry{line: parse.StartLine, err: inputError(parse.StartLine, "the row cannot be read: %v", parse.Err)})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read csv: %w", err)
		}
		line, _ := r.FieldPos(0)
		entries = append(entries, t.entry(line, row))
	}
}

func newTable(header []string, mapped map[string]string) (*table, error) {
	t := &table{header: header, fields: map[string][]int{}}
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
	}
	for _, field := range slices.Sorted(maps.Keys(columns)) {
		for _, name := range columns[field] {
			if found := t.find(name, strings.EqualFold); len(found) > 0 {
				t.fields[field] = found
				break
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(mapped)) {
		if _, ok := columns[field]; !ok {
			return nil, inputError(0, "--map %s=%s: %q is not a field; known are %s", field, mapped[field], field, strings.Join(slices.Sorted(maps.Keys(columns)), ", "))
		}
		found := t.find(mapped[field], func(a, b string) bool { return a == b })
		if len(found) == 0 {
			return nil, inputError(1, "--map %s=%s: the header has no such column; it has %s", field, mapped[field], strings.Join(header, ", "))
		}
		t.fields[field] = found
	}
	if t.fields["prompt"] == nil && t.fields["title"] == nil && t.fields["body"] == nil {
		return nil, inputError(1, "no column is a prompt, a title or a body; the header has %s: map one with --map prompt=COLUMN", strings.Join(header, ", "))
	}
	return t, nil
}

func (t *table) find(name string, equal func(a, b string) bool) []int {
	var found []int
	for i, h := range t.header {
		if equal(h, name) {
			found = append(found, i)
		}
	}
	return found
}

func (t *table) entry(line int, row []string) *entry {
	e := &entry{line: line, row: map[string]any{}}
	if len(row) != len(t.header) {
		e.err = inputError(line, "the row has %d fields, the header has %d", len(row), len(t.header))
		return e
	}
	for i, name := range t.header {
		// A repeated column (labels, components) is a list in one cell.
		if old, ok := e.row[name].(string); ok && row[i] != "" && old != "" {
			e.row[name] = old + "," + row[i]
		} else if !ok || row[i] != "" {
			e.row[name] = row[i]
		}
	}
	get := func(field string) string {
		for _, i := range t.fields[field] {
			if v := strings.TrimSpace(row[i]); v != "" {
				return v
			}
		}
		return ""
	}
	job := jobs.Job{
		Prompt: get("prompt"), Queue: get("queue"), Priority: jobs.Priority(get("priority")), Image: get("image"),
		Repo:  jobs.Repo{URL: get("repo"), Ref: get("ref"), Commit: get("commit")},
		Agent: jobs.Agent{Model: get("model")},
	}
	issue := jobs.Issue{Title: get("title"), Body: get("body"), URL: get("url"), Labels: t.labels(row)}
	if n := get("number"); n != "" {
		number, err := strconv.Atoi(n)
		if err != nil || number <= 0 {
			e.err = inputError(line, "the number %q is not a whole number above 0", n)
			return e
		}
		issue.Number = number
	}
	if issue.Title != "" || issue.Body != "" || issue.Number > 0 {
		job.Issue = &issue
		e.issue = plain(encode(issue))
	}
	e.id = firstOf(get("id"), get("number"))
	e.job, e.item = encode(job), e.row
	return e
}

func (t *table) labels(row []string) []string {
	var labels []string
	for _, i := range t.fields["labels"] {
		for name := range strings.FieldsFuncSeq(row[i], func(r rune) bool { return r == ',' || r == ';' }) {
			if name = strings.TrimSpace(name); name != "" {
				labels = append(labels, name)
			}
		}
	}
	return labels
}

// delimiter is what separates the header: spreadsheets write semicolons where
// the comma is the decimal mark.
func delimiter(data []byte) rune {
	header, _, _ := bytes.Cut(data, []byte("\n"))
	best, most := ',', 0
	for _, c := range []rune{',', ';', '\t'} {
		if n := bytes.Count(header, []byte(string(c))); n > most {
			best, most = c, n
		}
	}
	return best
}

// looksLikeCSV reports whether the first line is a header that has a column
// of ours.
func looksLikeCSV(data []byte) bool {
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma = delimiter(data)
	header, err := r.Read()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(header, func(h string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(columns)), func(names []string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(h)))
		})
	})
}
