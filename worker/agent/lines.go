package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// MaxLine is how much of a line is kept. Agents print whole files and images in one
// line, so the limit is far above the size of an event; it bounds the cost of a line
// that never ends.
const MaxLine = 8 << 20

// keepBuffer is the largest buffer that is kept from line to line.
const keepBuffer = 256 << 10

// The two streams that an agent writes to.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// A Line is one line of output, without its newline.
type Line struct {
	Stream string
	N      int    // the line's number in its stream, from 1
	Bytes  []byte // valid until the next line is read
	Cut    int    // how many bytes are missing at the end
}

// ReadLines calls fn for every line of r. Of a line longer than limit it passes the
// beginning, and says how much is missing. It returns nil at the end of r, or the first
// error of r or fn. It passes what was read before an error of r to fn first.
func ReadLines(r io.Reader, stream string, limit int, fn func(Line) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	line := Line{Stream: stream}
	var kept []byte
	for {
		chunk, err := in.ReadSlice('\n')
		whole := err == nil
		if whole {
			chunk = chunk[:len(chunk)-1]
		}
		room := min(len(chunk), limit-len(kept))
		kept = append(kept, chunk[:room]...)
		line.Cut += len(chunk) - room
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case whole || len(kept) > 0:
			line.N++
			line.Bytes = kept
			if told := fn(line); told != nil {
				return told
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line.Cut, kept = 0, kept[:0]
		if cap(kept) > keepBuffer {
			kept = nil
		}
	}
}

// parse returns the line as an event stores it, and its JSON if it is an object. Bytes
// that are not UTF-8 are replaced: JSON must be UTF-8, and a decoder that passes other
// bytes breaks every reader after it.
func parse(line Line) (*jobs.Raw, json.RawMessage) {
	raw := &jobs.Raw{Stream: line.Stream, N: line.N}
	text := line.Bytes
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	// Only objects, and only if nothing was cut: a number or a quoted word is a line of
	// text that happens to be JSON.
	if line.Cut == 0 && len(text) > 0 && text[0] == '{' && json.Valid(text) {
		raw.JSON = bytes.Clone(text)
		return raw, raw.JSON
	}
	raw.Text = string(text)
	return raw, nil
}

// jsonLine is v as a line of an agent's protocol.
func jsonLine(v any) []byte {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own structs, and JSON that was valid
	}
	return line
}

// outputLine is the event of a line that is text.
func outputLine(line Line, raw *jobs.Raw) event.Event {
	text := raw.Text
	if raw.JSON != nil {
		text = string(raw.JSON)
	}
	e := event.Make(event.OutputLine{Stream: line.Stream, Text: text, Cut: line.Cut})
	e.Raw = raw
	return e
}

// lastError keeps the last line that a program printed on stderr: the best explanation
// there is when the program dies without another one.
type lastError struct{ text string }

func (w *lastError) note(line Line) {
	if text := strings.TrimSpace(short(string(line.Bytes), 500)); text != "" {
		w.text = text
	}
}

// event returns the event of a line that is no message of an agent's protocol, and
// keeps a line of stderr as the last one.
func (w *lastError) event(line Line, raw *jobs.Raw) event.Event {
	if line.Stream == Stderr {
		w.note(line)
	}
	return outputLine(line, raw)
}

// after appends the last line of stderr to a message.
func (w *lastError) after(message string) string {
	if w.text == "" {
		return message
	}
	return message + ": " + w.text
}

// short cuts s to limit bytes at the boundary of a character.
func short(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
