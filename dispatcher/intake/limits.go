package intake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// Limits bound what a batch's file may hold. Where a field is 0, its default
// counts: a batch beyond that is better submitted in parts.
type Limits struct {
	Line  jobs.Bytes // one line, one row, or one element of a list; 1MiB
	Items int        // 100,000
	Bytes jobs.Bytes // the whole file; 1GiB
}

// withDefaults returns l with each limit set.
func (l Limits) withDefaults() Limits {
	return Limits{Line: cmp.Or(l.Line, 1<<20), Items: cmp.Or(l.Items, 100_000), Bytes: cmp.Or(l.Bytes, 1<<30)}
}

// maxYAML bounds a file that has to be in memory as a tree, many times its size.
const maxYAML = 16 << 20

func (l Limits) validate() error {
	switch {
	case l.Line < 0:
		return inputError(0, "--max-line: %s is less than 0", l.Line)
	case l.Items < 0:
		return inputError(0, "--max-items: %d is less than 0", l.Items)
	case l.Bytes < 0:
		return inputError(0, "--max-input: %s is less than 0", l.Bytes)
	}
	return nil
}

// read reads no further than to the first byte that is too many.
func (l Limits) read(r io.Reader, name string, opts Options) ([]byte, error) {
	var data bytes.Buffer
	chunk := make([]byte, 64<<10)
	var m *meter
	for {
		n, err := r.Read(chunk)
		if data.Write(chunk[:n]); jobs.Bytes(data.Len()) > l.Bytes {
			return nil, &InputError{Name: name, Reason: fmt.Sprintf("is larger than %s: split the file, or raise --max-input", l.Bytes)}
		}
		if m == nil && n > 0 {
			m = newMeter(unitOf(chunk[:n], name, opts), l)
		}
		if m != nil {
			if over := m.feed(chunk[:n]); over != nil {
				return nil, named(name, over)
			}
		}
		if errors.Is(err, io.EOF) {
			return data.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
}

// A unit says what one item looks like from the outside.
type unit int

const (
	lines     unit = iota // bounded, and counted once the first has shown that each is an item
	objects               // lines, each of which is an item
	rows                  // of CSV: a line end within quotes belongs to its row
	elements              // of a JSON list
	documents             // lines that are no items
)

// unitOf tells by the beginning of a file what its items look like.
func unitOf(begin []byte, name string, opts Options) unit {
	begin = bytes.TrimLeft(trimBOM(begin), " \t\r\n")
	ext := strings.ToLower(path.Ext(name))
	auto := opts.Format == "" || opts.Format == "auto"
	switch {
	case opts.Format == "csv":
		return rows
	case opts.Format == "yaml":
		return documents
	case opts.Format == "jsonl":
		return objects
	case bytes.HasPrefix(begin, []byte("[")):
		return elements
	case auto && !bytes.HasPrefix(begin, []byte("{")) && (ext == ".csv" || ext == ".tsv"):
		return rows
	}
	return lines
}

// A meter follows the bytes of a file as they come, and tells where an item is
// larger than it may be, or one too many begins.
type meter struct {
	unit    unit
	limits  Limits
	line    int // the one at hand
	begin   int // the line on which the item at hand begins
	size    jobs.Bytes
	blank   bool // nothing of the item at hand has been seen
	items   int
	depth   int
	quoted  bool
	escaped bool
	first   []byte // the first line, as long as it has to show whether lines are items
}

func newMeter(u unit, l Limits) *meter {
	return &meter{unit: u, limits: l, line: 1, begin: 1, blank: true}
}

func (m *meter) feed(p []byte) error {
	for _, c := range p {
		if m.blank {
			m.begin = m.line
		}
		if m.unit == lines {
			m.first = append(m.first, c)
		}
		if m.ends(c) {
			if err := m.next(); err != nil {
				return err
			}
		} else if m.size++; m.size > m.limits.Line {
			return inputError(m.begin, "%s is longer than %s; --max-line raises the limit", m.what(), m.limits.Line)
		} else if m.blank && c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			m.blank = false
		}
		if c == '\n' {
			m.line++
		}
	}
	return nil
}

// ends reports whether c ends the item at hand.
func (m *meter) ends(c byte) bool {
	switch m.unit {
	case rows:
		if c == '"' {
			m.quoted = !m.quoted
		}
		return c == '\n' && !m.quoted
	case elements:
		return m.endsElement(c)
	}
	return c == '\n'
}

// endsElement is ends in a JSON list: a comma or the bracket, outside of
// everything that is within the element.
func (m *meter) endsElement(c byte) bool {
	switch {
	case m.escaped:
		m.escaped = false
	case m.quoted:
		m.escaped, m.quoted = c == '\\', c != '"'
	case c == '"':
		m.quoted = true
	case c == '[' || c == '{':
		m.depth++
		return m.depth == 1
	case c == ']' || c == '}':
		m.depth--
		return m.depth == 0
	case c == ',':
		return m.depth == 1
	}
	return false
}

// next begins the next item.
func (m *meter) next() error {
	if !m.blank {
		m.items++
		if m.unit == lines {
			m.unit = documents
			if line := bytes.TrimSpace(trimBOM(m.first)); bytes.HasPrefix(line, []byte("{")) && json.Valid(line) {
				m.unit = objects
			}
		}
	}
	m.size, m.blank, m.first = 0, true, m.first[:0]
	most := m.limits.Items
	if m.unit == rows {
		most++ // the header
	}
	if m.unit != documents && m.items > most {
		return tooMany(m.begin, m.limits)
	}
	return nil
}

func (m *meter) what() string {
	switch m.unit {
	case rows:
		return "the row"
	case elements:
		return "the element of the list"
	}
	return "the line"
}

func tooMany(line int, l Limits) error {
	return inputError(line, "has more than %d items: split the file, or raise --max-items", l.Items)
}
