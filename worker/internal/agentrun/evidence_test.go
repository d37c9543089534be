package agentrun

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the gate saw decides about an end that the agent, or its silence, cannot
// explain; nothing else does.
func TestBlame(t *testing.T) {
	t.Parallel()
	failing := func(status int, kind string) gate.Failure {
		return gate.Failure{APIFailure: jobs.APIFailure{Status: status, Kind: kind}, Row: 2}
	}
	saw := []struct {
		gate.Failure
		means jobs.Reason
	}{
		{gate.Failure{}, ""}, {failing(400, "invalid_request_error"), ""}, {failing(404, ""), ""},
		{failing(400, "API_KEY_INVALID"), jobs.Unauthorized}, {failing(401, ""), jobs.Unauthorized},
		{failing(403, "permission_error"), jobs.Unauthorized}, {failing(402, ""), jobs.Billing},
		{failing(429, "insufficient_quota"), jobs.Billing}, {failing(404, "not_found_error"), jobs.ModelNotFound},
		{failing(404, "model_not_found"), jobs.ModelNotFound}, {failing(429, "rate_limit_error"), jobs.RateLimited},
		{failing(500, "api_error"), jobs.ModelUnavailable}, {failing(502, "api_error"), jobs.ModelUnavailable},
		{failing(529, "overloaded_error"), jobs.ModelUnavailable}, {failing(200, "overloaded_error"), jobs.ModelUnavailable},
	}
	own := append([]jobs.Reason{
		jobs.Billing, jobs.ModelNotFound, jobs.TurnLimit, jobs.RetryLimit, jobs.OutputLimit, jobs.Unanswered, jobs.AgentHalted, jobs.AgentMissing,
	}, vague...)
	for i, reason := range own {
		for _, s := range saw {
			want := reason
			if open := i >= len(own)-len(vague); open && s.means != "" {
				want = s.means
			}
			if got := blame(reason.Ended("its own words"), s.Failure); got.Reason != want || got.Outcome != jobs.Reasons[want].Outcome || !strings.HasSuffix(got.Message, "its own words") {
				t.Errorf("%s where the gate saw %+v: got %+v, want %s", reason, s.Failure, got, want)
			}
		}
	}
	if got := blame(jobs.Ended{Outcome: jobs.Success}, failing(500, "")); got.Outcome != jobs.Success {
		t.Errorf("a success became %+v", got)
	}
}
