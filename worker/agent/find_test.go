package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) string {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	node := write("bin/node", "\x7fELF", 0o755)
	native := write("native/claude", "\x7fELF", 0o755)
	script := write("lib/node_modules/@a/claude/cli.js", "#!/usr/bin/env -S node --max-old-space-size=4096\nx", 0o755)
	plain := write("plain/claude", "not executable", 0o644)
	if err := os.Symlink(script, filepath.Join(dir, "bin/claude")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")

	t.Chdir(dir)
	write("relative/claude", "", 0o755)
	p, err := builtin.Agents(agent.Config{Path: "relative:" + bin}).Find("claude")
	if err != nil || !slices.Equal(p.Args, []string{node, "--max-old-space-size=4096", script}) ||
		!slices.Equal(p.Mounts, []string{node, filepath.Join(dir, "lib/node_modules")}) {
		t.Errorf("script: %+v, err %v", p, err)
	}
	p, err = builtin.Agents(agent.Config{Path: bin, Programs: map[string]string{"claude": native}}).Find("claude")
	if err != nil || !slices.Equal(p.Args, []string{native}) || !slices.Equal(p.Mounts, []string{native}) {
		t.Errorf("native: %+v, err %v", p, err)
	}
	if p, err := builtin.Agents(agent.Config{}).Find("command"); err != nil || len(p.Args) != 0 {
		t.Errorf("command: %+v, err %v", p, err)
	}
	for name, cfg := range map[string]agent.Config{
		"nowhere":        {Path: dir},
		"no interpreter": {Programs: map[string]string{"claude": script}},
		"not executable": {Programs: map[string]string{"claude": plain}},
		"directory":      {Programs: map[string]string{"claude": dir}},
	} {
		_, err := builtin.Agents(cfg).Find("claude")
		if missing, ok := errors.AsType[*agent.MissingError](err); !ok || missing.Agent != "claude" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The native program in a package beside the script is started by itself.
func TestFindNativeBesideScript(t *testing.T) {
	dir := t.TempDir()
	native := filepath.Join(dir, "@o/codex-linux-x64/vendor/x86_64/bin/codex")
	script := filepath.Join(dir, "@o/codex/bin/codex.js")
	for _, path := range []string{native, script} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	agents := builtin.Agents(agent.Config{Programs: map[string]string{"codex": script}})
	p, err := agents.Find("codex")
	if err != nil || !slices.Equal(p.Args, []string{native}) || !slices.Equal(p.Mounts, []string{filepath.Join(dir, "@o/codex-linux-x64/vendor/x86_64")}) {
		t.Errorf("%+v, err %v", p, err)
	}
	if err := os.Remove(native); err != nil {
		t.Fatal(err)
	}
	if p, err := agents.Find("codex"); err != nil || p.Args[len(p.Args)-1] != script {
		t.Errorf("without it: %+v, err %v", p, err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "claude")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$SECRET\" ] && exit 1\necho \"2.1.329 (Claude Code)\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET", "x")
	p, err := builtin.Agents(agent.Config{Path: dir}).Check(t.Context(), "claude")
	if err != nil || p.Version != "2.1.329" {
		t.Errorf("version %q, err %v", p.Version, err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho broken >&2; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := builtin.Agents(agent.Config{Path: dir}).Check(t.Context(), "claude"); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
}

// An agent that does not say its version in time ends with what it has started.
func TestCheckLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	started := filepath.Join(dir, "started")
	script := fmt.Sprintf("#!/bin/sh\n(while :; do mkdir -p \"$HOME/.cache\"; echo $$ >%s; sleep 0.01; done) &\nwait\n", started)
	if err := os.WriteFile(filepath.Join(dir, "claude"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		slowtest.Eventually(time.Minute, time.Millisecond, func() bool { _, err := os.Stat(started); return err == nil })
		cancel()
	}()
	if _, err := builtin.Agents(agent.Config{Path: dir + ":/usr/bin:/bin"}).Check(ctx, "claude"); err == nil {
		t.Fatal("it has said its version")
	}
	if err := os.Remove(started); err != nil {
		t.Fatal(err)
	}
	if slowtest.Eventually(200*time.Millisecond, time.Millisecond, func() bool { _, err := os.Stat(started); return err == nil }) {
		t.Error("a child of the agent runs on")
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// The directory of a script may be a user's home: only packages have files beside it.
func TestAScriptAloneIsShownAlone(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "agent.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": {Protocol: "command", Command: []string{script}}}}).Find("mine")
	if err != nil || len(p.Mounts) != 2 || p.Mounts[1] != script {
		t.Errorf("%+v, err %v", p, err)
	}
}
