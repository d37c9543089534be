package worker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// Amounts whose sum no JSON can hold are what the agent says, and no reason to
// lose its heartbeats or its result: the pool would try it again, and again.
func TestAnAgentReportsAbsurdCosts(t *testing.T) {
	t.Parallel()
	for protocol, script := range map[string]string{
		"opencode": `for n in 1 2 3; do echo '{"type":"step_start","sessionID":"s"}'
			echo '{"type":"step_finish","part":{"reason":"tool-calls","cost":1.7e308,"tokens":{"input":9007199254740993}}}'; done
			echo '{"type":"step_finish","part":{"reason":"stop","cost":1.7e308}}'`,
		"claude": `echo '{"type":"system","subtype":"init","session_id":"s"}'
			for n in 1 2 3; do echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","total_cost_usd":1.7e308,"usage":{"input_tokens":9007199254740993}}'; done`,
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			path := filepath.Join(f.TempDir(), "stub")
			f.must(exectest.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
			g, err := gate.New(gate.Config{Key: "key", Upstream: "http://127.0.0.1:1"}) // never asked
			f.must(err)
			f.Cleanup(func() { f.must(g.Close()) })
			f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
			f.cfg.Agents = builtin.Agents(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"stub": {Protocol: protocol, Command: []string{path}}}})
			job := f.job("")
			job.Agent = jobs.Agent{Name: "stub"}
			rec, events := f.run(job)
			if rec.Outcome != jobs.Success || rec.Attempt != 1 {
				t.Errorf("ended with %s, %s (%s) after %d attempts: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
			}
		})
	}
}
