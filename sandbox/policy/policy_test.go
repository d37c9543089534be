package policy

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

const example = `
read:
  - //opt/node
  - /tools
  - ~/.cache/*
write: [./out]
hosts: [registry.example, "*.cdn.example:443"]
env: {CI: "1", HOME: /elsewhere}
preset: debug
network: allowlist
limits: {memory: 2GiB, cpus: 1.5, pids: 100, tmp: 1048576, cpu_weight: 50, disk: 10GiB, inodes: 100000, output_rate: 1MiB}
backends: [bwrap]
weaker: [cpu]
`

func TestApply(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"policy/tools", "home/.cache/a", "home/.cache/b", "cwd/out"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Parse(filepath.Join(root, "policy/penstock.yaml"), []byte(strings.Replace(example, "//opt/node", "//usr/bin", 1)))
	if err != nil {
		t.Fatal(err)
	}
	base := sandbox.Spec{Args: []string{"true"}, Env: []string{"HOME=/home/agent"}, Limits: sandbox.Limits{PIDs: 50}}
	got, err := p.Apply(base, Where{Home: filepath.Join(root, "home"), Dir: filepath.Join(root, "cwd")})
	if err != nil {
		t.Fatal(err)
	}
	mount := func(path string, writable bool) sandbox.Mount {
		return sandbox.Mount{Source: path, Target: path, Writable: writable}
	}
	if want := []sandbox.Mount{
		mount("/usr/bin", false), mount(root+"/policy/tools", false), mount(root+"/home/.cache/a", false),
		mount(root+"/home/.cache/b", false), mount(root+"/cwd/out", true),
	}; !reflect.DeepEqual(got.Mounts, want) {
		t.Errorf("got mounts %v, want %v", got.Mounts, want)
	}
	if want := []string{"CI=1", "HOME=/home/agent"}; !slices.Equal(got.Env, want) {
		t.Errorf("got environment %q, want %q: what the job set stays", got.Env, want)
	}
	if want := (sandbox.Limits{Memory: 2 << 30, CPUs: 1.5, PIDs: 50, TmpSize: 1 << 20, CPUWeight: 50, Disk: 10 << 30, Inodes: 100_000, OutputRate: 1 << 20}); got.Limits != want || got.Preset != sandbox.PresetDebug {
		t.Errorf("got %+v and preset %q, want %+v", got.Limits, got.Preset, want)
	}
	if len(base.Mounts) != 0 || base.Limits.Memory != 0 {
		t.Errorf("the original changed: %+v", base)
	}
}

func TestPermitsReportsEverything(t *testing.T) {
	p, err := Parse("/etc/penstock/policy.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	good := Request{Backend: "auto", Network: "none", Limits: sandbox.Limits{Memory: 2 << 30, CPUs: 1}, Hosts: []string{"registry.example:443", "a.cdn.example:443"}}
	if err := p.Permits(good); err != nil {
		t.Errorf("got %v for what is permitted", err)
	}
	err = p.Permits(Request{
		Backend: "none", Network: "full", Hosts: []string{"registry.example", "evil.example", "registry.example:22"},
		Limits: sandbox.Limits{Memory: 3 << 30, CPUs: 2, PIDs: 101, CPUWeight: 51, Disk: 11 << 30, Inodes: 100_001, OutputRate: 2 << 20},
	})
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	var fields []string
	for _, d := range denied.Denials {
		fields = append(fields, d.Field)
		if !strings.Contains(err.Error(), d.String()) {
			t.Errorf("%v is not in %v", d, err)
		}
	}
	if want := []string{
		"backends", "network", "hosts", "hosts", "limits.memory", "limits.cpus", "limits.pids", "limits.cpu_weight", "limits.disk",
		"limits.inodes", "limits.output_rate",
	}; !slices.Equal(fields, want) {
		t.Errorf("got %q, want %q", fields, want)
	}
	for _, words := range []string{
		"policy /etc/penstock/policy.yaml: backends: none is not permitted; permitted is bwrap",
		"limits.memory: 3GiB is not permitted; permitted is 2GiB", "hosts: evil.example is not permitted",
	} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not in %v", words, err)
		}
	}
	if err := (Policy{}).Permits(Request{Backend: "none", Network: "full"}); err != nil {
		t.Errorf("the zero value denies: %v", err)
	}
}

// What the way out may carry is bounded, and filled in, like the limits of a jail;
// and it cannot be bounded where there is no way out to count on.
func TestTheWayOutIsBounded(t *testing.T) {
	p, err := Parse("/p.yaml", []byte("limits: {traffic: 1GiB, connections: 8}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Limits.FillBudget(Budget{Connections: 4}); got != (Budget{Traffic: 1 << 30, Connections: 4}) {
		t.Errorf("filled in as %+v", got)
	}
	for _, c := range []struct {
		request Request
		want    string
	}{
		{Request{Network: "none"}, ""},
		{Request{Network: "allowlist", Budget: Budget{Traffic: 1 << 30, Connections: 8}}, ""},
		{Request{Network: "allowlist", Budget: Budget{Traffic: 2 << 30, Connections: 9}}, "limits.traffic: 2GiB is not permitted; permitted is 1GiB; " +
			"limits.connections: 9 is not permitted; permitted is 8"},
		{Request{Network: "full"}, "network: full is not permitted; permitted is allowlist, where limits.traffic holds"},
	} {
		err := p.Permits(c.request)
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.request, err, c.want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"raed: [//a]":                    "raed",
		"read: [relative]":               "read[0]",
		"write: [//a, //../b]":           "write[1]",
		"read: [~/../x]":                 "read[0]",
		"read: [./]":                     "read[0]",
		"read: ['//a[']":                 "read[0]",
		"modes: [worktree]":              "modes", // of a pool
		"backends: [bubblewrap]":         "backends",
		"preset: lax":                    "preset",
		"network: open":                  "network",
		"limits: {memory: lots}":         "line 1",
		"limits: {memory: -1}":           "line 1",
		"limits: {pids: -1}":             "limits",
		"limits: {connections: -1}":      "limits.connections",
		"limits: {connections: 9999}":    "limits.connections",
		"env: {'A=B': x}":                "env",
		"limits: {memory: 1KiB}":         "limits",
		"limits: {cpu_weight: 10001}":    "limits",
		"hosts: ['http://a/']":           "hosts",
		"hosts: [a]\n---\nnetwork: none": "document",
		"network: none\nnetwork: full":   "network",
	} {
		if _, err := Parse("/p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/p.yaml") {
			t.Errorf("%q: got %v, want the file and %q in it", text, err, want)
		}
	}
	p, err := Parse("/p.yaml", []byte(`{"read": ["//nowhere/at/all"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(sandbox.Spec{Args: []string{"true"}}, Where{}); err == nil || !strings.Contains(err.Error(), "/nowhere/at/all does not exist") {
		t.Errorf("got %v", err)
	}
	if _, err := Parse("/p.yaml", nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"//opt", "/x", "~/a/b*", "./x", "//../etc", "~", "/./../x", "//a/../../b", "./a\nb", "/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w := Where{Home: "/h", Dir: "/d", file: "/f/p"}
		path, err := Pattern(s).path(w)
		if err != nil {
			return
		}
		base := map[bool]string{true: "/", false: map[byte]string{'/': "/f/", '~': "/h/", '.': "/d/"}[s[0]]}[strings.HasPrefix(s, "//")]
		if !strings.HasPrefix(path, base) || filepath.Clean(path) != path {
			t.Errorf("%q leads to %q, outside of %s", s, path, base)
		}
	})
}
