package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// A policy that keeps people out leaves the agent its own terminals.
func TestTerminalsWithoutPeople(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	f.must(os.WriteFile(policy, []byte("attach: deny\n"), 0o600))
	f.serve("--slots", "1", "--policy", policy)
	id := f.agentOf(`
call create '{"command":["echo","its","own"]}'
sees 1 'its own'
while test ! -e go-on; do sleep 0.1; done
`)
	f.eventually(30*time.Second, "the agent sees its terminal", func() bool { return strings.Contains(f.run("logs", id), `its own\\r`) })
	if _, code, told := f.try("attach", id, "--terminal", "1"); code != 6 || !strings.Contains(told, "policy") {
		t.Errorf("a person: %d, %s", code, told)
	}
	f.run("job", "stop", id)
}

// How an agent harms itself: too many terminals, too much input, another sender.
func TestTerminalsOfAHostileAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.agentOf(`
for i in {1..6}; do call create '{"command":["sleep","1000"]}'; done
token=${PENSTOCK_INSIDE#http://}; token=${token%@*}
post() {
  exec 3<>/dev/tcp/127.0.0.1/3127
  printf 'POST /v1/terminals HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic %s\r\nContent-Length: %s\r\n\r\n%s' "$(printf '%s:' "$1" | base64 -w0)" "${3:-${#2}}" "$2" >&3
  cat <&3 | tail -1; exec 3>&-
}
post wrong '{"verb":"list"}'
post $token '{"verb":"resize","terminal":1,"rows":5,"columns":5}'
post $token '{"verb":"open","terminal":1,"id":"0198c0de-0000-7000-8000-000000000001"}'
post $token '{"verb":"read","terminal":1,"wait":"31s"}'
post $token '{"verb":"write","terminal":1,"id":"me"}'
post $token '{"verb":"list","by":"root","attempt":7}'
post $token '{"verb":"list","as":"root"}'
post $token "$(printf '{"verb":"list","by":"%0400000d"}' 0)"
auth=$(printf '%s:' "$token" | base64 -w0)
printf -v all 'POST /v1/terminals HTTP/1.1\r\nHost: x\r\nAuthorization: Basic '$auth'\r\nContent-Length: 80\r\n\r\n{"verb":"open","id":"0198c0de-0000-7000-8000-0000000%05d","args":["sleep","9"]}' {10001..11000}
exec 3<>/dev/tcp/127.0.0.1/3127
printf '%sGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' "$all" >&3 & cat <&3 >answers
grep -o '"message":"[^"]*' answers | sort | uniq -c
`)
	f.eventually(time.Minute, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
	events := f.events(id)
	var said strings.Builder
	for _, e := range events {
		fmt.Fprintf(&said, "%s %s\n", e.Kind, e.Data)
	}
	for _, want := range []string{
		"4 terminals of the agent are open, as many as there may be", "the token is wrong", "an agent opens, reads", "more than 30s", "is not a UUID",
		`unknown field \\\"as`, "longer than the 262144 bytes", "an attempt has 50 terminals", "more than 20 requests a second",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q was not answered", want)
		}
	}
	if n := count(events, jobs.TerminalCreated); n != 4 {
		t.Errorf("%d terminals were created", n)
	}
	if t.Failed() {
		t.Log(said.String())
	}
}

// speaks is the beginning of an agent that speaks to the server of its terminals.
const speaks = `
coproc penstock terminals
n=0
ask() { n=$((n+1)); echo "{\"jsonrpc\":\"2.0\",\"id\":$n,\"method\":\"$1\",\"params\":$2}" >&${COPROC[1]}; read -r said <&${COPROC[0]}; echo "$said"; }
call() { ask tools/call "{\"name\":\"terminal_$1\",\"arguments\":$2}"; }
sees() { while :; do call read "{\"terminal\":$1,\"from\":0}"; case $said in *"$2"*) return;; esac; sleep 0.5; done; }
ask initialize '{"protocolVersion":"2025-06-18"}'
`

