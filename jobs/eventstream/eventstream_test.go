package eventstream_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock-run/penstock/jobs/eventstream"
)

// read is all that a stream has, each event as "id|name|data", and how it ends.
func read(r *eventstream.Reader) (events []string, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, fmt.Sprintf("%s|%s|%s", e.ID, e.Name, e.Data))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		events []string
		last   string
		retry  time.Duration
	}{
		"nothing":                         {"", nil, "0", 0},
		"one":                             {"id: 1\nevent: a\ndata: x\n\n", []string{"1|a|x"}, "1", 0},
		"CR LF":                           {"id: 1\r\ndata: x\r\n\r\ndata: y\r\n\r\n", []string{"1||x", "1||y"}, "1", 0},
		"CR LF between the fields of one": {"event: a\r\ndata: x\r\ndata: y\r\n\r\n", []string{"0|a|x\ny"}, "0", 0},
		"CR":                              {"id: 1\rdata: x\r\rdata: y\r\r", []string{"1||x", "1||y"}, "1", 0},
		"each end of a line":              {"data: x\rdata: y\ndata: z\r\n\r\rdata: w\n\r\n", []string{"0||x\ny\nz", "0||w"}, "0", 0},
		"a byte order mark":               {"\ufeffdata: x\n\n", []string{"0||x"}, "0", 0},
		"a mark later":                    {"data: x\n\n\ufeffdata: y\n\ndata: z\n\n", []string{"0||x", "0||z"}, "0", 0},
		"lines of data":                   {"data: x\ndata:\ndata: y\n\n", []string{"0||x\n\ny"}, "0", 0},
		"empty data":                      {"data:\n\ndata\n\n", []string{"0||", "0||"}, "0", 0},
		"empty lines of data":             {"data\ndata\n\n", []string{"0||\n"}, "0", 0},
		"one space is taken away":         {"data:  x\n\ndata:x\n\n", []string{"0|| x", "0||x"}, "0", 0},
		"a colon in it":                   {"data: a: b\n\n", []string{"0||a: b"}, "0", 0},
		"comments":                        {": hello\n\n:\ndata: x\n: y\n\n", []string{"0||x"}, "0", 0},
		"other fields":                    {"color: red\ndata: x\nDATA: y\n data: z\n\n", []string{"0||x"}, "0", 0},
		"no data":                         {"event: a\nid: 7\n\ndata: x\n\n", []string{"7||x"}, "7", 0},
		"the id stays":                    {"id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\n", []string{"1||x", "1||y", "||z"}, "", 0},
		"the last id of an event":         {"id: 1\nid: 2\ndata: x\n\n", []string{"2||x"}, "2", 0},
		"an id with a zero byte":          {"id: 1\nid: 2\x00\ndata: x\n\n", []string{"1||x"}, "1", 0},
		"an event that is cut":            {"id: 1\ndata: x\n\nid: 2\ndata: y\n", []string{"1||x"}, "1", 0},
		"an empty line that is cut":       {"id: 1\ndata: x\n\nid: 2\ndata: y\nevent", []string{"1||x"}, "1", 0},
		"an id without data that is cut":  {"id: 1\ndata: x\n\nid: 2\n", []string{"1||x"}, "1", 0},
		"retry":                           {"retry: 1500\n\n", nil, "0", 1500 * time.Millisecond},
		"retry with an event":             {"retry: 1500\nretry: 20\ndata: x\n\n", []string{"0||x"}, "0", 20 * time.Millisecond},
		"a retry that is no number":       {"retry: 20\nretry: -1\nretry: 1.5\nretry: 1s\nretry:\nretry: +3\n\n", nil, "0", 20 * time.Millisecond},
		"a retry of years":                {"retry: 99999999999999999999999999\n\n", nil, "0", 24 * time.Hour},
		"a name is no other event's name": {"event: a\n\ndata: x\n\n", []string{"0||x"}, "0", 0},
	} {
		for way, through := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			r := eventstream.New(through(strings.NewReader(c.text)), "0", 1<<10)
			events, err := read(r)
			if !errors.Is(err, io.EOF) || !slices.Equal(events, c.events) || r.LastID() != c.last || r.Retry() != c.retry {
				t.Errorf("%s, %s: got %q, last %q, retry %v, %v; want %q, %q, %v", name, way, events, r.LastID(), r.Retry(), err, c.events, c.last, c.retry)
			}
		}
	}
}

// An event or a line that is too long ends the stream, before it is in memory.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a line of data":     "data: " + strings.Repeat("x", 100) + "\n\n",
		"lines of data":      strings.Repeat("data: "+strings.Repeat("x", 20)+"\n", 6) + "\n",
		"empty data":         strings.Repeat("data\n", 200) + "\n",
		"a comment":          ":" + strings.Repeat("x", 200) + "\n\n",
		"a line with no end": strings.Repeat("x", 200),
	} {
		events, err := read(eventstream.New(strings.NewReader("data: first\n\n"+text), "", 100))
		if !errors.Is(err, eventstream.ErrTooLong) || len(events) != 1 {
			t.Errorf("%s: got %q, %v", name, events, err)
		}
	}
	endless := io.MultiReader(strings.NewReader("data: "), zeros{})
	if _, err := eventstream.New(endless, "", 1<<20).Next(); !errors.Is(err, eventstream.ErrTooLong) {
		t.Errorf("an endless line: %v", err)
	}
	if events, err := read(eventstream.New(strings.NewReader("data: "+strings.Repeat("x", 90)+"\n\n"), "", 100)); len(events) != 1 {
		t.Errorf("within the limit: %q, %v", events, err)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// An event is there when its empty line is: a "\r" is an end without looking at what follows.
func TestAnEventDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"data: x\n\n", "data: x\r\r", "data: x\r\n\r"} {
		r := eventstream.New(io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("it would wait"))), "", 100)
		if e, err := r.Next(); err != nil || string(e.Data) != "x" {
			t.Errorf("%q: %q, %v", text, e.Data, err)
		}
	}
}

// Whatever comes, however it comes: the same events, none beyond the limit, and none out of nothing.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{"", "\ufeffid: 1\r\ndata: x\r\n\r\n", "data: a\rdata: b\n\n: c\n\nretry: 5\n\n", "event: e\nid: \x00\ndata\n\nda"} {
		f.Add([]byte(text), 20)
	}
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		most = 1 + int(uint(most)%(1<<12))
		once, by := eventstream.New(bytes.NewReader(text), "", most), eventstream.New(iotest.OneByteReader(bytes.NewReader(text)), "", most)
		all, err := read(once)
		slow, slowErr := read(by)
		if !slices.Equal(all, slow) || !errors.Is(slowErr, err) || once.LastID() != by.LastID() || once.Retry() != by.Retry() {
			t.Errorf("at once %q, %v; byte by byte %q, %v", all, err, slow, slowErr)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, eventstream.ErrTooLong) {
			t.Error(err)
		}
		again := eventstream.New(bytes.NewReader(text), "", most)
		for e, err := again.Next(); err == nil; e, err = again.Next() {
			if len(e.Data) > most || bytes.ContainsRune(e.Data, '\r') || strings.ContainsAny(e.ID+e.Name, "\r\n") {
				t.Errorf("the event %+v of %q", e, text)
			}
		}
		if ends := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")); len(all) > ends {
			t.Errorf("%d events of %d lines", len(all), ends)
		}
	})
}
