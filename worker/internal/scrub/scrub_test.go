package scrub_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/internal/scrub"
)

// Secrets are blanked wherever the stream is cut, also one right after the other.
func TestInPieces(t *testing.T) {
	in := strings.Repeat("aab", 5) + "aabaac" + "xyxyz" + "aabaabaac" + "xyxyxyz" + "aabaaxyxy"
	want := strings.ReplaceAll(strings.ReplaceAll(in, "aabaac", "******"), "xyxyz", "*****")
	for size := 1; size <= len(in); size++ {
		s := scrub.New("aabaac", "xyxyz")
		var out bytes.Buffer
		for p := range slices.Chunk([]byte(in), size) {
			out.Write(s.Next(p))
		}
		out.Write(s.Rest())
		if out.String() != want {
			t.Errorf("pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}
