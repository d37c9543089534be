package main

import (
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// The real Claude Code works with the models that its job allows, and a call of another one
// is never made.
func TestModelsThatAJobAllows(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{agenttest.Say("Done.")}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = append(f.env, "ANTHROPIC_API_KEY="+keyPrefix, "PENSTOCK_MODEL_ANTHROPIC_URL="+upstream.URL)
	try := func(allow string, more ...string) (told string, code int) {
		_, code, told = f.try(slices.Concat([]string{"run", "--repo", f.repo, "--agent", "claude", "--model", "claude-sonnet-4-5", "--allow-model", allow, "--max-attempts", "1", "Say that it is done."}, more)...)
		return told, code
	}
	if told, code := try("claude-haiku-*"); code == 0 || !strings.Contains(told, `model "claude-sonnet-4-5" is not among those that the job allows`) {
		t.Errorf("ended with %d: %s", code, told)
	}
	if told, code := try("claude-sonnet-*"); code != 0 {
		t.Errorf("ended with %d: %s", code, told)
	}
	if told, code := try("claude *"); code != 2 || !strings.Contains(told, `agent.allow_models[0]: "claude *" is no name as on the wire`) {
		t.Errorf("ended with %d: %s", code, told)
	}
	nothing := []string{"--allow-service-tier", "none", "--allow-inference-geo", "none", "--allow-file-id", "none", "--allow-container-id", "none"}
	if told, code := try("claude-sonnet-*", append(nothing, "--allow-beta", "*-20*")...); code != 2 || !strings.Contains(told, "agent.allow_betas[0]") {
		t.Errorf("ended with %d: %s", code, told)
	}
	if told, code := try("claude-sonnet-*", append(nothing, "--allow-beta", "none")...); code == 0 || !strings.Contains(told, "is not among those that the job allows") {
		t.Errorf("without beta features it ended with %d: %s", code, told)
	}
	requests := model.Requests()
	for _, r := range requests {
		for beta := range strings.SplitSeq(strings.Join(r.Header["Anthropic-Beta"], ","), ",") {
			nothing = append(nothing, "--allow-beta", beta)
		}
	}
	if told, code := try("claude-sonnet-*", nothing...); code != 0 {
		t.Errorf("with the beta features that it asks for it ended with %d: %s", code, told)
	}
	for _, r := range requests {
		if !strings.HasPrefix(r.Model, "claude-sonnet-") {
			t.Errorf("model %s was called", r.Model)
		}
	}
	if len(requests) == 0 {
		t.Error("no model was called")
	}
}
