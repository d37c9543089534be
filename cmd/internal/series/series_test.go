package series

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/filelock"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/checkout"
)

// childOf has the test binary apply the patches to a work tree, as the command does.
const childOf = "PENSTOCK_TEST_SERIES_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childOf); dir != "" {
		if err := apply(context.Background(), dir, true); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// The patches of three jobs, by name: the first two do not meet, the third meets the first.
var changes = []struct{ name, script string }{
	{"first", "sed -i 's/^line 2$/line two/' text; echo fresh > fresh; echo again >> log"},
	{"second", "sed -i 's/^line 18$/line eighteen/' text; rm gone; printf 'a\\0b' > binary"},
	{"third", "sed -i 's/^line 2$/line 2 of the third/; s/^line 10$/line ten/' text; echo new > new"},
}

// tree makes a repository with the patches beside it, and returns its work tree.
func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	run(t, ".", "git", "init", "-q", "-b", "main", dir)
	run(t, dir, "sh", "-c", "for i in $(seq 20); do echo line $i; done > text; echo gone > gone; echo one > log; git add .; git commit -qm base")
	for _, c := range changes {
		run(t, dir, "sh", "-c", c.script+"; git add -A; git diff --cached --binary --full-index > ../"+c.name+".patch; git reset -q --hard")
	}
	return dir
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func steps(names ...string) (list []Step) {
	for _, name := range names {
		list = append(list, Step{Job: name, State: Waiting})
	}
	return list
}

func source(dir string) Source {
	return func(_ context.Context, s Step) ([]byte, error) {
		return os.ReadFile(filepath.Join(filepath.Dir(dir), s.Job+".patch"))
	}
}

// apply begins or continues the series of the first two patches.
func apply(ctx context.Context, dir string, wait bool) error {
	tree, err := checkout.Open(ctx, dir, os.Environ())
	if err != nil {
		return err
	}
	s, err := Begin(tree, Plan{Steps: steps("first", "second")})
	if errors.Is(err, ErrUnderWay) {
		s, err = Open(tree)
	}
	if _, held := errors.AsType[*filelock.HeldError](err); held && wait {
		// A git that outlives its killed parent has the lock, and so has, for a moment, every
		// process that another test starts.
		if err = free(filepath.Join(dir, ".git", lockName)); err == nil {
			return apply(ctx, dir, wait)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(s.Run(ctx, source(dir), func(Step) {}), s.Close())
}

// free waits until a file is not locked.
func free(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_EX), f.Close())
}

// state is what a person sees of the work tree and the index.
func state(t *testing.T, dir string) string {
	t.Helper()
	return run(t, dir, "sh", "-c", "git status --porcelain; git diff; git diff --cached --binary; cat text log; ls .git | grep penstock-apply.json || true")
}

