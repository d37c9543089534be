package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// A line of a transcript: what the agent wrote (out, err), what was written to it (in), what a
// person told it then (say), and how it ended.
type line struct {
	Out    json.RawMessage `json:"out"`
	Err    json.RawMessage `json:"err"`
	In     json.RawMessage `json:"in"`
	Say    *said           `json:"say"`
	Exit   *int            `json:"exit"`
	Signal Signal          `json:"signal"`
}

type said struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// A Signal is the name of the signal that ended a program. Older transcripts have its number.
type Signal string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Signal) UnmarshalJSON(data []byte) error {
	var number int
	if json.Unmarshal(data, &number) == nil {
		*s = Signal(fmt.Sprintf("signal %d", number))
		return nil
	}
	return json.Unmarshal(data, (*string)(s))
}

// text is the line as it was written: a JSON string is a line of text, any other JSON is itself.
func text(line json.RawMessage) []byte {
	var s string
	if len(line) == 0 || line[0] != '"' || json.Unmarshal(line, &s) != nil {
		return line
	}
	return []byte(s)
}

// encode is a line as a transcript has it.
func encode(way string, line []byte) string {
	if len(line) > 0 && (line[0] == '{' || line[0] == '[') && json.Valid(line) {
		return fmt.Sprintf(`{%q:%s}`, way, line)
	}
	quoted, err := json.Marshal(string(line))
	if err != nil {
		panic(err) // a string can always be written
	}
	return fmt.Sprintf(`{%q:%s}`, way, quoted)
}

// A Replayed is what a decoder made of a transcript.
type Replayed struct {
	Events string // one line for each event, and one for each reply
	// Broken are the promises of a decoder that it did not keep: each line is carried by one event
	// only, the first that is made of it, unchanged.
	Broken []string
}

// A replay is one transcript that a decoder reads.
type replay struct {
	d      agent.Decoder
	events strings.Builder
	broken []string
	lines  map[string]int // of each stream
	sent   sender
	ended  bool
}

// Decode gives the lines of a transcript to a decoder and describes what comes out.
func Decode(transcript []byte, d agent.Decoder) (Replayed, error) {
	r := &replay{d: d, lines: map[string]int{}, sent: sender{d: d}}
	n := 0
	for l := range bytes.Lines(transcript) {
		n++
		var rec line
		if err := json.Unmarshal(l, &rec); err != nil {
			return Replayed{}, fmt.Errorf("line %d: %w", n, err)
		}
		r.line(rec)
	}
	if !r.ended {
		return Replayed{}, fmt.Errorf("line %d: the transcript has no exit", n)
	}
	return Replayed{r.events.String(), r.broken}, nil
}

func (r *replay) line(rec line) {
	switch {
	case rec.Out != nil:
		r.read(agent.Stdout, text(rec.Out))
	case rec.Err != nil:
		r.read(agent.Stderr, text(rec.Err))
	case rec.Exit != nil:
		r.ended = true
		e, end := r.d.Exit(*rec.Exit, string(rec.Signal))
		fmt.Fprintf(&r.events, "%s\ntotal %+v\n%s %s %q\n", describe(e), r.d.Total(), end.Outcome, end.Reason, end.Message)
	case rec.Say != nil:
		r.sent.recorded = true
		if speaker, ok := r.d.(agent.Speaker); ok {
			says(&r.events, speaker.Say(rec.Say.ID, rec.Say.Text))
		}
	default:
		fmt.Fprintf(&r.events, "<- %s\n", wording.Short(string(rec.In), 100))
		r.sent.send(&r.events, rec.In)
	}
}

func (r *replay) read(stream string, written []byte) {
	r.lines[stream]++
	line := agent.Line{Stream: stream, N: r.lines[stream], Bytes: bytes.Clone(written)}
	read := r.d.Line(line)
	clear(line.Bytes) // the decoder may not keep it
	r.broken = append(r.broken, contract.Carried(line, written, read)...)
	describeRead(&r.events, read)
}

// A sender has a decoder of the Agent Client Protocol send what was sent when the transcript was
// recorded, so that it knows the answers. The decoder sends the first prompt by itself. A recording
// that has what a person said needs none.
type sender struct {
	d        agent.Decoder
	prompts  int
	recorded bool
}

func (s *sender) send(b *strings.Builder, in json.RawMessage) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Prompt []struct {
				Text string `json:"text"`
			} `json:"prompt"`
			Mode string `json:"modeId"`
		} `json:"params"`
	}
	speaker, ok := s.d.(agent.Speaker)
	if !ok || s.recorded || json.Unmarshal(in, &m) != nil {
		return
	}
	switch m.Method {
	case "session/prompt":
		if s.prompts++; s.prompts > 1 && len(m.Params.Prompt) > 0 {
			says(b, speaker.Say("more", m.Params.Prompt[0].Text))
		}
	case "session/cancel":
		says(b, speaker.Interrupt())
	case "session/set_mode":
		lines, _ := speaker.Set("mode", control.Settings{Mode: m.Params.Mode}) // a mode is not refused
		says(b, lines)
	}
}

func says(b *strings.Builder, lines [][]byte) {
	for _, line := range lines {
		fmt.Fprintf(b, "   says %s\n", line)
	}
}

func describeRead(b *strings.Builder, read agent.Read) {
	for i, e := range read.Events {
		mark := "  "
		if i == 0 {
			mark = "->"
		}
		fmt.Fprintf(b, "%s %s\n", mark, describe(e))
	}
	for _, reply := range read.Reply {
		fmt.Fprintf(b, "   reply %s\n", reply)
	}
	if read.Hopeless != "" {
		fmt.Fprintf(b, "   hopeless: %s\n", read.Hopeless)
	}
	if read.State != agent.Working {
		fmt.Fprintf(b, "   %s\n", map[agent.State]string{agent.Background: "background", agent.Idle: "idle", agent.Over: "over"}[read.State])
	}
}

func describe(e event.Event) string {
	return fmt.Sprintf("%s/%d %s %s", e.Agent, e.Turn, e.Kind, wording.Short(string(e.Data), 300))
}
