package jobs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// The job of the design document: every field, each with a value.
const fullJob = `{"key":"gh-acme-web-17","batch":"","session":"","queue":"default","priority":"normal","labels":{"team":"web"},
 "prompt":"…","issue":{"number":17,"title":"…","body":"…","url":"…"},
 "repo":{"url":"https://example.com/r.git","ref":"main","commit":""},
 "isolation":"worktree","image":"",
 "sandbox":{"backend":"auto","network":"allowlist","allow_hosts":["registry.example"],"limits":{"memory":"2GiB","cpus":2,"pids":512,"disk":"10GiB","traffic":"1GiB","connections":8}},
 "agent":{"name":"claude","command":[],"model":"","max_turns":50,"args":[],"interactive":false,"terminals":false,"instructions":"Be brief.","mcp_servers":{"tiny-1":{"command":"sh","args":["tools/s",""],"env":{"A":"b"}},
  "far":{"url":"https://tickets.example/mcp","headers":{"Authorization":"Bearer ${TICKETS_TOKEN}","X-Team":"web"},"tools":["search_*","read"]}}},
 "env":{"CI":"1"},"secrets":["NPM_TOKEN"],
 "setup":["npm ci"],"check":["npm test"],"check_rounds":2,
 "timeout":"30m","idle_timeout":"10m","budget":{"usd":2.5,"tokens":2000000},"retry":{"max_attempts":3},
 "deliver":{"mode":"patch","branch":"","base":"","draft":true,"draft_text":true},"artifacts":["out/**/*.xml","coverage/"],
 "run_at":"2027-01-02T03:04:05Z","depends_on":[]}`

func TestDecodeAcceptsTheDocumentedJob(t *testing.T) {
	job, err := jobs.Decode([]byte(fullJob))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := job.Sandbox.Limits.Memory, jobs.Bytes(2<<30); got != want {
		t.Errorf("memory: got %d, want %d", got, want)
	}
	if got, want := time.Duration(job.Timeout), 30*time.Minute; got != want {
		t.Errorf("timeout: got %v, want %v", got, want)
	}
	again, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Decode(again); err != nil {
		t.Errorf("a job that was written again is refused: %v", err)
	}
}

