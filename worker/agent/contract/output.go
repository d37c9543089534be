package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/internal/lines"
)

// outputs are the checks of what an adapter makes of the agent's own lines.
var outputs = []check{
	{"", "lines", "each line that it writes is carried by one event, unchanged", nil, carries},
	{"", "unknown_lines", "messages that are not known, malformed, cut or no text are kept, and change nothing", nil, bears},
}

// Carried says how a decoder has not kept its promise: each line is carried by one event only, the
// first that is made of it, unchanged.
func Carried(line agent.Line, given []byte, read agent.Read) (broken []string) {
	where := fmt.Sprintf("line %d of %s", line.N, line.Stream)
	if len(read.Events) == 0 {
		return []string{where + " made no event"}
	}
	for i, e := range read.Events {
		switch {
		case i > 0 && e.Raw != nil:
			broken = append(broken, where+" is carried twice")
		case i > 0:
		case e.Raw == nil || e.Raw.N != line.N || e.Raw.Stream != line.Stream:
			broken = append(broken, fmt.Sprintf("%s is carried as %+v", where, e.Raw))
		case string(e.Raw.JSON)+e.Raw.Text != string(given):
			broken = append(broken, fmt.Sprintf("%s was changed:\n got %.300s%.300s\nwant %.300s", where, e.Raw.JSON, e.Raw.Text, given))
		}
		if _, err := json.Marshal(e); err != nil {
			broken = append(broken, fmt.Sprintf("event of %s: %v", where, err))
		}
	}
	return broken
}

// A heard line is one that the agent wrote.
type heard struct {
	way  string
	text []byte
	cut  int
}

// replayed gives lines to a new decoder of a run.
func (s *seen) replayed(adapter agent.Adapter, lines []heard) (r harness.Run, broken []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the adapter panics: %v", p)
		}
	}()
	d, n := adapter.Decoder(s.launch), map[string]int{}
	for _, l := range lines {
		stream := agent.Stdout
		if l.way == "err" {
			stream = agent.Stderr
		}
		n[stream]++
		line := agent.Line{Stream: stream, N: n[stream], Bytes: bytes.Clone(l.text), Cut: l.cut}
		read := d.Line(line)
		broken = append(broken, Carried(line, bytes.ToValidUTF8(l.text, []byte("\uFFFD")), read)...)
		r.Events = append(r.Events, read.Events...)
	}
	_, r.End = d.Exit(s.Code, s.Signal)
	r.Total = d.Total()
	return r, broken, nil
}

func carries(ctx context.Context, t *trial) error {
	s, err := t.once(ctx)
	if err != nil {
		return err
	}
	_, broken, err := s.replayed(t.adapter, s.lines)
	if err == nil && len(broken) > 0 {
		err = fmt.Errorf("%s", strings.Join(broken, "; "))
	}
	return err
}

// strange are lines that no agent of today writes.
func strange() []heard {
	return []heard{
		{"out", []byte(`{"type":"contract/unknown","method":"contract/unknown","params":{"a":[1]},"subtype":"new"}`), 0},
		{"out", []byte(`{"type":"contract/unknown","payload":` + strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 501)), 0},
		{"out", []byte(`{"type":`), 0},
		{"out", []byte(`{"type":7,"method":[],"id":{},"result":1,"error":"x"}`), 0},
		{"out", []byte(`[1,2]`), 0},
		{"out", []byte(`null`), 0},
		{"out", nil, 0},
		{"out", []byte("\xff\xfe{\x00\"type\":\"result\"}\x1b[2J"), 0},
		{"out", []byte(`{"type":"result","result":"` + strings.Repeat("x", 300_000)), lines.Max},
		{"err", []byte("\xff\x00 of its log"), 0},
	}
}

// bears gives the lines of the first run to another decoder, with strange ones among them.
func bears(ctx context.Context, t *trial) error {
	s, err := t.once(ctx)
	if err != nil {
		return err
	}
	was, _, err := s.replayed(t.adapter, s.lines)
	if err != nil {
		return err
	}
	strange := strange()
	mixed := slices.Clone(strange)
	for i, l := range s.lines {
		mixed = append(mixed, l, strange[i%len(strange)])
	}
	is, broken, err := s.replayed(t.adapter, append(mixed, strange...))
	switch {
	case err != nil:
		return err
	case len(broken) > 0:
		return fmt.Errorf("of the strange lines: %s", strings.Join(broken, "; "))
	case is.End.Outcome != was.End.Outcome || is.End.Reason != was.End.Reason:
		return fmt.Errorf("with strange lines among its own it ended with %s (%s), not with %s (%s)", is.End.Outcome, is.End.Reason, was.End.Outcome, was.End.Reason)
	case is.Total != was.Total:
		return fmt.Errorf("with strange lines among its own its sum is %+v, not %+v", is.Total, was.Total)
	}
	return nil
}
