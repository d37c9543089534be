// Package eventstream reads server-sent events, as the HTML standard has them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html):
//
//	bytes ──▶ lines ──▶ fields ──an empty line──▶ event
//
// An event counts once its empty line has come: what a stream that was cut had of one is
// dropped, and so is its id. So a reader that asks again for what is behind the last id
// misses nothing and gets nothing twice.
package eventstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// ErrTooLong: an event is longer than its reader takes.
var ErrTooLong = errors.New("an event of the stream is too long")

// An Event is one that has data.
type Event struct {
	ID   string // the last one that the stream has named, with this event or before it
	Name string // its type; empty: the stream names none, which stands for "message"
	Data []byte // its lines, with "\n" between them
}

// A Reader reads the events of one answer. It is for one goroutine.
type Reader struct {
	in      *bufio.Reader
	most    int
	begun   bool // the first line was read
	afterCR bool // a "\n" that comes now belongs to the end of the line before

	id    string // of complete events
	retry time.Duration
}

// New returns a reader of a stream. Last is the id behind which the stream goes on, and most is
// how many bytes the data of an event or one of its lines may have.
func New(r io.Reader, last string, most int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), id: last, most: most}
}

// LastID is the id of the last complete event that had one.
func (r *Reader) LastID() string { return r.id }

// Retry is how long the server wants its client to wait before it asks again; zero: it has not
// said.
func (r *Reader) Retry() time.Duration { return r.retry }

// Next returns the next event, [io.EOF] at the end of the stream, and [ErrTooLong].
func (r *Reader) Next() (Event, error) {
	var e Event
	some, id := false, r.id
	for {
		line, err := r.line()
		if err != nil {
			return Event{}, err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			r.id = id
			if some {
				e.ID = id
				return e, nil
			}
			e = Event{} // without data it is none, and its name is no other's
		case string(field) == "data":
			if len(e.Data)+len(value) >= r.most {
				return Event{}, ErrTooLong
			}
			if some {
				e.Data = append(e.Data, '\n')
			}
			e.Data, some = append(e.Data, value...), true
		case string(field) == "event":
			e.Name = string(value)
		case string(field) == "id" && bytes.IndexByte(value, 0) < 0:
			id = string(value)
		case string(field) == "retry":
			r.setRetry(string(value))
		}
	}
}

// maxRetry bounds what a server may ask for, in milliseconds: a day.
const maxRetry = 24 * 60 * 60 * 1000

func (r *Reader) setRetry(text string) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		ms = maxRetry // so many digits
	}
	r.retry = time.Duration(min(ms, maxRetry)) * time.Millisecond
}

// mark is the byte order mark that a stream may begin with.
var mark = []byte("\xef\xbb\xbf")

// line reads a line, without its end: "\r\n", "\n" or "\r". A line without an end is none.
func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		if _, err := r.in.Peek(1); err != nil {
			return nil, err
		}
		part, err := r.in.Peek(r.in.Buffered())
		if err != nil {
			return nil, err
		}
		if r.afterCR {
			r.afterCR = false
			if part[0] == '\n' {
				r.skip(1)
				continue
			}
		}
		at := bytes.IndexAny(part, "\r\n")
		if at < 0 {
			line = append(line, part...)
			r.skip(len(part))
		} else {
			line = append(line, part[:at]...)
			r.afterCR = part[at] == '\r'
			r.skip(at + 1)
		}
		switch {
		case len(line) > r.most:
			return nil, ErrTooLong
		case at >= 0 && !r.begun:
			r.begun = true
			return bytes.TrimPrefix(line, mark), nil
		case at >= 0:
			return line, nil
		}
	}
}

// skip takes what was peeked at.
func (r *Reader) skip(n int) { _, _ = r.in.Discard(n) }