func TestDecodeFillsInDefaults(t *testing.T) {
	job, err := jobs.Decode([]byte(`{"prompt":"Fix the typo in README","repo":{"url":"/src/app"},"agent":{"name":"claude"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if job.Queue != "default" || job.Priority != jobs.Normal || job.Isolation != jobs.IsolationWorktree || job.Retry.MaxAttempts != 3 {
		t.Errorf("defaults: got %+v", job)
	}
}

func TestDecodeRefusesAndNamesTheField(t *testing.T) {
	const ok = `"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude"}`
	tests := []struct {
		name, json, field string
	}{
		{"no JSON", `{`, "(job)"},
		{"a list", `[]`, "(job)"},
		{"unknown at the top", `{` + ok + `,"promt":"x"}`, "promt"},
		{"unknown inside", `{"prompt":"p","repo":{"url":"/r","brnch":"x"},"agent":{"name":"claude"}}`, "repo.brnch"},
		{"unknown in a list", `{` + ok + `,"files":[{"name":"a","mode":1}]}`, "files[0].mode"},
		{"a model that is none", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","allow_models":["a","b c"]}}`, "agent.allow_models[1]"},
		{"a model of any kind", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","allow_models":["*"]}}`, "agent.allow_models[0]"},
		{"a star within a model", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","allow_models":["a*b"]}}`, "agent.allow_models[0]"},
		{"string for a number", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","max_turns":"9"}}`, "agent.max_turns"},
		{"number for a duration", `{` + ok + `,"timeout":30}`, "timeout"},
		{"unitless duration", `{` + ok + `,"timeout":"30"}`, "timeout"},
		{"short duration", `{` + ok + `,"timeout":"1ms"}`, "timeout"},
		{"bad size", `{` + ok + `,"sandbox":{"limits":{"memory":"lots"}}}`, "sandbox.limits.memory"},
		{"list for an object", `{` + ok + `,"labels":[]}`, "labels"},
		{"number in a list of strings", `{` + ok + `,"setup":[1]}`, "setup[0]"},
		{"wildcard queue", `{` + ok + `,"queue":"*"}`, "queue"},
		{"a queue like a class", `{` + ok + `,"queue":"a--b"}`, "queue"},
		{"a queue that would blur its class", `{` + ok + `,"queue":"a-","needs":["b"]}`, "queue"},
		{"a need like two", `{` + ok + `,"needs":["gpu","a--b"]}`, "needs[1]"},
		{"a need that is none", `{` + ok + `,"needs":["GPU"]}`, "needs[0]"},
		{"too many needs", `{` + ok + `,"needs":["a234567890123456789","b234567890123456789","c234567890123456789"]}`, "needs"},
		{"dotted queue", `{` + ok + `,"queue":"a.b"}`, "queue"},
		{"priority", `{` + ok + `,"priority":"urgent"}`, "priority"},
		{"no repository", `{"prompt":"p","agent":{"name":"claude"}}`, "repo.url"},
		{"option as repository", `{"prompt":"p","repo":{"url":"--upload-pack=x"},"agent":{"name":"claude"}}`, "repo.url"},
		{"ext transport", `{"prompt":"p","repo":{"url":"ext::sh -c x"},"agent":{"name":"claude"}}`, "repo.url"},
		{"relative repository", `{"prompt":"p","repo":{"url":"../r"},"agent":{"name":"claude"}}`, "repo.url"},
		{"option as ref", `{"prompt":"p","repo":{"url":"/r","ref":"-x"},"agent":{"name":"claude"}}`, "repo.ref"},
		{"revision syntax as ref", `{"prompt":"p","repo":{"url":"/r","ref":"main@{1}"},"agent":{"name":"claude"}}`, "repo.ref"},
		{"dots in a ref", `{"prompt":"p","repo":{"url":"/r","ref":"a..b"},"agent":{"name":"claude"}}`, "repo.ref"},
		{"short commit", `{"prompt":"p","repo":{"url":"/r","commit":"abc"},"agent":{"name":"claude"}}`, "repo.commit"},
		{"no agent", `{"prompt":"p","repo":{"url":"/r"}}`, "agent.name"},
		{"no command", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"command"}}`, "agent.command"},
		{"command for claude", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","command":["x"]}}`, "agent.command"},
		{"no prompt", `{"repo":{"url":"/r"},"agent":{"name":"claude"}}`, "prompt"},
		{"NUL in the prompt", `{"prompt":"a\u0000b","repo":{"url":"/r"},"agent":{"name":"claude"}}`, "prompt"},
		{"path as a file's name", `{` + ok + `,"files":[{"name":"../x","content":""}]}`, "files[0].name"},
		{"the same file twice", `{` + ok + `,"files":[{"name":"x","content":""},{"name":"x","content":""}]}`, "files[1].name"},
		{"our own variable", `{` + ok + `,"env":{"PENSTOCK_JOB":"1"}}`, "env.PENSTOCK_JOB"},
		{"preload", `{` + ok + `,"env":{"LD_PRELOAD":"x"}}`, "env.LD_PRELOAD"},
		{"variable's name", `{` + ok + `,"env":{"a=b":"1"}}`, "env"},
		{"secret's name", `{` + ok + `,"secrets":["a b"]}`, "secrets[0]"},
		{"hosts without a list", `{` + ok + `,"sandbox":{"allow_hosts":["a.example"]}}`, "sandbox.allow_hosts"},
		{"traffic without a list", `{` + ok + `,"sandbox":{"limits":{"traffic":"1GiB"}}}`, "sandbox.limits.traffic"},
		{"connections without a list", `{` + ok + `,"sandbox":{"network":"full","limits":{"connections":4}}}`, "sandbox.limits.connections"},
		{"too many connections", `{` + ok + `,"sandbox":{"network":"allowlist","limits":{"connections":100000}}}`, "sandbox.limits.connections"},
		{"URL as a host", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["https://a"]}}`, "sandbox.allow_hosts[0]"},
		{"number in other forms as a host", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","0x7f.1"]}}`, "sandbox.allow_hosts[1]"},
		{"path as a host", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","a.example/b"]}}`, "sandbox.allow_hosts[1]"},
		{"user as a host", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","u@a.example"]}}`, "sandbox.allow_hosts[1]"},
		{"all hosts", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","*"]}}`, "sandbox.allow_hosts[1]"},
		{"no port", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","a.example:"]}}`, "sandbox.allow_hosts[1]"},
		{"port zero", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","a.example:0"]}}`, "sandbox.allow_hosts[1]"},
		{"large port", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example","[::1]:70000"]}}`, "sandbox.allow_hosts[1]"},
		{"too many hosts", `{` + ok + `,"sandbox":{"network":"allowlist","allow_hosts":["a.example"` + strings.Repeat(`,"a.example"`, jobs.MaxHosts) + `]}}`, "sandbox.allow_hosts"},
		{"network for offline", `{` + ok + `,"sandbox":{"network":"full","preset":"offline"}}`, "sandbox.network"},
		{"container without image", `{` + ok + `,"isolation":"container"}`, "image"},
		{"too many attempts", `{` + ok + `,"retry":{"max_attempts":99}}`, "retry.max_attempts"},
		{"negative budget", `{` + ok + `,"budget":{"usd":-1}}`, "budget.usd"},
		{"artifact elsewhere", `{` + ok + `,"artifacts":["a","/etc/passwd"]}`, "artifacts[1]"},
		{"artifact above", `{` + ok + `,"artifacts":["out/../../x"]}`, "artifacts[0]"},
		{"artifact without a name", `{` + ok + `,"artifacts":[""]}`, "artifacts[0]"},
		{"artifact of git", `{` + ok + `,"artifacts":["sub/.GIT/config"]}`, "artifacts[0]"},
		{"no pattern", `{` + ok + `,"artifacts":["a","b[c"]}`, "artifacts[1]"},
		{"stars in a name", `{` + ok + `,"artifacts":["a**b"]}`, "artifacts[0]"},
		{"reports of no check", `{` + ok + `,"check_reports":["a.xml"]}`, "check_reports"},
		{"reports outside of the workspace", `{` + ok + `,"check":["true"],"check_reports":["../a.xml"]}`, "check_reports[0]"},
		{"blank instructions", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","instructions":" \n"}}`, "agent.instructions"},
		{"an escape in instructions", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","instructions":"a\u001b[31m"}}`, "agent.instructions"},
		{"long instructions", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","instructions":"` + strings.Repeat("a", jobs.MaxInstructions+1) + `"}}`, "agent.instructions"},
		{"our own server's name", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"penstock":{"command":"x"}}}}`, "agent.mcp_servers.penstock"},
		{"a name of a server that breaks out of a setting", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a={}\n":{"command":"x"}}}}`, "agent.mcp_servers"},
		{"a server without a program", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{}}}}`, "agent.mcp_servers.a.command"},
		{"an option as a server", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"-c"}}}}`, "agent.mcp_servers.a.command"},
		{"a server by a relative path", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"./x"}}}}`, "agent.mcp_servers.a.command"},
		{"NUL for a server", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"x","args":["","\u0000"]}}}}`, "agent.mcp_servers.a.args[1]"},
		{"preload for a server", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"x","env":{"LD_PRELOAD":"x"}}}}}`, "agent.mcp_servers.a.env.LD_PRELOAD"},
		{"a server here and elsewhere", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"x","url":"https://a.example"}}}}`, "agent.mcp_servers.a.url"},
		{"arguments for a server elsewhere", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"args":["x"],"url":"https://a.example"}}}}`, "agent.mcp_servers.a.url"},
		{"a server by a socket", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"unix:///run/s"}}}}`, "agent.mcp_servers.a.url"},
		{"a server without a host", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https:///mcp"}}}}`, "agent.mcp_servers.a.url"},
		{"a server by a number", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://0x7f000001/"}}}}`, "agent.mcp_servers.a.url"},
		{"a password in a server's URL", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://me:secret@a.example/"}}}}`, "agent.mcp_servers.a.url"},
		{"a token in a server's query", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/?api_key=1"}}}}`, "agent.mcp_servers.a.url"},
		{"a secret in the open", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"http://a.example/","headers":{"Authorization":"Bearer ${T}"}}}}}`, "agent.mcp_servers.a.url"},
		{"a secret in a job", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"Authorization":"Bearer 1"}}}}}`, "agent.mcp_servers.a.headers.Authorization"},
		{"a header with a line end", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"X-A":"a\u000d\u000aHost: b"}}}}}`, "agent.mcp_servers.a.headers.X-A"},
		{"a header with another name", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"X A":"a"}}}}}`, "agent.mcp_servers.a.headers.X A"},
		{"a header of the protocol", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"mcp-session-id":"a"}}}}}`, "agent.mcp_servers.a.headers.mcp-session-id"},
		{"another host in a header", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"host":"b"}}}}}`, "agent.mcp_servers.a.headers.host"},
		{"no name of a secret", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"Authorization":"${A:-b}"}}}}}`, "agent.mcp_servers.a.headers.Authorization"},
		{"half a secret", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","headers":{"Authorization":"${A"}}}}}`, "agent.mcp_servers.a.headers.Authorization"},
		{"a * within a tool", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"url":"https://a.example/","tools":["a*b"]}}}}`, "agent.mcp_servers.a.tools[0]"},
		{"tools of a program", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"x","tools":["a"]}}}}`, "agent.mcp_servers.a.tools"},
		{"headers for a program", `{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude","mcp_servers":{"a":{"command":"x","headers":{"X-A":"a"}}}}}`, "agent.mcp_servers.a.headers"},
		{"too many artifacts", `{` + ok + `,"artifacts":["a"` + strings.Repeat(`,"a"`, jobs.MaxPatterns) + `]}`, "artifacts"},
		{"foreign session", `{` + ok + `,"session":"*"}`, "session"},
		{"long key", `{` + ok + `,"key":"` + strings.Repeat("k", 300) + `"}`, "key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jobs.Decode([]byte(tt.json))
			invalid, ok := errors.AsType[*jobs.InvalidError](err)
			if !ok {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			named := slices.ContainsFunc(invalid.Fields, func(f jobs.FieldError) bool { return f.Field == tt.field })
			if !named {
				t.Errorf("got %v, want the field %q named", err, tt.field)
			}
		})
	}
}

