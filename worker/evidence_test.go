package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// Agents that behave as the real ones do when their model API fails: opencode
// tries again without a word, from before its first line; gemini tells the answer
// and says nothing of its key; one of protocol acp answers with an error of its
// own, or as if its turn had succeeded; a program of the user's ends with a status. Each calls the
// API twice.
var failingAgents = map[string]struct{ api, script string }{
	"acp without a word": {"openai", `say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
		while read -r line; do id=${line#*\"id\":}; id=${id%%[,\}]*}; case $line in
		*'"initialize"'*) say '"result":{"protocolVersion":1,"agentCapabilities":{}}' ;;
		*'"session/new"'*) say '"result":{"sessionId":"s"}' ;;
		*'"session/prompt"'*) call; call
			echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Error: try later"}}}}'
			say '"result":{"stopReason":"end_turn"}' ;; esac; done`},
	"opencode": {"anthropic", `call; call; exec sleep 60`},
	"gemini": {"google", `call; call; echo '{"type":"init","session_id":"s","model":"m"}'
		echo '{"type":"result","status":"error","error":{"type":"unknown","message":"something went wrong"},"stats":{}}'; exit 1`},
	"acp": {"openai", `say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
		while read -r line; do id=${line#*\"id\":}; id=${id%%[,\}]*}; case $line in
		*'"initialize"'*) say '"result":{"protocolVersion":1,"agentCapabilities":{}}' ;;
		*'"session/new"'*) say '"result":{"sessionId":"s"}' ;;
		*'"session/prompt"'*) call; call; say '"error":{"code":-32603,"message":"Internal error"}' ;; esac; done`},
	"command": {"anthropic", `call; call; exit 1`},
}

// caller calls the API as the agent's own client would.
const caller = `#!/bin/sh
call() {
	if [ -n "$GOOGLE_GEMINI_BASE_URL" ]; then
		curl -sS -m 20 -o /dev/null -H "x-goog-api-key: $GEMINI_API_KEY" -d '{"contents":[{"parts":[{"text":"x"}]}]}' "$GOOGLE_GEMINI_BASE_URL/v1beta/models/m:generateContent"
	elif [ -n "$OPENAI_BASE_URL" ]; then
		curl -sS -m 20 -o /dev/null -H "authorization: Bearer $OPENAI_API_KEY" -d '{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}]}' "$OPENAI_BASE_URL/responses"
	else
		curl -sS -m 20 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m","messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages"
	fi
}
`

// Whatever an agent makes of a failing API, its attempt ends for what the gate
// saw.
func TestAFailingAPIIsBlamedForEveryAgent(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	for name, is := range failingAgents {
		for _, fails := range []struct {
			reply  agenttest.Reply
			reason jobs.Reason
		}{
			{agenttest.Reply{Status: 500, Error: "api_error"}, jobs.ModelUnavailable},
			{agenttest.Reply{Status: 400, Error: "API_KEY_INVALID"}, jobs.Unauthorized},
		} {
			t.Run(name+" "+fails.reply.Error, func(t *testing.T) {
				t.Parallel()
				f := newField(t)
				api := httptest.NewServer(agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(agenttest.Request) agenttest.Reply { return fails.reply }}}))
				f.Cleanup(api.Close)
				g, err := gate.New(gate.Config{API: is.api, Key: "key", Upstream: api.URL})
				f.must(err)
				f.Cleanup(func() { f.must(g.Close()) })
				path := filepath.Join(f.TempDir(), "stub")
				f.must(exectest.WriteFile(path, []byte(caller+is.script+"\n"), 0o755))
				protocol, _, _ := strings.Cut(name, " ")
				custom := agent.Custom{Protocol: protocol, Command: []string{path}}
				if protocol == "acp" || protocol == "command" {
					custom.API = is.api
				}
				f.cfg.Gates = map[string]*gate.Gate{is.api: g}
				f.cfg.Agents = builtin.Agents(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"stub": custom}})
				f.cfg.Hangs = Hangs{Start: 2 * time.Second, Step: 300 * time.Millisecond}
				var first jobs.Record
				ended := make(chan struct{})
				f.cfg.Hooks.Settled = func(rec jobs.Record, _ jobs.Result) {
					if rec.Attempt == 1 {
						first = rec
						close(ended)
					}
				}
				job := f.job("")
				job.Agent, job.Retry.MaxAttempts = jobs.Agent{Name: "stub"}, 1
				id := f.submit(job).ID
				defer f.work()()
				<-ended
				if first.Reason != fails.reason || !strings.Contains(first.Message, "the model API failed 2 calls in a row") {
					t.Errorf("the first attempt ended with %s (%s), want %s: %s", first.Reason, first.Message, fails.reason, kinds(f.events(id)))
				}
			})
		}
	}
}

// A provider that says when to come again is obeyed to the second, in both forms
// of its header, and no more often than the operator allows.
func TestAProviderThatSaysWhen(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	for _, form := range []string{"seconds", "date"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			f.bounds = jobs.Bounds{Refusals: 2}
			f.use(f.connect(f.server.URL()))
			const wait = 5 * time.Second
			var told atomic.Int64 // when, in nanoseconds
			api := httptest.NewServer(agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
				now := time.Now()
				told.Store(now.UnixNano())
				reply := agenttest.Reply{Status: 429, Error: "rate_limit_error", After: "1"}
				if r.Try == 0 && form == "seconds" {
					reply.After = fmt.Sprint(wait.Seconds())
				} else if r.Try == 0 {
					reply.After = now.Add(wait).UTC().Format(http.TimeFormat)
				}
				return reply
			}}}))
			f.Cleanup(api.Close)
			g, err := gate.New(gate.Config{Key: "key", Upstream: api.URL})
			f.must(err)
			f.Cleanup(func() { f.must(g.Close()) })
			path := filepath.Join(f.TempDir(), "stub")
			f.must(os.WriteFile(path, []byte(caller+"call; exit 1\n"), 0o755))
			f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
			f.cfg.Agents = builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"stub": {Protocol: "command", Command: []string{path}, API: "anthropic"}}})
			f.cfg.Hooks.Settled = func(rec jobs.Record, _ jobs.Result) {
				if rec.Attempt != 1 {
					return
				}
				asked := time.Unix(0, told.Load()).Add(wait)
				if rec.NotBefore == nil || rec.NotBefore.Sub(asked).Abs() > time.Second {
					t.Errorf("the next attempt begins at %v, the provider asked for %v", rec.NotBefore, asked.UTC())
				}
			}
			job := f.job("")
			job.Agent = jobs.Agent{Name: "stub"}
			rec, _ := f.run(job)
			if rec.Reason != jobs.RateLimited || rec.Attempt != 2 || rec.Counted != 0 || !strings.Contains(rec.Message, "given up after 2 attempts that ended so") {
				t.Errorf("ended with %s (%s) after %d attempts, %d counted", rec.Reason, rec.Message, rec.Attempt, rec.Counted)
			}
		})
	}
}
