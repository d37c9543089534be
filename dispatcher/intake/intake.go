package intake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
)

// Options say how a file is read. The zero value detects the format by the
// content and takes every item as it is.
type Options struct {
	// Format is auto (or empty), jsonl, json, yaml, csv, gh-issues or swebench.
	Format string
	// Defaults stand under each item: what the item says wins, field by
	// field; labels and env are merged.
	Defaults jobs.Job
	// Template makes the prompt, in the language of text/template. It sees
	// .issue, .item, .row, .vars and .repo; a field that is missing is an error.
	Template string
	Vars     map[string]string
	// Locate finds the repository of an item for which neither the item nor
	// the defaults name one. It is called after the item was read; nil finds none.
	Locate func(jobs.Job) (string, error)
	// Map names columns of a CSV file: field=Column.
	Map map[string]string

	// Selection, in this order. Filter is a regular expression that must
	// match from the beginning of the id, Slice is a:b or a:b:c as in Python.
	Shuffle bool
	Seed    int64 // 0 stands for 42
	Filter  string
	Slice   string
	Limit   int

	Limits Limits
}

// Items are the selected contents of a file.
type Items struct {
	Name   string
	Format string
	SHA256 string // of the input
	Total  int    // items in the file, before the selection
	Items  []Item
}

// An Item is one job of a batch, or the reason why it is none.
type Item struct {
	ID   string
	Line int
	Job  jobs.Job
	Err  error
}

// An InputError says what is wrong with a batch as a whole, or with one line.
type InputError struct {
	Name   string
	Line   int // 0: not one line
	Reason string
}

func (e *InputError) Error() string {
	switch {
	case e.Line > 0 && e.Name != "":
		return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Reason)
	case e.Line > 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("%s: %s", e.Name, e.Reason)
}

func inputError(line int, format string, args ...any) *InputError {
	return &InputError{Line: line, Reason: fmt.Sprintf(format, args...)}
}

// entry is an item on its way: what the file says, before defaults.
type entry struct {
	id   string
	line int
	job  json.RawMessage // the item's own fields, as a job's JSON
	item map[string]any  // what a template sees as .item
	row  map[string]any  // what a template sees as .row
	// matrix is the item's combination of a matrix's values.
	matrix map[string]any
	// issue holds what the source knows of the issue beyond a job's fields.
	issue map[string]any
	// implied is what the source says about the repository and the image without
	// naming them. It counts where nothing else names one.
	implied implied
	err     error
}

// implied is what follows from an item: an issue's address tells its repository.
type implied struct {
	repo, image string
	err         error // why no repository follows, where one should
}

// Read reads a batch. The name is for messages: a path, or "-".
func Read(r io.Reader, name string, opts Options) (Items, error) {
	prepared, err := prepare(name, opts)
	if err != nil {
		return Items{}, err
	}
	opts.Limits = opts.Limits.withDefaults()
	data, err := opts.Limits.read(r, name, opts)
	if err == nil {
		err = checkText(data, name)
	}
	if err != nil {
		return Items{}, err
	}
	sum := sha256.Sum256(data)
	format, entries, err := decode(trimBOM(data), name, opts)
	if err != nil {
		return Items{}, named(name, err)
	}
	if len(entries) == 0 {
		return Items{}, &InputError{Name: name, Reason: "has no items"}
	}
	if most := opts.Limits.Items; len(entries) > most {
		return Items{}, named(name, tooMany(entries[most].line, opts.Limits))
	}
	if err := assignIDs(name, entries); err != nil {
		return Items{}, err
	}
	chosen := prepared.selection.apply(entries)
	got := Items{Name: name, Format: format, SHA256: hex.EncodeToString(sum[:]), Total: len(entries), Items: make([]Item, 0, len(chosen))}
	for _, e := range chosen {
		got.Items = append(got.Items, prepared.item(name, e))
	}
	return got, nil
}

// Rejected is the result of an item that cannot be run, so that a batch's
// results name it too.
func (i Item) Rejected() jobs.Result {
	r := jobs.Result{ID: i.ID, Outcome: jobs.Error, Reason: jobs.InvalidJob, Checks: []jobs.Check{}, Weaker: []string{}, Artifacts: []jobs.Artifact{}}
	if i.Err != nil {
		r.Message = i.Err.Error()
	}
	return r
}

// InBatch returns the items as jobs of the batch with that id. The key makes
// a second submission of an item harmless; nil stands for "<batch>/<item>".
func (it Items) InBatch(batch string, key func(item string) string) Items {
	if key == nil {
		key = func(item string) string { return batch + "/" + item }
	}
	items := make([]Item, len(it.Items))
	for i, item := range it.Items {
		item.Job.Batch, item.Job.Item, item.Job.Key = batch, item.ID, key(item.ID)
		items[i] = item
	}
	it.Items = items
	return it
}

// Errors returns the items that cannot be run.
func (it Items) Errors() []Item {
	var bad []Item
	for _, item := range it.Items {
		if item.Err != nil {
			bad = append(bad, item)
		}
	}
	return bad
}

// checkText refuses empty files, and those that are not text in UTF-8.
func checkText(data []byte, name string) error {
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return &InputError{Name: name, Reason: "is UTF-16: save it as UTF-8"}
	case len(bytes.TrimSpace(trimBOM(data))) == 0:
		return &InputError{Name: name, Reason: "is empty"}
	case !utf8.Valid(data):
		return &InputError{Name: name, Line: invalidLine(data), Reason: "is not UTF-8: save the file as UTF-8"}
	}
	return nil
}

func invalidLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return line
}

func trimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }
