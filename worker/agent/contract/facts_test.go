package contract_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent/contract"
)

// A message that no adapter knows is named among the facts, and fails no check.
func TestNewMessagesAreFacts(t *testing.T) {
	t.Parallel()
	report, err := test(t, fakeAgent(t, "says something new"), "mine", slowtest.Limit(time.Minute), "prompt", "turns", "output")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Checks {
		if f.Status != contract.Yes {
			t.Errorf("%s: %s %s", f.Check, f.Status, f.Seen)
		}
	}
	if kinds := report.Facts.Messages; !slices.Contains(kinds, "session/update brand_new") || !slices.Contains(kinds, "session/update agent_message_chunk") {
		t.Errorf("the kinds of messages are %q", kinds)
	}
	if kinds := report.Facts.Unknown; !slices.ContainsFunc(kinds, func(kind string) bool { return kind == "session/update brand_new" }) {
		t.Errorf("unknown are %q", kinds)
	}
}