// However a kill -9 ends the program around a merge, the patches are in once when it goes on.
func TestAKillLosesNoPatchAndAppliesNoneTwice(t *testing.T) {
	t.Parallel()
	whole := tree(t)
	if err := apply(t.Context(), whole, true); err != nil {
		t.Fatal(err)
	}
	want := state(t, whole)
	if !strings.Contains(want, "line two") || !strings.Contains(want, "line eighteen") {
		t.Fatalf("the patches are not applied:\n%s", want)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for name, then := range map[string]string{
		"before": "kill -9 $PPID; exit",
		"partly": `cp "$GIT_INDEX_FILE" $0.index; REAL "$@"; mv $0.index "$GIT_INDEX_FILE"; kill -9 $PPID; exit`,
		"torn":   `cp "$GIT_INDEX_FILE" $0.index; REAL "$@"; mv $0.index "$GIT_INDEX_FILE"; head -c 20 text > $0.text; cat $0.text > text; kill -9 $PPID; exit`,
		"after":  `REAL "$@"; kill -9 $PPID; exit`,
	} {
		for _, nth := range []string{"1", "2"} {
			t.Run(name+nth, func(t *testing.T) {
				t.Parallel()
				dir, bin := tree(t), t.TempDir()
				script := "#!/bin/sh\ncase \"$*\" in *--cached*) ;; *' --3way '*) echo >> $0.count; [ $(wc -l < $0.count) = " + nth + " ] && { " +
					strings.ReplaceAll(then, "REAL", git) + "; } ;; esac\nexec " + git + " \"$@\"\n"
				if err := exectest.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
				child := exec.Command(os.Args[0])
				child.Env = append(os.Environ(), childOf+"="+dir, "PATH="+bin+":"+os.Getenv("PATH"))
				if out, err := child.CombinedOutput(); err == nil || child.ProcessState.ExitCode() != -1 {
					t.Fatalf("it was not killed: %v\n%s", err, out)
				}
				if _, err := os.Stat(filepath.Join(dir, ".git", planName)); err != nil {
					t.Error(err)
				}
				if err := apply(t.Context(), dir, true); err != nil {
					t.Fatal(err)
				}
				if got := state(t, dir); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// At a conflict a series stops. It goes on when a person has merged, and Skip takes back what
// the patch has changed, and only that.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			t.Parallel()
			dir := tree(t)
			tree, err := checkout.Open(t.Context(), dir, os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			s, err := Begin(tree, Plan{Steps: steps("first", "third", "second")})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 { // the second time it says the same
				stop, stopped := errors.AsType[*StopError](s.Run(t.Context(), source(dir), func(Step) {}))
				if !stopped || stop.Err != nil || stop.Step.Job != "third" || strings.Join(stop.Step.Conflicts, " ") != "text" {
					t.Fatalf("got %v, want it to stop at the conflict", stop)
				}
			}
			if skip {
				step, saved, err := s.Skip(t.Context())
				if err != nil || step.Job != "third" || len(saved) != 2 || !strings.HasSuffix(saved[1], " text") {
					t.Fatalf("got %v, %v, %v", step, saved, err)
				}
				if text := run(t, dir, "git", "cat-file", "-p", strings.Fields(saved[1])[0]); !strings.Contains(text, "<<<<<<<") {
					t.Errorf("the contents that were replaced are %q", text)
				}
			} else {
				run(t, dir, "sh", "-c", "sed -i '/^<<<<<<</d; /^|||||||/,/^>>>>>>>/d; /^=======/,/^>>>>>>>/d' text; git add text")
			}
			if err := s.Run(t.Context(), source(dir), func(Step) {}); err != nil {
				t.Fatal(err)
			}
			got := state(t, dir)
			for text, want := range map[string]bool{"line two": true, "line ten": !skip, "+new": !skip, "line eighteen": true, "<<<<": false, planName: false} {
				if strings.Contains(got, text) != want {
					t.Errorf("%q: want %v in\n%s", text, want, got)
				}
			}
		})
	}
}

// Files with changes of the user's stop a series before anything is written, and stay.
func TestChangesOfTheUserStay(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"echo mine >> text", "echo mine > fresh"} {
		dir := tree(t)
		run(t, dir, "sh", "-c", change)
		before := run(t, dir, "sh", "-c", "git status --porcelain; cat text; cat fresh || true")
		for range 2 {
			err := apply(t.Context(), dir, true)
			if stop, stopped := errors.AsType[*StopError](err); !stopped || stop.Err == nil || stop.Step.Job != "first" {
				t.Fatalf("%s: got %v, want it to stop", change, err)
			}
		}
		if after := run(t, dir, "sh", "-c", "git status --porcelain; cat text; cat fresh || true"); after != before {
			t.Errorf("%s: got\n%s\nwant\n%s", change, after, before)
		}
	}
}

// A rehearsal says what would become of each patch, and changes nothing; a patch that leads
// out of the work tree is refused.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	for name, path := range map[string]string{"outside": "../outside", "inside": ".git/config"} {
		patch := fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nnew file mode 100644\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+x\n", path)
		if err := os.WriteFile(filepath.Join(dir, "..", name+".patch"), []byte(patch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := state(t, dir)
	tree, err := checkout.Open(t.Context(), dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	list := steps("first", "third", "outside", "inside", "second")
	if err := Rehearse(t.Context(), tree, list, source(dir)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, string(s.State))
	}
	if want := "applies conflict refused refused applies"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s: %+v", got, want, list)
	}
	if after := state(t, dir); after != before {
		t.Errorf("it changed\n%s\nto\n%s", before, after)
	}
}

// Two processes do not work on one tree, and a patch that was changed is not applied.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	dir := tree(t)
	tree, err := checkout.Open(t.Context(), dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Begin(tree, Plan{Steps: []Step{{Job: "first", SHA256: "00", State: Waiting}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context(), dir, false); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second one: %v", err)
	}
	if err := s.Run(t.Context(), source(dir), func(Step) {}); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("got %v, want that the patch was changed", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
