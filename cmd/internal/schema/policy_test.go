package schema

import (
	"os"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/worker/policy"
)

// What the schema accepts, policies accept, and the other way round.
func TestPolicies(t *testing.T) {
	r := resolved(t, For, "policy")
	for text, want := range map[string]bool{
		`{}`: true, documented(t): true,
		"read: [//opt/x, /x, ~/x, ./x]": true, "read: [x]": false, "write: x": false, "raed: [//x]": false,
		"preset: browser": true, "preset: lax": false, "network: full": true, "network: open": false,
		"modes: [none, worktree, container]": true, "modes: [branch]": false, "backends: [bwrap, none]": true, "backends: [auto]": false, "deliver: [patch, branch]": true, "deliver: [push]": false,
		"limits: {memory: 2GiB, disk: 1048576, output_rate: 1 MiB, cpu_weight: 10000}": true,
		"limits: {memory: 10GB, disk: 1.5GiB}":                                         true, "limits: {memory: lots}": false, "limits: {memory: 10 gb}": false, "limits: {memory: 0}": false, "limits: {cpu_weight: 10001}": false, "limits: {pids: 4}": false, "limits: {mem: 1GiB}": false,
		"env: {CI: '1'}": true, "hosts: [registry.example]": true, "weaker: [cpu]": true,
	} {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(v); (err == nil) != want {
			t.Errorf("%s: the schema says %v, want ok %v", text, err, want)
		}
		if _, err := policy.Parse("/p.yaml", []byte(text)); (err == nil) != want {
			t.Errorf("%s: policies say %v, want ok %v", text, err, want)
		}
	}
}

// documented is the complete example of the documentation.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(# policy.yaml\n.*?)```").FindSubmatch(text)
	if example == nil {
		t.Fatal("docs/reference/policies.md has no example of a policy")
	}
	return string(example[1])
}
