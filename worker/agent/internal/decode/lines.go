// Package decode has what the decoders of several agents share: lines of output as
// events, turns and the verdict that follows from them, and open questions.
//
//	line ──Parse──▶ JSON object? ──the agent's own decoder──▶ events ──Turns──▶ verdict
//	                    └──no──▶ output.line
package decode

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// Parse returns the line as an event stores it, and its JSON if it is an object. Bytes
// that are not UTF-8 are replaced: JSON must be UTF-8, and a decoder that passes other
// bytes breaks every reader after it.
func Parse(line agent.Line) (*jobs.Raw, json.RawMessage) {
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

// JSON is v as a line of an agent's protocol.
func JSON(v any) []byte {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own structs, and JSON that was valid
	}
	return line
}

// outputLine is the event of a line that is text.
func outputLine(line agent.Line, raw *jobs.Raw) event.Event {
	text := raw.Text
	if raw.JSON != nil {
		text = string(raw.JSON)
	}
	e := event.Make(event.OutputLine{Stream: line.Stream, Text: text, Cut: line.Cut})
	e.Raw = raw
	return e
}

// A LastError keeps the last line that a program printed on stderr: the best explanation
// there is when the program dies without another one.
type LastError struct{ text string }

func (l *LastError) note(line agent.Line) {
	if text := strings.TrimSpace(wording.Short(string(line.Bytes), 500)); text != "" {
		l.text = text
	}
}

// Event returns the event of a line that is no message of an agent's protocol, and
// keeps a line of stderr as the last one.
func (l *LastError) Event(line agent.Line, raw *jobs.Raw) event.Event {
	if line.Stream == agent.Stderr {
		l.note(line)
	}
	return outputLine(line, raw)
}

// After appends the last line of stderr to a message.
func (l *LastError) After(message string) string {
	if l.text == "" {
		return message
	}
	return message + ": " + l.text
}

// maxOpen bounds how many calls and questions a decoder remembers that the agent opened
// and never closed.
const maxOpen = 4096

// maxKey bounds the length of their ids.
const maxKey = 512

// Remember adds to a map that hostile output must not grow without bound. It ignores
// names that are longer than those of any agent.
func Remember[V any](m map[string]V, key string, v V) {
	if len(key) > maxKey {
		return
	}
	if len(m) >= maxOpen {
		clear(m)
	}
	m[key] = v
}
