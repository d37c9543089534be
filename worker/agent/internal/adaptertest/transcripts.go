package adaptertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// A line of testdata: what the agent wrote (out, err), what was
// written to it (in), and how it ended.
type line struct {
	Out    json.RawMessage `json:"out"`
	Err    json.RawMessage `json:"err"`
	In     json.RawMessage `json:"in"`
	Exit   *int            `json:"exit"`
	Signal int             `json:"signal"`
}

// text is the line as it was written: a JSON string is a line of text, any
// other JSON is itself.
func text(tb testing.TB, line json.RawMessage) []byte {
	tb.Helper()
	if line[0] != '"' {
		return line
	}
	var s string
	if err := json.Unmarshal(line, &s); err != nil {
		tb.Fatal(err)
	}
	return []byte(s)
}

// replay gives a transcript to a decoder and describes what came out. It also
// holds the decoder to its promise: each line is carried by one event only,
// the first that is made of it, unchanged.
func replay(t *testing.T, path string, d agent.Decoder) string {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	n := map[string]int{}
	ended := false
	sent := &sender{d: d}
	for l := range bytes.Lines(file) {
		var rec line
		if err := json.Unmarshal(l, &rec); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		line := agent.Line{Stream: agent.Stdout}
		switch {
		case rec.Out != nil:
			line.Bytes = text(t, rec.Out)
		case rec.Err != nil:
			line.Stream, line.Bytes = agent.Stderr, text(t, rec.Err)
		case rec.Exit != nil:
			ended = true
			signal := ""
			if rec.Signal != 0 {
				signal = fmt.Sprintf("signal %d", rec.Signal)
			}
			e, end := d.Exit(*rec.Exit, signal)
			fmt.Fprintf(&b, "%s\ntotal %+v\n%s %s %q\n", describe(e), d.Total(), end.Outcome, end.Reason, end.Message)
			continue
		default:
			fmt.Fprintf(&b, "<- %s\n", wording.Short(string(rec.In), 100))
			sent.send(&b, rec.In)
			continue
		}
		n[line.Stream]++
		line.N = n[line.Stream]
		given := bytes.Clone(line.Bytes)
		read := d.Line(line)
		clear(line.Bytes) // the decoder may not keep it
		checkCarried(t, given, line, read)
		describeRead(&b, read)
	}
	if !ended {
		t.Errorf("%s: has no exit", path)
	}
	return b.String()
}

// A sender has a decoder of the Agent Client Protocol send what was sent when the
// transcript was recorded, so that it knows the answers. The decoder sends the first
// prompt by itself.
type sender struct {
	d       agent.Decoder
	prompts int
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
	if !ok || json.Unmarshal(in, &m) != nil {
		return
	}
	var lines [][]byte
	switch m.Method {
	case "session/prompt":
		if s.prompts++; s.prompts > 1 {
			lines = speaker.Say("more", m.Params.Prompt[0].Text)
		}
	case "session/cancel":
		lines = speaker.Interrupt()
	case "session/set_mode":
		lines = speaker.Set("mode", "", m.Params.Mode)
	}
	for _, line := range lines {
		fmt.Fprintf(b, "   says %s\n", line)
	}
}

func checkCarried(t *testing.T, given []byte, line agent.Line, read agent.Read) {
	t.Helper()
	if len(read.Events) == 0 {
		t.Fatalf("line %d of %s made no event", line.N, line.Stream)
	}
	for i, e := range read.Events {
		switch {
		case i > 0 && e.Raw != nil:
			t.Errorf("line %d of %s is carried twice", line.N, line.Stream)
		case i > 0:
		case e.Raw == nil || e.Raw.N != line.N || e.Raw.Stream != line.Stream:
			t.Errorf("line %d of %s is carried as %+v", line.N, line.Stream, e.Raw)
		case string(e.Raw.JSON)+e.Raw.Text != string(given):
			t.Errorf("line %d of %s was changed:\n got %s%s\nwant %s", line.N, line.Stream, e.Raw.JSON, e.Raw.Text, given)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("event of line %d: %v", line.N, err)
		}
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

// Recorded says where the transcripts of an agent are: in directories of testdata, whose
// names are the agent's and, after a dash, the way in which it ran.
type Recorded struct {
	Adapter agent.Adapter
	Least   int  // how many there are, at least
	Update  bool // write the golden files anew
}

// Transcripts gives each transcript to a decoder, and compares what comes out with the
// golden file beside it.
func Transcripts(t *testing.T, rec Recorded) {
	paths, err := filepath.Glob("testdata/*/*.jsonl")
	if err != nil || len(paths) < rec.Least {
		t.Fatalf("%d transcripts, want %d, err %v", len(paths), rec.Least, err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
			l := agent.Launch{ID: "j", Session: "s"}
			_, way, _ := strings.Cut(name, "-")
			l.Job.Agent.Interactive = way != ""
			if way == "auth" {
				l.Auth = "gemini-api-key"
			}
			got := replay(t, path, rec.Adapter.Decoder(l))
			golden := strings.TrimSuffix(path, ".jsonl") + ".golden"
			if rec.Update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("events differ from %s (go test -run Transcripts -update writes it anew):\n%s", golden, diff(got, string(want)))
			}
		})
	}
}

// diff shows the first line that differs.
func diff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
