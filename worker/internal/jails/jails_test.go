package jails

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var out tail
	for i := range 20_000 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	if got := out.String(); len(got) > tailSize || !strings.HasSuffix(got, "line 19999\n") {
		t.Errorf("kept %d bytes, ending in %q", len(got), got[len(got)-20:])
	}
}

// Each refusal is reported once to each observer, however often a jail repeats it. The
// network's own report has more in it than the watch's, so the session gets only that one.
func TestRefusalsAreReportedOnce(t *testing.T) {
	t.Parallel()
	var kept []policy.Violation
	var told []event.Event
	refusals := NewRefusals("job.1", Observers{
		Refused: func(v policy.Violation) { kept = append(kept, v) },
		Tell:    func(events ...event.Event) { told = append(told, events...) },
	})
	refusals.Host(event.JailViolation{Host: "example.org", Port: 443, Reason: "not on the list"})
	for range 2 {
		refusals.Limits("the agent", sandbox.Exit{Reached: []sandbox.Feature{sandbox.FeatureMemory}})
	}
	var kinds []string
	for _, v := range kept {
		kinds = append(kinds, v.Kind)
		if v.Label != "job.1" {
			t.Errorf("labelled %q, want the attempt's name", v.Label)
		}
	}
	if want := []string{policy.KindHost, policy.KindLimit}; !slices.Equal(kinds, want) || len(told) != 2 {
		t.Errorf("kept %v and told %v, want %v and an event for each", kept, told, want)
	}
}
