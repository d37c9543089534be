package agentrun

import (
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/gate"
)

// unexplained are ends that say that something went wrong, but not what.
var unexplained = []jobs.Reason{jobs.AgentFailed, jobs.AgentCrashed, jobs.AgentProtocol}

// vague are ends that a failing model API explains better than the agent, or
// its silence, does. What the agent says of the API itself is among them: the gate has
// the answer as it was.
var vague = []jobs.Reason{
	jobs.AgentFailed, jobs.AgentCrashed, jobs.AgentProtocol, jobs.StartLimit, jobs.IdleLimit,
	jobs.Unauthorized, jobs.RateLimited, jobs.ModelUnavailable,
}

// blame decides what an agent's run ended for, by how it ended and by what the
// gate saw of the model API meanwhile. It is the only place that does, for
// every agent.
func blame(own jobs.Ended, seen gate.Failure) jobs.Ended {
	why := seen.Reason()
	if own.Outcome == jobs.Success || seen.Row == 0 || why == "" || !slices.Contains(vague, own.Reason) {
		return own
	}
	what := fmt.Sprintf("status %d", seen.Status)
	if seen.Kind != "" {
		what += ", " + seen.Kind
	}
	end := why.Ended(fmt.Sprintf("the model API failed %d calls in a row (%s): %s", seen.Row, what, own.Message))
	if seen.Row == 1 {
		end.Message = fmt.Sprintf("the model API failed the last call (%s): %s", what, own.Message)
	}
	return end
}
