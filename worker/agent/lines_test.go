package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs/control"
)

func TestReadLines(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  []string
	}{
		{"", 8, nil},
		{"a\nb", 8, []string{"1 a", "2 b"}},
		{"a\n\n\n", 8, []string{"1 a", "2 ", "3 "}},
		{"a\r\n", 8, []string{"1 a\r"}},
		{"12345678\n", 8, []string{"1 12345678"}},
		{"123456789\nx\n", 8, []string{"1 12345678 +1", "2 x"}},
		{strings.Repeat("x", 200_000) + "\ny", 3, []string{"1 xxx +199997", "2 y"}},
		{strings.Repeat("x", 200_000), 3, []string{"1 xxx +199997"}},
		{"nul \x00 \xff\n", 8, []string{"1 nul \x00 \xff"}},
	}
	for _, tt := range tests {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
			var got []string
			err := ReadLines(r, Stdout, tt.limit, func(l Line) error {
				s := fmt.Sprintf("%d %s", l.N, l.Bytes)
				if l.Cut > 0 {
					s += fmt.Sprintf(" +%d", l.Cut)
				}
				got = append(got, s)
				return nil
			})
			if err != nil || strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("%.40q: got %.200q, err %v, want %q", tt.in, got, err, tt.want)
			}
		}
	}
}

func TestReadLinesErrors(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	err := ReadLines(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), Stdout, 8, func(l Line) error {
		got = append(got, string(l.Bytes))
		return nil
	})
	if !errors.Is(err, broken) || strings.Join(got, "|") != "a|half" {
		t.Errorf("got %q, err %v", got, err)
	}
	n := 0
	err = ReadLines(strings.NewReader("a\nb\n"), Stdout, 8, func(Line) error { n++; return broken })
	if !errors.Is(err, broken) || n != 1 {
		t.Errorf("%d lines, err %v", n, err)
	}
}

// endless gives n bytes without a newline.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= n
	return n, nil
}

// A line of 100 MB must not be held in memory.
func TestReadLinesBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cut := 0
	if err := ReadLines(&endless{100 << 20}, Stdout, 1<<20, func(l Line) error { cut = l.Cut; return nil }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if cut != 99<<20 {
		t.Errorf("%d bytes missing, want %d", cut, 99<<20)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("allocated %d bytes for a limit of %d", used, 1<<20)
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\n"), 3)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit = limit&0xff + 1
		var back []byte
		total := 0
		err := ReadLines(bytes.NewReader(in), Stdout, limit, func(l Line) error {
			if len(l.Bytes) > limit || l.Cut > 0 && len(l.Bytes) != limit {
				t.Fatalf("%d bytes kept and %d cut with limit %d", len(l.Bytes), l.Cut, limit)
			}
			back = append(append(back, l.Bytes...), '\n')
			total += len(l.Bytes) + l.Cut + 1
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := in
		if len(in) > 0 && in[len(in)-1] != '\n' {
			whole = append(bytes.Clone(in), '\n')
		}
		if total != len(whole) {
			t.Errorf("%d bytes accounted for, want %d", total, len(whole))
		}
		if total == len(back) && !bytes.Equal(back, whole) {
			t.Errorf("lines %q make %q", in, back)
		}
	})
}

// FuzzDecoders feeds decoders with anything: they never fail, carry each line
// once, and make events that are valid JSON and UTF-8.
func FuzzDecoders(f *testing.F) {
	f.Add(`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":"x"}}]}}`)
	f.Add(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"y"}]}]},"tool_use_result":{"filePath":"p","structuredPatch":[]}}`)
	f.Add(`{"type":"system","subtype":"init","tools":["AskUserQuestion"],"session_id":"s"}` + "\n" + `{"type":"result","is_error":true,"errors":["e"],"modelUsage":{"m":{"inputTokens":1}}}`)
	f.Add(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[]}}}`)
	f.Add(`{"type":"system","subtype":"permission_denied","message":5,"tasks":{},"event":"x"}` + "\n\xff\x00{")
	f.Add(`{"type":"step_start","sessionID":"s"}` + "\n" + `{"type":"tool_use","part":{"tool":"edit","state":{"status":"completed","metadata":{"filepath":"p"}}}}` + "\n" + `{"type":"step_finish","part":{"reason":"stop"}}`)
	f.Add(`{"id":1,"result":{}}` + "\n" + `{"id":2,"result":{"thread":{"id":"t"}}}` + "\n" + `{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}` + "\n" +
		`{"id":0,"method":"item/tool/requestUserInput","params":{"questions":[{"id":"q","question":"Q"}]}}` + "\n" + `{"id":{},"method":"x"}` + "\n" +
		`{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"interrupted"}}}`)
	f.Add(`{"id":1,"result":{"protocolVersion":1}}` + "\n" + `{"id":2,"result":{"sessionId":"s"}}` + "\n" +
		`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c","content":[{"type":"diff","path":"p"}]}}}` + "\n" +
		`{"id":"r","method":"session/request_permission","params":{"options":[{"optionId":"y","name":"\u0000","kind":"allow_once"}]}}` + "\n" +
		`{"id":3,"result":{"stopReason":"cancelled"}}` + "\n" + `{"id":4,"method":"fs/read_text_file"}`)
	f.Fuzz(func(t *testing.T, in string) {
		agents := New(Config{})
		for _, about := range agents.All() {
			for _, interactive := range []bool{false, about.Interactive} {
				adapter, err := agents.Get(about.Name)
				if err != nil {
					t.Fatal(err)
				}
				l := Launch{ID: "j", Session: "s"}
				l.Job.Agent.Interactive = interactive
				fuzzDecoder(t, about.Name, adapter.Decoder(l), in)
			}
		}
	})
}

func fuzzDecoder(t *testing.T, name string, d Decoder, in string) {
	spoken := func(lines [][]byte) {
		for _, line := range lines {
			if !json.Valid(line) || bytes.ContainsRune(line, '\n') {
				t.Fatalf("%s: told %q", name, line)
			}
		}
	}
	speaker, speaks := d.(Speaker)
	for n, l := range strings.Split(in, "\n") {
		r := d.Line(Line{Stream: Stdout, N: n + 1, Bytes: []byte(l)})
		if len(r.Events) == 0 || r.Events[0].Raw == nil || r.Events[0].Raw.N != n+1 {
			t.Fatalf("%s: %q became %+v", name, l, r)
		}
		for i, e := range r.Events {
			out, err := json.Marshal(e)
			if err != nil || !utf8.Valid(out) || i > 0 && e.Raw != nil {
				t.Fatalf("%s: %q became %s, err %v", name, l, out, err)
			}
			if strings.HasPrefix(string(e.Kind), "job.") || strings.HasPrefix(string(e.Kind), "jail.") {
				t.Fatalf("%s: %q became %s", name, l, e.Kind)
			}
		}
		spoken(r.Reply)
		if speaks {
			spoken(speaker.Say("id", l))
			spoken(speaker.Interrupt())
			_, lines, _ := speaker.Answer(control.Message{Deny: n%2 == 0}) // nothing may be open
			spoken(lines)
		}
	}
	if _, end := d.Exit(1, ""); end.Outcome == "" || end.Outcome == "success" && name == "command" {
		t.Fatalf("%s: verdict %+v", name, end)
	}
}
