package adaptertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/recording"
)

// replay gives a transcript to a decoder and describes what came out. It also
// holds the decoder to its promise: each line is carried by one event only,
// the first that is made of it, unchanged.
func replay(t *testing.T, path string, d agent.Decoder) string {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := recording.Decode(file, d)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, broken := range read.Broken {
		t.Error(broken)
	}
	return read.Events
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
				t.Errorf("events differ from %s (go test -run Transcripts -update writes it anew):\n%s", golden, recording.Diff(string(want), got))
			}
		})
	}
}
