package bwrap_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	sandboxtest.ServeRunner(&bwrap.Backend{}, nil)
	goleak.VerifyTestMain(m)
}

func TestAttacks(t *testing.T) { sandboxtest.Run(t, &bwrap.Backend{}) }

func TestAttacksWithoutPrivileges(t *testing.T) { sandboxtest.Unprivileged(t, "TestAttacks") }

func TestCompatible(t *testing.T) { sandboxtest.Compatible(t, &bwrap.Backend{}) }

func TestActivity(t *testing.T) { sandboxtest.Active(t, &bwrap.Backend{}, nil) }

// 1,000 jails are ended in every way, and none leaves anything.
func TestKill(t *testing.T) { sandboxtest.Kill(t, &bwrap.Backend{}, 84, nil) }

func TestKillOfAUser(t *testing.T) { sandboxtest.Unprivileged(t, "TestKillAFew") }

func TestKillAFew(t *testing.T) { sandboxtest.Kill(t, &bwrap.Backend{}, 4, nil) }

func TestRunnerKilled(t *testing.T) {
	for n := range 20 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			sandboxtest.RunnerKilled(t, &bwrap.Backend{}, false)
		})
	}
}

func TestRunnerOfAUserKilled(t *testing.T) { sandboxtest.Unprivileged(t, "TestRunnerKilled") }

// What the host's process list shows of a jail is neither its environment
// nor the agent's arguments.
func TestNothingSecretInTheMechanismsArguments(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	p, err := sandbox.Start(t.Context(), b, sandbox.Spec{
		Args: []string{"sleep", "1000"}, Env: []string{"PATH=/usr/bin:/bin", "TOKEN=t0ken-5a17"},
		Files: []sandbox.File{{Path: "/etc/t0ken-5a17", Data: []byte("t0ken-5a17")}},
		Label: "visible.1",
	}, sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	seen := 0
	for _, file := range []string{"cmdline", "environ"} {
		files, err := filepath.Glob("/proc/[0-9]*/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			c, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			if !strings.Contains(string(c), "penstock-jail=visible.1_") {
				continue // it ended, or is the agent itself
			}
			seen++
			if b, _ := os.ReadFile(f); strings.Contains(string(b), "t0ken-5a17") {
				t.Errorf("%s holds the secret", f)
			}
		}
	}
	if seen == 0 {
		t.Error("no process of the mechanism was found")
	}
}

// What /usr is shared with cannot get new directories, and a mount that
// would need one is named before anything starts.
func TestMountsThatCannotBe(t *testing.T) {
	b := &bwrap.Backend{Path: "/usr/bin/bwrap"}
	for _, c := range []struct {
		spec  sandbox.Spec
		field string
	}{
		{sandbox.Spec{Mounts: []sandbox.Mount{{Source: "/etc", Target: "/usr/nowhere"}}}, "Mounts[0].Target"},
		{sandbox.Spec{Mounts: []sandbox.Mount{{Source: "/nowhere", Target: "/opt/x"}}}, "Mounts[0].Source"},
		{sandbox.Spec{Workspace: "/nowhere"}, "Workspace"},
		{sandbox.Spec{Workspace: "/etc/passwd"}, "Workspace"},
		{sandbox.Spec{Home: "/proc/self/root"}, "Home"},
	} {
		c.spec.Args = []string{"true"}
		_, err := b.Command(c.spec)
		if e, ok := err.(*sandbox.FieldError); !ok || e.Field != c.field {
			t.Errorf("got %v, want an error of field %s", err, c.field)
		}
	}
}

// What bubblewrap says when it fails is in the error, and nothing is left.
func TestTheMechanismsOwnWordsAreInTheError(t *testing.T) {
	said := "setting up uid map: Permission denied"
	path := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho noise >&2; echo 'bwrap: "+said+"' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := (&bwrap.Backend{Path: path}).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), said) {
		t.Errorf("got %v, want %q in it", err, said)
	}
	_, err = (&bwrap.Backend{Path: "/nowhere/bwrap"}).Check(t.Context())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without bubblewrap: got %v", err)
	}
}

// A jail that is stopped before its program runs leaves nothing, whatever the
// moment.
func TestStopDuringTheStart(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	for n := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*400*time.Microsecond)
		label := fmt.Sprintf("start.%d.%d", os.Getpid(), n)
		p, err := sandbox.Start(ctx, b, sandbox.Spec{Args: []string{"sleep", "1000"}, Label: label}, sandbox.Streams{})
		if err == nil {
			_, err = p.Wait()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d: got %v", n, err)
		}
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if c, _ := os.ReadFile(f); strings.Contains(string(c), label+"_") {
				t.Errorf("after %d: %q is alive", n, c)
			}
		}
	}
}
