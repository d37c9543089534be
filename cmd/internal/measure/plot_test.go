package measure

import (
	"strings"
	"testing"
	"time"
)

// A bound is drawn on the scale of the values, which both have to fit into.
func TestABoundIsDrawn(t *testing.T) {
	t.Parallel()
	at := []time.Duration{0, time.Minute}
	picture := string(Plot(at, make([]int, 2), []Graph{{Name: "rate", Values: []float64{0, 5}, Bound: []float64{10, 10}}, {Name: "other", Values: []float64{0, 5}}}))
	for _, want := range []string{
		`rate, up to 5<`, `points="0.0,0.0 420.0,0.0" fill="none" stroke="#57606a" stroke-dasharray`, `points="0.0,110.0 420.0,55.0"`, `points="0.0,110.0 420.0,0.0"`,
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("the plot has no %s:\n%s", want, picture)
		}
	}
	if n := strings.Count(picture, "<polyline"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
}