func TestDecodeReportsEverythingAtOnce(t *testing.T) {
	_, err := jobs.Decode([]byte(`{"queue":"A","priority":"x","agent":{"name":"command"}}`))
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if !ok || len(invalid.Fields) < 4 {
		t.Errorf("got %v, want queue, priority, agent.command and repo.url named", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(fullJob))
	f.Add([]byte(`{"prompt":"p","repo":{"url":"/r"},"agent":{"name":"claude"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		job, err := jobs.Decode(data)
		if err != nil {
			if _, ok := errors.AsType[*jobs.InvalidError](err); !ok {
				t.Fatalf("%q: %T is not an InvalidError", data, err)
			}
			return
		}
		again, err := json.Marshal(job)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Decode(again); err != nil && len(again) <= jobs.MaxJobBytes {
			t.Fatalf("accepted %q, refused what it became: %v", data, err)
		}
	})
}

func TestBytes(t *testing.T) {
	tests := []struct {
		text string
		want jobs.Bytes
		out  string
	}{
		{"2GiB", 2 << 30, "2GiB"}, {"512 MiB", 512 << 20, "512MiB"}, {"1.5KiB", 1536, "1536B"},
		{"10GB", 10e9, "10GB"}, {"4096", 4096, "4KiB"}, {"7B", 7, "7B"}, {"0", 0, "0B"},
	}
	for _, tt := range tests {
		got, err := jobs.ParseBytes(tt.text)
		if err != nil || got != tt.want || got.String() != tt.out {
			t.Errorf("ParseBytes(%q): got %d (%s), %v; want %d (%s)", tt.text, got, got, err, tt.want, tt.out)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "1e30", "NaN", "2 gib", "0x10"} {
		if got, err := jobs.ParseBytes(bad); err == nil {
			t.Errorf("ParseBytes(%q): got %d, want an error", bad, got)
		}
	}
}

// An error names a bound in the unit that its field is written in.
func TestBoundsAreReportedInTheirUnits(t *testing.T) {
	for field, want := range map[string]string{
		`"timeout":"-5s"`:                                 `timeout: -5s is not between 1s and 720h0m0s`,
		`"timeout":"1ms"`:                                 `timeout: 1ms is not between 1s and 720h0m0s`,
		`"idle_timeout":"1000h"`:                          `idle_timeout: 1000h0m0s is not between 1s and 720h0m0s`,
		`"ask":{"park_after":"-1m"}`:                      `ask.park_after: -1m0s is not between 1s and 720h0m0s`,
		`"timeout":30`:                                    `timeout: is a number, wants a duration`,
		`"timeout":"30"`:                                  `"30" is not a duration: write a number and a unit`,
		`"sandbox":{"limits":{"memory":"1MiB"}}`:          `sandbox.limits.memory: 1MiB is not between 16MiB and 1024TiB`,
		`"sandbox":{"limits":{"pids":1}}`:                 `sandbox.limits.pids: 1 is not between 4 and 1048576`,
		`"sandbox":{"limits":{"disk":true}}`:              `sandbox.limits.disk: `,
		`"retry":{"max_attempts":-1}`:                     `retry.max_attempts: -1 is not between 1 and `,
		`"agent":{"name":"claude","max_turns":"ten"}`:     `agent.max_turns: is a string, wants a whole number`,
		`"agent":{"name":"claude","max_turns":999999999}`: `agent.max_turns: 999999999 is not between 0 and 10000`,
	} {
		text := `{"prompt":"p","repo":{"url":"/r"},` + field + `}`
		if !strings.Contains(field, `"agent"`) {
			text = `{"agent":{"name":"claude"},` + text[1:]
		}
		_, err := jobs.Decode([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", field, err, want)
		}
	}
}

// Headers of MCP servers get the values of secrets, whose names the job tells.
func TestHeadersWithSecrets(t *testing.T) {
	far := jobs.MCPServer{URL: "https://tickets.example/mcp", Headers: map[string]string{"Authorization": "Bearer ${B}", "X-Two": "${A}-${B} $A"}, Tools: []string{"search_*", "read"}}
	job := jobs.Job{Agent: jobs.Agent{MCPServers: map[string]jobs.MCPServer{"far": far, "near": {Command: "sh"}}}}
	if got := job.HeaderSecrets(); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("got %v", got)
	}
	header := far.Header(func(name string) string { return "<" + name + ">" })
	if header["Authorization"] != "Bearer <B>" || header["X-Two"] != "<A>-<B> $A" {
		t.Errorf("got %v", header)
	}
	for url, want := range map[string]string{"https://a.example/x": "a.example:443", "http://a.example": "a.example:80", "https://[::1]:8443/": "[::1]:8443", "": ""} {
		if got := (jobs.MCPServer{URL: url}).Host(); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
	for tool, want := range map[string]bool{"read": true, "search_": true, "search_all": true, "Read": false, "read2": false, "": false} {
		if far.MayCall(tool) != want {
			t.Errorf("%q: got %v", tool, !want)
		}
	}
	if !(jobs.MCPServer{}).MayCall("any") {
		t.Error("a server without a list refuses a tool")
	}
}
