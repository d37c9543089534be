package main

import (
	"regexp"
	"strings"
	"testing"
)

// goWords are what only programmers of Go, or of its libraries, understand.
var goWords = regexp.MustCompile(`Go (struct|value)|unmarshal|strconv\.|!!\w|\b(cli|jobs|policy|agent|time|input|json|env)\.[A-Z]\w+|parsing time|\bjson: (cannot|unknown)|env: |\[\]string|float64|int64|map\[`)

// What is malformed is refused in the words of a user, at each door: no type or
// function of Go is in them, and what was written is.
func TestMalformedInputsAreNamedPlainly(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	try := func(name string, words []string, args ...string) {
		t.Helper()
		got := c.wants(2, words, args...)
		if found := goWords.FindString(got.err); found != "" {
			t.Errorf("%s: %q is no word for a user:\n%s", name, found, got.err)
		}
	}
	for job, field := range map[string]string{
		`[]`: "wants an object", `{"prompt":5}`: "prompt: is a number", `{"prompt":[1]}`: "prompt: is an array", `{"repo":"x"}`: "repo: wants an object",
		`{"run_at":"tomorrow"}`: "run_at: is not a time", `{"run_at":5}`: "run_at: is not a time", `{"timeout":"soon"}`: `timeout: "soon" is not a duration`,
		`{"timeout":5}`: "timeout: is a number", `{"sandbox":{"limits":{"memory":"x"}}}`: `memory: "x" is not a size`, `{"budget":{"usd":"1"}}`: "budget.usd: is a string",
		`{"files":[{"content":"%%%"}]}`: "files[0].content: is not base64", `{"issue":{"number":1.5}}`: "issue.number", `{"depends_on":"x"}`: "depends_on: wants a list",
		`{"prompt":`: "is not JSON",
	} {
		c.write("job.json", job)
		try("job", []string{field}, "submit", "--job", "job.json")
		if strings.HasPrefix(job, "{") && field != "is not JSON" {
			try("batch", []string{field}, "batch", "run", "job.json", "--agent", "claude")
		}
	}
	for settings, words := range map[string]string{
		"worker: 5": "is a number, wants a mapping", "worker: {slots: many}": "many is text, wants a whole number", "lease: soon": "soon is text, wants a duration",
		"lease: [1]": "is a list, wants a duration", "agents: [x]": "is a list, wants a mapping", "foo: 1": `"foo" is not a field`, "worker: {queues: 5}": "5 is a number, wants a list",
		"a: b: c": "mapping values are not allowed",
	} {
		c.write("settings.yaml", settings)
		try("settings", []string{"settings.yaml", words}, "--config", "settings.yaml", "version")
	}
	for policy, words := range map[string]string{
		"read: 5": "5 is a number, wants a list", "limits: {cpus: x}": "x is text, wants a number", "foo: 1": `"foo" is not a field`, "- x": "is a list, wants a mapping",
	} {
		c.write("policy.yaml", policy)
		try("policy", []string{"policy.yaml", words}, "sandbox", "run", "--policy", "policy.yaml", "--explain", "--", "true")
	}
	for flag, words := range map[string]string{
		"--max-turns=x": `"x" is not a whole number`, "--timeout=soon": `"soon" is not a duration`, "--timeout=5": `"5" is not a duration`, "--max-cost=x": `"x" is not a number`,
		"--max-tokens=1.5": `"1.5" is not a whole number`, "--interactive=maybe": `"maybe" is not true or false`, "--run-at=x": "neither a time", "--label=x": "is not NAME=VALUE",
	} {
		try("flag", []string{words}, "submit", "p", "--isolation", "none", "--agent", "claude", flag)
	}
	for variable, words := range map[string]string{
		"PENSTOCK_LEASE=soon": `"soon" is not a duration`, "PENSTOCK_WORKER_SLOTS=many": `"many" is not a whole number`, "PENSTOCK_WORKER_COMMIT_TRAILERS=maybe": `"maybe" is not true or false`,
	} {
		c.env = []string{variable}
		name, _, _ := strings.Cut(variable, "=")
		try("environment", []string{name, words}, "version")
	}
	c.env = nil
	c.write("issues.json", `[{"number":"x","title":"t"}]`)
	try("issues", []string{"issues.json:1: is not an issue"}, "batch", "run", "issues.json", "--agent", "claude")
	c.write("batch.yaml", "jobs:\n- prompt: [1]\n")
	try("yaml", []string{"batch.yaml:2", "prompt: is an array"}, "batch", "run", "batch.yaml", "--agent", "claude")
}
