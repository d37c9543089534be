package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// keeper is an agent of the Agent Client Protocol that keeps what was said in a file of its
// home, and says how much the user has said. KEEPER says in which way it loads a session.
const keeper = `#!/bin/sh
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
answer() { say '"id":'"$id,\"result\":$1"; }
refuse() { say '"id":'"$id,\"error\":{\"code\":$1,\"message\":\"no such thing\"}"; }
told() { say '"method":"session/update","params":{"sessionId":"'$s'","update":{"sessionUpdate":"'$1'","content":{"type":"text","text":"'"$2"'"}}}'; }
kept() { s=$1; file=$HOME/.keeper/$s/said.jsonl; }
keep() { printf '{"%s":"%s"}\n' "$1" "$2" >>"$file"; }
replay() { while IFS=\" read -r _ who _ text _; do told "$who" "$text"; done <"$file"; }
heard() {
	told agent_message_chunk "heard $(grep -c user_message "$file")"
	keep agent_message_chunk "heard $(grep -c user_message "$file")"
	say '"id":'"$prompt"',"result":{"stopReason":"end_turn"}'
}
echoes=-1
while read -r line; do
	id=${line#*\"id\":}; id=${id%%[,\}]*}
	case $line in
	*'"initialize"'*) answer '{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
	*'"session/new"'*)
		kept "talk-$PENSTOCK_ATTEMPT"; mkdir -p "$HOME/.keeper/$s/cache"; : >"$file"; echo key >"$HOME/.keeper/$s/cache/key"
		answer '{"sessionId":"'$s'"}' ;;
	*'"session/load"'*)
		loaded=yes; kept=${line#*\"sessionId\":\"}; kept "${kept%%\"*}"
		case $KEEPER in
		refuses) refuse -32602; continue ;;
		orderly) replay ;;
		esac
		answer '{}' ;;
	*'"_penstock/echo"'*)
		[ "$KEEPER" != early ] || { replay; KEEPER=; }
		refuse -32601
		[ $((echoes -= 1)) != 0 ] || { echoes=-1; heard; } ;;
	*'"session/prompt"'*)
		prompt=$id; text=${line#*\"text\":\"}; text=${text%%\"*}
		case $KEEPER in
		forgets) [ -z "$loaded" ] || { refuse -32602; exit 1; } ;;
		late) [ -z "$loaded" ] || { replay; echoes=6; KEEPER=; } ;;
		esac
		keep user_message_chunk "$text"
		case $line in
		*'"WAIT"'*) say '"method":"session/update","params":{"sessionId":"'$s'","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"wait","kind":"execute"}}'; exec sleep 1000 ;;
		*'"ASK"'*) say '"id":77,"method":"session/request_permission","params":{"sessionId":"'$s'","toolCall":{"toolCallId":"d","title":"touch","rawInput":{"file":"asked"}},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}'; exec sleep 1000 ;;
		*'It is granted'*) touch asked ;;
		esac
		[ $echoes -ge 0 ] || heard ;;
	esac
done
`

// described is a pool whose settings describe the keeper, and the beginning of a session of two
// turns that a worker of its own holds.
func described(t *testing.T, how string, submit ...string) (l *lot, config string) {
	t.Helper()
	f := newFixture(t)
	dir := t.TempDir()
	f.must(exectest.WriteFile(filepath.Join(dir, "keeper"), []byte(keeper), 0o755))
	config = filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(config, []byte("agents:\n  keeper:\n    protocol: acp\n    command: ["+dir+"/keeper]\n    env: {KEEPER: "+how+"}\n"+
		"    conversation: {files: [\".keeper/{id}/**\"], except: [\".keeper/*/cache/**\"]}\n"), 0o644))
	l = &lot{}
	l.serve, l.args = f.serve()
	l.worker = f.worker("--slots", "1", "--config", config)
	l.talk = talk{f, strings.TrimSpace(f.run(append([]string{"submit", "BEGIN", "--config", config, "--agent", "keeper", "--interactive", "--repo", f.repo, "-o", "id"}, submit...)...))}
	f.Cleanup(func() {
		if f.Failed() {
			said, _, _ := f.try("logs", l.id)
			f.Log(said)
		}
	})
	l.seen(jobs.CapsuleStored, 1)
	f.run("send", l.id, "second")
	l.has(l.seen(jobs.CapsuleStored, 2), `"turn":2`, `"conversation":"talk-1"`)
	return l, config
}