func (f *fixture) agentOf(script string, flags ...string) string {
	f.Helper()
	flags = append([]string{"submit", "--isolation", "none", "--terminals", "--max-attempts", "1"}, flags...)
	return strings.TrimSpace(f.run(append(flags, "-o", "id", "--", "bash", "-c", speaks+script)...))
}

// A person is a user who is attached to a terminal.
type personAt struct {
	*fixture
	in  io.Writer
	out *syncBuffer
}

func (f *fixture) attaches(args ...string) personAt {
	f.Helper()
	p := personAt{f, nil, &syncBuffer{}}
	cmd := f.command(append([]string{"attach"}, args...)...)
	cmd.Stdout, cmd.Stderr = p.out, p.out
	in, err := cmd.StdinPipe()
	f.must(err)
	p.in = in
	f.must(cmd.Start())
	f.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it has ended with the agent
	return p
}

// looksAt waits until a terminal is open.
func (f *fixture) looksAt(id, number string, args ...string) personAt {
	f.Helper()
	f.eventually(30*time.Second, "terminal "+number+" is open", func() bool {
		list, _, _ := f.try("attach", id, "--list") // the agent may not run yet
		return strings.Contains(list, "\n"+number+" ")
	})
	return f.attaches(append([]string{id, "--terminal", number}, args...)...)
}

func (p personAt) types(text string) {
	p.Helper()
	_, err := io.WriteString(p.in, text)
	p.must(err)
}

func (p personAt) sees(text string) {
	p.Helper()
	p.eventually(30*time.Second, "a person sees "+text, func() bool { return strings.Contains(p.out.String(), text) })
}

// A person sees the agent's own terminal and types in it, and the agent does the same
// with theirs.
func TestTerminalsOfTheAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.agentOf(`
call create '{"command":["sh","-c","stty -echo; echo from the agent; read x; echo got $x; exec cat"],"rows":30,"columns":100}'
sees 1 'got hello'
call write '{"terminal":1,"text":"from \u00e9 the keys\r"}'
sees 1 'é the keys'
sees 2 'by a person'
call list '{}'
call write '{"terminal":2,"text":"seen\r"}'
call close '{"terminal":1}'
sees 1 'was closed'
call write '{"terminal":1,"text":"x"}'
call read '{"terminal":77}'
call close '{"terminal":77}'
while test ! -e go-on; do sleep 0.1; done
`)
	f.runs(id)
	looks := f.looksAt(id, "1")
	looks.sees("from the agent")
	looks.types("hello\n")
	looks.sees("é the keys")
	theirs := f.attaches(id, "--", "sh", "-c", "echo by a person; read x; echo read $x; exec sleep 1000")
	theirs.sees("read seen")
	f.goOn(id)
	f.run("wait", "--timeout", patience(60), id)
	said, made := "", ""
	for _, e := range f.events(id) {
		switch e.Kind {
		case jobs.OutputLine:
			var line event.OutputLine
			f.must(json.Unmarshal(e.Data, &line))
			said += line.Text + "\n"
		case jobs.TerminalCreated:
			var d event.Terminal
			f.must(json.Unmarshal(e.Data, &d))
			made += d.By + " "
		}
	}
	for _, want := range []string{
		`"protocolVersion":"2025-06-18"`, `\"rows\":30,\"columns\":100`, `{\"typed\":17}`, `\"by\":\"cli\"`,
		`program has ended","isError"`, `no terminal 77`, `"isError":true`, `{\"closed\":1}`,
	} {
		if !strings.Contains(strings.ReplaceAll(said, `"}],"isError`, `","isError`), want) {
			t.Errorf("%s is not in\n%s", want, said)
		}
	}
	if made != "agent cli cli " {
		t.Errorf("created by %s", made)
	}
}
