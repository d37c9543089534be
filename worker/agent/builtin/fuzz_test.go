package builtin_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

// FuzzDecoders feeds decoders with anything: they never fail, carry each line
// once, and make events that are valid JSON and UTF-8.
func FuzzDecoders(f *testing.F) {
	f.Add(`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":"x"}}]}}`)
	f.Add(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"y"}]}]},"tool_use_result":{"filePath":"p","structuredPatch":[]}}`)
	f.Add(`{"type":"system","subtype":"init","tools":["AskUserQuestion"],"session_id":"s"}` + "\n" + `{"type":"result","is_error":true,"errors":["e"],"modelUsage":{"m":{"inputTokens":1}}}`)
	f.Add(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[]}}}`)
	f.Add(`{"type":"system","subtype":"permission_denied","message":5,"tasks":{},"event":"x"}` + "\n\xff\x00{")
	f.Add(`{"type":"step_start","sessionID":"s"}` + "\n" + `{"type":"tool_use","part":{"tool":"edit","state":{"status":"completed","metadata":{"filepath":"p"}}}}` + "\n" + `{"type":"step_finish","part":{"reason":"stop"}}`)
	f.Add(`{"id":1,"result":{}}` + "\n" + `{"id":2,"result":{"thread":{"id":"t"}}}` + "\n" + `{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}` + "\n" +
		`{"id":0,"method":"item/tool/requestUserInput","params":{"questions":[{"id":"q","question":"Q"}]}}` + "\n" + `{"id":{},"method":"x"}` + "\n" +
		`{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"interrupted"}}}`)
	f.Add(`{"id":1,"result":{"protocolVersion":1}}` + "\n" + `{"id":2,"result":{"sessionId":"s"}}` + "\n" +
		`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c","content":[{"type":"diff","path":"p"}]}}}` + "\n" +
		`{"id":"r","method":"session/request_permission","params":{"options":[{"optionId":"y","name":"\u0000","kind":"allow_once"}]}}` + "\n" +
		`{"id":3,"result":{"stopReason":"cancelled"}}` + "\n" + `{"id":4,"method":"fs/read_text_file"}`)
	f.Fuzz(func(t *testing.T, in string) {
		agents := builtin.Agents(agent.Config{})
		for _, about := range agents.All() {
			for _, interactive := range []bool{false, about.Interactive} {
				adapter, err := agents.Get(about.Name)
				if err != nil {
					t.Fatal(err)
				}
				l := agent.Launch{ID: "j", Session: "s"}
				l.Job.Agent.Interactive = interactive
				fuzzDecoder(t, about.Name, adapter.Decoder(l), in)
			}
		}
	})
}

func fuzzDecoder(t *testing.T, name string, d agent.Decoder, in string) {
	check := func(lines [][]byte) {
		for _, line := range lines {
			if !json.Valid(line) || bytes.ContainsRune(line, '\n') {
				t.Fatalf("%s: told %q", name, line)
			}
		}
	}
	speaker, speaks := d.(agent.Speaker)
	for n, l := range strings.Split(in, "\n") {
		r := d.Line(agent.Line{Stream: agent.Stdout, N: n + 1, Bytes: []byte(l)})
		if len(r.Events) == 0 || r.Events[0].Raw == nil || r.Events[0].Raw.N != n+1 {
			t.Fatalf("%s: %q became %+v", name, l, r)
		}
		for i, e := range r.Events {
			out, err := json.Marshal(e)
			if err != nil || !utf8.Valid(out) || i > 0 && e.Raw != nil {
				t.Fatalf("%s: %q became %s, err %v", name, l, out, err)
			}
			if strings.HasPrefix(string(e.Kind), "job.") || strings.HasPrefix(string(e.Kind), "jail.") {
				t.Fatalf("%s: %q became %s", name, l, e.Kind)
			}
		}
		check(r.Reply)
		if speaks {
			check(speaker.Say("id", l))
			check(speaker.Interrupt())
			_, lines, _ := speaker.Answer(control.Message{Deny: n%2 == 0}) // nothing may be open
			check(lines)
		}
	}
	if _, end := d.Exit(1, ""); end.Outcome == "" || end.Outcome == "success" && name == "command" {
		t.Fatalf("%s: verdict %+v", name, end)
	}
}
