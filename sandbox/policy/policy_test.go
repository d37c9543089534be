package policy

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
limits: {memory: 2GiB, cpus: 1.5, pids: 100, tmp: 1048576}
modes: [worktree, container]
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
	if want := (sandbox.Limits{Memory: 2 << 30, CPUs: 1.5, PIDs: 50, TmpSize: 1 << 20}); got.Limits != want || got.Preset != sandbox.PresetDebug {
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
	good := Request{Mode: "worktree", Backend: "auto", Network: "none", Limits: sandbox.Limits{Memory: 2 << 30, CPUs: 1}}
	if err := p.Permits(good); err != nil {
		t.Errorf("got %v for what is permitted", err)
	}
	err = p.Permits(Request{Mode: "none", Backend: "none", Network: "full", Limits: sandbox.Limits{Memory: 3 << 30, CPUs: 2, PIDs: 101}})
	for _, field := range []string{"modes", "backends", "network", "limits.memory", "limits.cpus", "limits.pids"} {
		if err == nil || !strings.Contains(err.Error(), "policy.yaml: "+field+":") {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if e, ok := errors.AsType[*DeniedError](err); !ok || e.Most != "worktree, container" {
		t.Errorf("got %+v", e)
	}
	if err := (Policy{}).Permits(Request{Mode: "none", Backend: "none", Network: "full"}); err != nil {
		t.Errorf("the zero value denies: %v", err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"raed: [//a]":            "raed",
		"read: [relative]":       "read[0]",
		"write: [//a, //../b]":   "write[1]",
		"read: [~/../x]":         "read[0]",
		"read: [./]":             "read[0]",
		"read: ['//a[']":         "read[0]",
		"preset: lax":            "preset",
		"network: open":          "network",
		"limits: {memory: lots}": "line 1",
		"limits: {memory: -1}":   "line 1",
		"limits: {pids: -1}":     "limits",
		"env: {'A=B': x}":        "env",
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

func TestViolationsAreKeptAndFound(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "violations.jsonl"))
	if got, err := s.Find(Query{}); err != nil || len(got) != 0 {
		t.Errorf("before the first: got %v, err %v", got, err)
	}
	start := time.Now().UTC()
	for i, v := range []Violation{
		{Label: "a.1", Kind: "host", What: "evil.example:443", Reason: "not-listed", Time: start.Add(-time.Hour)},
		{Label: "a.1", Kind: "limit", What: "memory"}, {Label: "b.1", Kind: "host", What: strings.Repeat("x", 10000)},
	} {
		if err := s.Add(v); err != nil {
			t.Fatal(i, err)
		}
	}
	for _, c := range []struct {
		q    Query
		want int
	}{{Query{}, 3}, {Query{Label: "a.1"}, 2}, {Query{Kind: "host"}, 2}, {Query{Label: "a.1", Kind: "host"}, 1}, {Query{Since: start}, 2}, {Query{Label: "c"}, 0}} {
		if got, err := s.Find(c.q); err != nil || len(got) != c.want {
			t.Errorf("%+v: got %d, err %v, want %d", c.q, len(got), err, c.want)
		}
	}
	if err := os.WriteFile(s.path, []byte(`{"label":"a`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Violation{Kind: "host"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Find(Query{}); err != nil || len(got) != 1 {
		t.Errorf("after a crash in the middle of a line: got %v, err %v, want what came later", got, err)
	}
}

func TestTheStoreIsBounded(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "v"))
	if err := os.WriteFile(s.path, make([]byte, MaxStore+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Add(Violation{Kind: "host"}); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(s.path); err != nil || st.Size() > 1000 {
		t.Errorf("got %v, err %v, want a small file", st.Size(), err)
	}
}
