// Package terminal is the vocabulary of the terminals in the jail of a session
// whose agent runs: the requests to the worker that has them, and its answers;
// values only.
//
//	open ──▶ a new one, or one that is there ──▶ read, write, resize ──▶ close
//
// Everything is a request with one answer. A viewer asks for the output after
// an offset, and the answer waits until there is some. So any number of
// people can watch one terminal, each at its own pace: none holds up another or
// the program, and a viewer that has gone leaves nothing behind. Missed output
// shows as an answer that begins later than the offset in its request.
package terminal

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// Bounds of requests and answers.
const (
	MaxInput  = 16 << 10        // bytes that are typed at once
	MaxOutput = 64 << 10        // bytes of one answer
	MaxArgs   = 64 << 10        // of a program
	MaxOpen   = 8               // terminals of a session at once
	MaxBytes  = 256 << 10       // of a request
	Patience  = 5 * time.Second // how long an answer waits for something to be read
)

// A Verb is what a request asks for.
type Verb string

// The verbs. Open begins to look at a terminal, which a later attempt's worker
// refuses; the others name the attempt that Open has told.
const (
	Open   Verb = "open"
	List   Verb = "list"
	Read   Verb = "read"
	Write  Verb = "write"
	Resize Verb = "resize"
	Close  Verb = "close"
)

// A Request is about the terminals of a session.
type Request struct {
	Verb Verb `json:"verb"`
	// ID is a UUID, one for each viewer: an Open with the same one is the same,
	// and what is typed is counted by it.
	ID       string `json:"id,omitempty"`
	By       string `json:"by,omitempty"`       // who, for those who read the session
	Attempt  int    `json:"attempt,omitempty"`  // whose terminal it is
	Terminal int    `json:"terminal,omitempty"` // its number; of Open, 0 is a new one

	Args    []string `json:"args,omitempty"` // of Open: the program; none is a shell
	Rows    uint16   `json:"rows,omitempty"` // of Open and Resize
	Columns uint16   `json:"columns,omitempty"`

	// From is where Read begins, in bytes of all that the terminal has shown;
	// and of Write how many bytes of this ID stand before Data.
	From int64  `json:"from,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// Info describes a terminal.
type Info struct {
	Terminal int       `json:"terminal"`
	Args     []string  `json:"args"`
	By       string    `json:"by,omitempty"`
	Rows     uint16    `json:"rows"`
	Columns  uint16    `json:"columns"`
	Opened   time.Time `json:"opened"`
	Shown    int64     `json:"shown"`   // bytes so far
	Viewers  int       `json:"viewers"` // who have asked for more of late
	Exit     *Exit     `json:"exit,omitempty"`
}

// Exit says how a terminal's program ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	Why    string `json:"why,omitempty"` // where its code is not known
}

// An Answer is what a request comes to.
type Answer struct {
	Error     *control.RefusedError `json:"error,omitempty"`
	Attempt   int                   `json:"attempt,omitempty"`
	Terminals []Info                `json:"terminals,omitempty"` // of List all of them, of Open the one
	From      int64                 `json:"from,omitempty"`      // where Data begins, or how much of an ID was taken
	Data      []byte                `json:"data,omitempty"`
	Exit      *Exit                 `json:"exit,omitempty"` // nothing comes behind Data
}

// Decode reads a request and validates it.
func Decode(data []byte) (Request, error) {
	var r Request
	if len(data) > MaxBytes {
		return r, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "(request)", Reason: fmt.Sprintf("is %d bytes long, at most %d are allowed", len(data), MaxBytes)}}}
	}
	if err := jobs.DecodeStrict(data, &r); err != nil {
		return r, err
	}
	return r, r.Validate()
}

// Validate reports everything that is wrong with a request, as an
// [*jobs.InvalidError].
func (r Request) Validate() error {
	var wrong []jobs.FieldError
	for _, c := range []struct {
		field  string
		bad    bool
		reason string
	}{
		{"verb", !slices.Contains([]Verb{Open, List, Read, Write, Resize, Close}, r.Verb), "is not one of open, list, read, write, resize, close"},
		{"id", (r.ID != "" || r.Verb == Open || r.Verb == Write) && (len(r.ID) != 36 || uuid.Validate(r.ID) != nil), "is not a UUID"},
		{"by", len(r.By) > 256 || !plain(r.By), "is longer than 256 bytes, or not a text"},
		{"terminal", r.Terminal < 0 || r.Terminal == 0 && !slices.Contains([]Verb{Open, List}, r.Verb), "is not the number of a terminal"},
		{"attempt", r.Attempt < 0 || r.Attempt == 0 && !slices.Contains([]Verb{Open, List}, r.Verb), "is not the number of an attempt"},
		{"args", len(r.Args) > 1024 || len(strings.Join(r.Args, "")) > MaxArgs || len(r.Args) > 0 && r.Args[0] == "" || !plain(strings.Join(r.Args, "")), "are too long, or not texts"},
		{"from", r.From < 0, "is less than 0"},
		{"data", len(r.Data) > MaxInput, fmt.Sprintf("is %d bytes long, at most %d are allowed", len(r.Data), MaxInput)},
		{"rows", r.Rows > 1000 || r.Columns > 1000, "and columns are at most 1000"},
	} {
		if c.bad {
			wrong = append(wrong, jobs.FieldError{Field: c.field, Reason: c.reason})
		}
	}
	if wrong == nil {
		return nil
	}
	return &jobs.InvalidError{What: "request", Fields: wrong}
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
