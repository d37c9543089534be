package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/event"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A recorded line of testdata: what the agent wrote (out, err), what it was
// told (in), and how it ended.
type recorded struct {
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
func replay(t *testing.T, path string, d Decoder) string {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	n := map[string]int{}
	ended := false
	for l := range bytes.Lines(file) {
		var rec recorded
		if err := json.Unmarshal(l, &rec); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		line := Line{Stream: Stdout}
		switch {
		case rec.Out != nil:
			line.Bytes = text(t, rec.Out)
		case rec.Err != nil:
			line.Stream, line.Bytes = Stderr, text(t, rec.Err)
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
			fmt.Fprintf(&b, "<- %s\n", short(string(rec.In), 100))
			hear(&b, d, rec.In)
			continue
		}
		n[line.Stream]++
		line.N = n[line.Stream]
		given := bytes.Clone(line.Bytes)
		read := d.Line(line)
		clear(line.Bytes) // the decoder may not keep it
		checkCarried(t, path, given, line, read)
		describeRead(&b, read)
	}
	if !ended {
		t.Errorf("%s: has no exit", path)
	}
	return b.String()
}

// hear has the decoder of an agent of the Agent Client Protocol say what was
// said then, so that it knows the answers. The first prompt it says by itself.
func hear(b *strings.Builder, d Decoder, in json.RawMessage) {
	var m struct {
		ID     int    `json:"id"`
		Method string `json:"method"`
		Params struct {
			Prompt []struct {
				Text string `json:"text"`
			} `json:"prompt"`
		} `json:"params"`
	}
	talk, ok := d.(*acpTalk)
	if !ok || json.Unmarshal(in, &m) != nil {
		return
	}
	var lines [][]byte
	switch {
	case m.Method == "session/prompt" && talk.turn > 0:
		lines = talk.Say("more", m.Params.Prompt[0].Text)
	case m.Method == "session/cancel":
		lines = talk.Interrupt()
	}
	for _, line := range lines {
		fmt.Fprintf(b, "   says %s\n", line)
	}
}

func checkCarried(t *testing.T, path string, given []byte, line Line, read Read) {
	t.Helper()
	if len(read.Events) == 0 {
		t.Fatalf("%s: line %d of %s made no event", path, line.N, line.Stream)
	}
	for i, e := range read.Events {
		switch {
		case i > 0 && e.Raw != nil:
			t.Errorf("%s: line %d of %s is carried twice", path, line.N, line.Stream)
		case i > 0:
		case e.Raw == nil || e.Raw.N != line.N || e.Raw.Stream != line.Stream:
			t.Errorf("%s: line %d of %s is carried as %+v", path, line.N, line.Stream, e.Raw)
		case string(e.Raw.JSON)+e.Raw.Text != string(given):
			t.Errorf("%s: line %d of %s was changed:\n got %s%s\nwant %s", path, line.N, line.Stream, e.Raw.JSON, e.Raw.Text, given)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("%s: event of line %d: %v", path, line.N, err)
		}
	}
}

func describeRead(b *strings.Builder, read Read) {
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
	if read.State != Working {
		fmt.Fprintf(b, "   %s\n", map[State]string{Background: "background", Idle: "idle", Over: "over"}[read.State])
	}
}

func describe(e event.Event) string {
	return fmt.Sprintf("%s/%d %s %s", e.Agent, e.Turn, e.Kind, short(string(e.Data), 300))
}

func TestTranscripts(t *testing.T) {
	agents := New(Config{})
	paths, err := filepath.Glob("testdata/*/*.jsonl")
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d transcripts, err %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
			l := Launch{ID: "j", Session: "s"}
			name, way, _ := strings.Cut(name, "-")
			l.Job.Agent.Interactive = way != ""
			if way == "auth" {
				l.auth = "gemini-api-key"
			}
			adapter, err := agents.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, path, adapter.Decoder(l))
			golden := strings.TrimSuffix(path, ".jsonl") + ".golden"
			if *update {
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