// elsewhere kills the worker, and starts another one with another directory.
func (l *lot) elsewhere(config string) {
	l.Helper()
	as := l.credentials()[jobs.RoleWorker]
	l.worker.kill()
	l.fixture.worker("--slots", "1", "--queues", "another") // which removes what was killed, and takes nothing
	l.worker = l.fixture.worker(append([]string{"--slots", "1", "--config", config}, as...)...)
}

// says waits until the agent has said how much it has heard, and is silent.
func (l *lot) says(what string) {
	l.Helper()
	l.eventually(60*time.Second, "it says "+what, func() bool { return strings.Contains(l.all(jobs.Message), what) })
	l.rests(l.id)
}

// settled checks that the agent had some time to write its conversation down before that was stored.
func (l *lot) settled() {
	l.Helper()
	var ended time.Time
	for _, e := range l.events(l.id) {
		switch e.Kind {
		case jobs.TurnEnded:
			ended = e.Time
		case jobs.CapsuleStored:
			if waited := e.Time.Sub(ended); waited < 300*time.Millisecond {
				l.Errorf("the conversation was stored %v after the end of its turn", waited)
			}
		}
	}
}

// onlyOnce checks that each message of the agent was told once.
func (l *lot) onlyOnce(said ...string) {
	l.Helper()
	all := l.all(jobs.Message)
	for _, text := range said {
		if n := strings.Count(all, `"text":"`+text+`"`); n != 1 {
			l.Errorf("%s was told %d times in\n%s", text, n, all)
		}
	}
	if n := strings.Count(all, "\n"); n != len(said) {
		l.Errorf("%d messages were told, want %d:\n%s", n, len(said), all)
	}
	l.gapless(l.events(l.id))
}

// An agent of the settings goes on after a kill -9 between its turns, in another directory, and
// whatever it repeats of the session is not told again, whenever it does. One that does not go on
// with its session begins anew, and the reason is told.
func TestADescribedAgentGoesOn(t *testing.T) {
	t.Parallel()
	for how, why := range map[string]string{
		"orderly": "", "early": "", "late": "", "refuses": "it opened no session: no such thing",
		"forgets": "it does not know the session that it has loaded: no such thing",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l, config := described(t, how)
			l.settled()
			l.elsewhere(config)
			l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
			if why != "" {
				l.has(l.seen(jobs.SessionContinued, 2), `"how":"anew"`, why)
				l.eventually(60*time.Second, "it is told all again", func() bool { return strings.Count(l.all(jobs.Message), "heard 2") == 2 })
				l.rests(l.id)
				l.run("send", l.id, "third")
				l.says("heard 3")
			} else {
				l.says("heard 3")
				l.run("send", l.id, "fourth")
				l.says("heard 4")
				l.onlyOnce("heard 1", "heard 2", "heard 3", "heard 4")
			}
			l.run("job", "stop", l.id)
			l.run("wait", "--timeout", patience(60), l.id)
			if rec := l.record(l.id); rec.Outcome != jobs.Success || rec.Attempt != 2 {
				t.Errorf("%s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
			}
		})
	}
}

// Within a turn, the prompt of it is told again.
func TestADescribedAgentIsKilledWithinATurn(t *testing.T) {
	t.Parallel()
	l, config := described(t, "orderly")
	l.run("send", l.id, "WAIT")
	l.seen(jobs.ToolStarted, 1)
	l.elsewhere(config)
	l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
	l.eventually(60*time.Second, "it is told of what it has not done", func() bool { return strings.Contains(l.all(jobs.Message), "heard 3") })
	l.rests(l.id)
	l.onlyOnce("heard 1", "heard 2", "heard 3")
	l.run("job", "stop", l.id)
	l.run("wait", "--timeout", patience(60), l.id)
}

// While it asks, it gives its slot up. Another worker gives it the answer.
func TestADescribedAgentIsParked(t *testing.T) {
	t.Parallel()
	l, config := described(t, "orderly", "--park-after", "1s")
	l.run("send", l.id, "ASK")
	l.parked(1)
	l.elsewhere(config)
	l.run("answer", l.id)
	l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`)
	l.says("heard 4")
	l.onlyOnce("heard 1", "heard 2", "heard 4")
	l.run("job", "stop", l.id)
	l.run("wait", "--timeout", patience(60), l.id)
	if rec, patch := l.record(l.id), l.run("job", "diff", l.id); rec.Attempt != 2 || rec.Counted+rec.Lost > 0 || !strings.Contains(patch, "asked") {
		t.Errorf("%+v, with\n%s", rec, patch)
	}
}
