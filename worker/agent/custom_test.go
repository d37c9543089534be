package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestCustomValidate(t *testing.T) {
	for _, tt := range []struct {
		name, field string
		c           Custom
	}{
		{"mine", "", Custom{Protocol: "claude"}},
		{"mine", "", Custom{Protocol: "command", Command: []string{"run", "--all"}, API: "openai", Env: map[string]string{"A_1": "x"}}},
		{"mine", "agents.mine.protocol", Custom{}},
		{"mine", "agents.mine.protocol", Custom{Protocol: "clippy"}},
		{"claude", "agents.claude", Custom{Protocol: "claude"}},
		{"My agent", "agents.My agent", Custom{Protocol: "claude"}},
		{"mine", "agents.mine.command", Custom{Protocol: "command"}},
		{"mine", "agents.mine.command[0]", Custom{Protocol: "codex", Command: []string{"./codex"}}},
		{"mine", "agents.mine.command[1]", Custom{Protocol: "codex", Command: []string{"codex", "\x00"}}},
		{"mine", "agents.mine.api", Custom{Protocol: "claude", API: "openai"}},
		{"mine", "agents.mine.api", Custom{Protocol: "command", Command: []string{"x"}, API: "psychic"}},
		{"mine", "", Custom{Protocol: "acp", Command: []string{"x", "acp"}, API: "anthropic", Auth: "key"}},
		{"mine", "agents.mine.command", Custom{Protocol: "acp"}},
		{"mine", "agents.mine.auth", Custom{Protocol: "claude", Auth: "key"}},
		{"mine", "agents.mine.env", Custom{Protocol: "claude", Env: map[string]string{"A B": "x"}}},
		{"mine", "agents.mine.env.LD_PRELOAD", Custom{Protocol: "claude", Env: map[string]string{"LD_PRELOAD": "x"}}},
	} {
		got := ""
		if wrong, ok := errors.AsType[*jobs.FieldError](tt.c.Validate(tt.name)); ok {
			got = wrong.Field
		}
		if got != tt.field {
			t.Errorf("%s %+v: named %q, want %q", tt.name, tt.c, got, tt.field)
		}
	}
}

// An agent of a settings file is started as its protocol's own is, with its
// program, its arguments before those, and its variables.
func TestCustom(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "fork")
	if err := os.WriteFile(program, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	agents := New(Config{Path: dir, Custom: map[string]Custom{
		"mine":  {Protocol: "claude", Command: []string{"fork", "--careful"}, Env: map[string]string{"B": "2", "A": "1"}},
		"other": {Protocol: "codex"},
		"tool":  {Protocol: "command", Command: []string{program, "-x"}, API: "openai"},
	}})
	if !slices.Equal(agents.Names(), []string{"acp", "claude", "codex", "command", "gemini", "mine", "opencode", "other", "tool"}) {
		t.Errorf("known are %v", agents.Names())
	}
	start := func(name string, found bool) (Plan, About) {
		t.Helper()
		adapter, err := agents.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		l := launch(name)
		if found {
			if l.Program, err = agents.Find(name); err != nil {
				t.Fatal(err)
			}
		}
		p, err := adapter.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		return p, adapter.About()
	}
	p, about := start("mine", true)
	if !slices.Equal(p.Args[:3], []string{program, "--careful", "-p"}) || !slices.Equal(p.Mounts, []string{program}) {
		t.Errorf("plan %q, mounts %q", p.Args, p.Mounts)
	}
	if !slices.Equal(p.Env[len(p.Env)-2:], []string{"A=1", "B=2"}) {
		t.Errorf("environment %q", p.Env)
	}
	if about.Name != "mine" || about.API != "anthropic" || !about.Resume || about.Install != "" {
		t.Errorf("about %+v", about)
	}
	if p, _ := start("mine", false); !slices.Equal(p.Args[:3], []string{"fork", "--careful", "-p"}) {
		t.Errorf("in an image: %q", p.Args)
	}
	p, about = start("tool", true)
	if !slices.Equal(p.Args, []string{program, "-x"}) || about.API != "openai" || !slices.Contains(p.Env, "OPENAI_BASE_URL=http://127.0.0.1:3128/v1") {
		t.Errorf("plan %q %q", p.Args, p.Env)
	}
	if _, err := agents.Find("other"); err == nil {
		t.Error("a program was found that is not there")
	}
	if err := agents.Able(jobs.Job{Agent: jobs.Agent{Name: "other", MaxTurns: 3}}); err == nil {
		t.Error("an agent of protocol codex counts its turns")
	}
}

// The directory of a script may be a user's home: only packages have files beside it.
func TestAScriptAloneIsShownAlone(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "agent.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Custom: map[string]Custom{"mine": {Protocol: "command", Command: []string{script}}}}).Find("mine")
	if err != nil || len(p.Mounts) != 2 || p.Mounts[1] != script {
		t.Errorf("%+v, err %v", p, err)
	}
}
