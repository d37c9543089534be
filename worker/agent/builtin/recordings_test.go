package builtin_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/recording"
)

var update = flag.Bool("update", false, "write the events of the recordings anew")

// The adapters make of each recording of penstock agent record what they made of it when it was
// made: no agent's program is needed for that.
func TestRecordings(t *testing.T) {
	dirs, err := recording.Find("testdata/recordings")
	if err != nil || len(dirs) < 8 {
		t.Fatalf("%d recordings, want 8, err %v", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			rec, err := recording.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if rec, err = rec.Remake(builtin.Agents); err != nil {
					t.Fatal(err)
				}
				if err := rec.Write(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := rec.Replay(builtin.Agents); err != nil {
				t.Errorf("%v\n(go test -run Recordings -update writes the events anew)", err)
			}
		})
	}
}
