package gemini

import (
	"flag"
	"testing"

	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestTranscripts(t *testing.T) {
	adaptertest.Transcripts(t, adaptertest.Recorded{Adapter: Adapter{}, Least: 21, Update: *update})
}
