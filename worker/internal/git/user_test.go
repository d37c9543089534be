package git

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func userRepo(t *testing.T, settings ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	run("init", "-q", dir)
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "|")
		run("-C", dir, "config", name, value)
	}
	return dir
}

// Hooks that the configuration defines are off by name, whatever the name is.
func TestQuiet(t *testing.T) {
	dir := userRepo(t, "hook.lint.command|./lint", "hook.lint.event|post-checkout", "hook.a=b.c d.command|x", "hook.a=b.c d.enabled|true")
	quiet, err := Repo{Dir: filepath.Join(dir, ".git")}.Quiet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lint", "a=b.c d"} {
		if got, err := quiet.Output(t.Context(), "config", "--type=bool", "--get", "hook."+name+".enabled"); err != nil || got != "false" {
			t.Errorf("hook %s is enabled: %q, %v", name, got, err)
		}
	}
	plain := userRepo(t)
	if _, err := (Repo{Dir: filepath.Join(plain, ".git")}).Quiet(t.Context()); err != nil {
		t.Errorf("a repository without hooks: %v", err)
	}
}

// Of a user's settings those arrive that say how files are written.
func TestLocate(t *testing.T) {
	dir := userRepo(t, "core.autocrlf|input", "core.eol|crlf", "core.sshCommand|x", "filter.x.smudge|y", "core.attributesFile|~/attrs")
	sub := filepath.Join(dir, "a/b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/home/x", "GIT_DIR=/nowhere")
	p, err := Locate(t.Context(), sub, env)
	if err != nil || p.Top != dir || p.Dir != filepath.Join(dir, ".git") || p.IDLen != 40 || p.Attributes != "/home/x/attrs" {
		t.Errorf("got %+v, %v", p, err)
	}
	if !slices.Contains(p.Plain, "core.autocrlf=input") || !slices.Contains(p.Plain, "core.eol=crlf") || strings.Contains(strings.Join(p.Plain, " "), "ssh") {
		t.Errorf("settings %q", p.Plain)
	}
	if _, err := Locate(t.Context(), t.TempDir(), env); !errors.Is(err, ErrNoRepository) {
		t.Errorf("outside of a repository: %v", err)
	}
	if _, err := Locate(t.Context(), filepath.Join(dir, ".git"), env); err == nil || errors.Is(err, ErrNoRepository) {
		t.Errorf("in a git directory: %v", err)
	}
}

// A partial clone fetches what it lacks, by the program that its configuration
// names: not for us, whatever protocols it allows.
func TestNothingIsFetched(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	dir := userRepo(t, "remote.origin.url|ext::touch "+mark, "remote.origin.promisor|true", "core.repositoryFormatVersion|1",
		"extensions.partialClone|origin", "protocol.ext.allow|always", "protocol.allow|always")
	repo := Repo{Dir: filepath.Join(dir, ".git"), Env: []string{"GIT_NO_LAZY_FETCH=0"}} // as gits that do not know it
	if err := repo.Run(t.Context(), "cat-file", "-e", strings.Repeat("1", 40)); err == nil {
		t.Error("an object is there that nobody made")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the remote's program ran")
	}
}
