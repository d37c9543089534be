package transcript

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/event/eventtest"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

var update = flag.Bool("update", false, "write the golden files anew")

var colors = regexp.MustCompile("\x1b\\[[0-9;]+m")

// wide returns a screen of so many columns, and what it shows.
func wide(columns string) (*Screen, *bytes.Buffer) {
	var b bytes.Buffer
	w := console.New(&b, func(name string) string { return map[string]string{"COLUMNS": columns, "FORCE_COLOR": "1"}[name] })
	return New(w, func(e jobs.Event) string { return string(e.Kind) + ": " + summary.Fields(e.Data) }), &b
}

// recording is the path of what a real agent wrote, in one of the ways in which it runs.
func recording(from, name string) string {
	adapter, _, _ := strings.Cut(from, "-")
	return filepath.Join("..", "..", "..", "worker", "agent", "internal", adapter, "testdata", from, name+".jsonl")
}

// recorded replays what a real agent wrote through its decoder.
func recorded(t *testing.T, path string) []jobs.Event {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name, way, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-")
	launch := agent.Launch{ID: "j", Session: "s"}
	launch.Job.Agent.Interactive = way != ""
	adapter, err := builtin.Agents(agent.Config{}).Get(name)
	if err != nil {
		t.Fatal(err)
	}
	decoder := adapter.Decoder(launch)
	at := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	events := []jobs.Event{
		event.New(event.WorkspaceReady{Isolation: jobs.IsolationWorktree, Base: "59cac621d2b0", OriginalDir: "/src/app", Strategy: "overlay", Seconds: 0.21}),
		event.New(event.JailStarted{Backend: "bwrap"}),
	}
	for line := range bytes.Lines(file) {
		var rec struct {
			Out, Err json.RawMessage
			Exit     *int
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		said, stream := rec.Out, agent.Stdout
		if rec.Err != nil {
			said, stream = rec.Err, agent.Stderr
		}
		var text string
		if json.Unmarshal(said, &text) != nil {
			text = string(said)
		}
		switch {
		case rec.Exit != nil:
			e, _ := decoder.Exit(*rec.Exit, "")
			events = append(events, e.Event)
		case said != nil:
			for _, e := range decoder.Line(agent.Line{Stream: stream, N: len(events), Bytes: []byte(text)}).Events {
				events = append(events, e.Event)
			}
		}
	}
	for i := range events {
		events[i].Agent, events[i].Job, events[i].Time = name, "01a205f6-dbaa-771f-ac99-41d2010d55db", at.Add(time.Duration(i)*300*time.Millisecond)
	}
	return events
}

// What people see of sessions of real agents.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d golden files, %v", len(paths), err)
	}
	for _, golden := range paths {
		from, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(golden), ".golden"), "_")
		t.Run(from+"/"+name, func(t *testing.T) {
			s, shown := wide("80")
			for _, e := range recorded(t, recording(from, name)) {
				if err := s.Show(e); err != nil {
					t.Fatal(err)
				}
			}
			got := colors.ReplaceAllString(shown.String(), "")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%v: go test -update writes it anew; got:\n%s", err, got)
			}
		})
	}
}

// A described event has the schema that all events have.
type described struct{ *jsonschema.Resolved }

func describing(t *testing.T) described {
	t.Helper()
	text, err := schema.For("event")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return described{resolved}
}

// accept wants an event to be as its schema says, without a field of data that
// its kind does not have.
func (d described) accept(t *testing.T, e jobs.Event) {
	t.Helper()
	eventtest.Strict(t, e)
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, line)
	}
}

// No recorded session of any agent shows JSON, is wider than its terminal, or
// has others' words in the first column.
func TestEveryRecordedSession(t *testing.T) {
	paths, err := filepath.Glob("../../../worker/agent/internal/*/testdata/*/*.jsonl")
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d transcripts, %v", len(paths), err)
	}
	schemas := describing(t)
	own := regexp.MustCompile(`^([●▸◂✓✗?›◆↻] |  )`)
	for _, path := range paths {
		if strings.Contains(path, "acp") {
			continue // those decoders answer what they were told, and were told nothing here
		}
		for _, columns := range []string{"60", "160"} {
			s, shown := wide(columns)
			for _, e := range recorded(t, path) {
				schemas.accept(t, e)
				if e.Kind == jobs.OutputLine {
					continue // a program's own line may be JSON
				}
				if err := s.Show(e); err != nil {
					t.Fatal(err)
				}
			}
			for line := range strings.Lines(colors.ReplaceAllString(shown.String(), "")) {
				line = strings.TrimSuffix(line, "\n")
				width := map[string]int{"60": 60, "160": 160}[columns]
				if console.Columns(line) > width || !own.MatchString(line) && strings.TrimSpace(line) != "" {
					t.Errorf("%s at %d: %q", path, width, line)
				}
			}
		}
	}
}

// A job's end is told once, with its reason, the advice and the next commands.
func TestEnd(t *testing.T) {
	s, shown := wide("100")
	r := jobs.Result{Job: "01a205f6-dbaa-771f-ac99-41d2010d55db", Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: "make test: exit 2\n✓ success", FilesChanged: 2, CostUSD: 0.0213}
	r.Durations.Total, r.Usage = 72.4, jobs.Usage{Input: 4000, Output: 200}
	for _, e := range []jobs.Event{
		event.New(event.CapsuleStored{}),
		event.New(event.TurnEnded{Status: "error", Usage: jobs.Usage{Input: 1000, Output: 50}, UsageScope: "process", CostUSD: 0.01, CostScope: "process"}),
		event.New(event.TurnEnded{Status: "ok", Usage: jobs.Usage{Input: 4000, Output: 200}, UsageScope: "process", CostUSD: 0.0213, CostScope: "process"}),
		event.New(event.JobFinished(r)),
	} {
		e.Job = r.Job
		if err := s.Show(e); err != nil {
			t.Fatal(err)
		}
	}
	want := `  turn 1 · error · 1,000 in, 50 out · $0.01
  turn 2 · 3,000 in, 150 out · $0.01
✗ failure (check_failed) in 1 min 12 s · 2 files · 2 turns · 4,000 in, 200 out · $0.02
  make test: exit 2
  ✓ success
  ` + jobs.Reasons[jobs.CheckFailed].Advice + `
  penstock job diff 01a205f6-dbaa-771f  shows the change
  penstock job apply 01a205f6-dbaa-771f  brings it into your work tree
  penstock send 01a205f6-dbaa-771f "…"  continues the conversation
  penstock job retry 01a205f6-dbaa-771f  runs it again
`
	if got := colors.ReplaceAllString(shown.String(), ""); got != want || !s.Over() {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
