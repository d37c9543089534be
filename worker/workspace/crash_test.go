package workspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// crashEnv tells the test binary to be a worker: "<directory>\n<repository>".
const crashEnv = "PENSTOCK_TEST_CRASH"

// crashChild makes and closes workspaces until it is killed.
func crashChild() {
	dir, repo, _ := strings.Cut(os.Getenv(crashEnv), "\n")
	cfg := Config{Dir: dir}
	if _, err := (&bwrap.Backend{}).Check(context.Background()); err == nil {
		cfg.Jail = &bwrap.Backend{}
	}
	s, err := Open(context.Background(), cfg)
	for n := 0; err == nil; n++ {
		err = crashOnce(s, fmt.Sprintf("job-%d.%d", os.Getpid(), n), repo)
	}
	fmt.Println(err)
	os.Exit(1)
}

func crashOnce(s *Spaces, id, repo string) error {
	ctx := context.Background()
	w, err := s.Prepare(ctx, Request{ID: id, Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	if err != nil {
		return err
	}
	_, _, err = w.Setup(ctx, fmt.Sprint("key", rand.IntN(3)), func(_ context.Context, in *Workspace) error {
		for _, name := range []string{"one", "two"} {
			if err := os.WriteFile(filepath.Join(in.Dir(), name), nil, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(w.Dir(), "new"), []byte("x\n"), 0o644)
	}
	if err == nil {
		err = salvageAll(ctx, w)
	}
	return errors.Join(err, w.Close())
}

func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	dir, repo := t.TempDir(), newRepo(t)
	other := openIn(t, dir, Limits{})
	other.cfg.Salvage = salvageAll
	held := prepare(t, other, "held.1", repo)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		// A new commit each time, so that a kill may hit fetch and build.
		sh(t, repo, "git commit -q --allow-empty -m more")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashEnv+"="+dir+"\n"+repo)
		var said strings.Builder
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed, and says so
		if said.Len() > 0 {
			t.Fatalf("seed %d: the worker failed: %s", seed, said.String())
		}
		sweepClean(t, other)
		// The next worker goes on as if nothing had been.
		w := prepare(t, other, "next.1", repo)
		if got := run(t, w.Dir(), "git", "rev-parse", "HEAD"); got != run(t, repo, "git", "rev-parse", "main") {
			t.Errorf("seed %d: got %s after a kill", seed, got)
		}
		run(t, w.Dir(), "git", "fsck")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	layers, err := filepath.Glob(filepath.Join(dir, "mirrors/*/bases/*/layers/key?"))
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		if names, err := disk.Names(filepath.Join(layer, "files")); err != nil || len(names) != 2 {
			t.Errorf("seed %d: layer %s has %q, err %v", seed, layer, names, err)
		}
	}
	t.Logf("%d layers", len(layers))
	src, err := other.access.Locate(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "/", "git", "--git-dir="+filepath.Join(dir, "mirrors", src.Key, "mirror.git"), "fsck", "--full")
	if got := run(t, held.Dir(), "git", "status", "--porcelain"); got != "" {
		t.Errorf("the workspace in use was harmed: %s", got)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}

// sweepClean sweeps until the git processes that outlived the worker, and
// still hold its locks, have gone. Only the workspace "held.1" may stay.
func sweepClean(t *testing.T, s *Spaces) {
	t.Helper()
	var names []string
	for deadline := time.Now().Add(slowtest.Limit(10 * time.Second)); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Fatalf("sweep: %v", err)
		}
		names = nil
		for _, pattern := range []string{"jobs/*", "locks/*", "trash/*", "mirrors/*/new-*", "mirrors/*/bases/*/layers/*.new"} {
			found, err := filepath.Glob(filepath.Join(s.cfg.Dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if filepath.Base(f) != "held.1" {
					names = append(names, f)
				}
			}
		}
		if len(names) == 0 {
			return
		}
	}
	t.Fatalf("left behind: %q", names)
}

// salvageAll is a store that takes everything.
func salvageAll(ctx context.Context, w *Workspace) error {
	change, err := w.Collect(ctx)
	if err != nil || change.Empty() {
		return err
	}
	return w.Saved(receipt(change))
}

func receipt(c Change) changes.Receipt {
	r := changes.Receipt{Patch: c.SHA256}
	if c.Bundle != "" {
		r.Bundle, _ = sumFile(c.Bundle) // no sum is a wrong one
	}
	return r
}

// orphan makes a workspace whose owner is dead after it has begun to work.
func orphan(t *testing.T, dir, repo string, isolation jobs.Isolation) {
	t.Helper()
	s := openIn(t, dir, Limits{})
	w, err := s.Prepare(t.Context(), Request{ID: "orphan.7", Repo: jobs.Repo{URL: repo}, Isolation: isolation})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, w.Dir(), "echo one > one; git add -A; git commit -qm one; echo two > two")
	// What the kernel does to a process that is killed.
	if err := errors.Join(w.lock.Release(), w.base.Release()); err != nil {
		t.Fatal(err)
	}
}

func TestWorkOfTheDeadIsSalvaged(t *testing.T) {
	for _, isolation := range []jobs.Isolation{jobs.IsolationWorktree, jobs.IsolationNone} {
		t.Run(string(isolation), func(t *testing.T) {
			jailed := openJailed(t, Limits{BaseAge: 1})
			repo := newRepo(t)
			orphan(t, jailed.cfg.Dir, repo, isolation)

			// A salvage that fails keeps everything, the base too.
			jailed.cfg.Salvage = func(context.Context, *Workspace) error { return errors.New("store is down") }
			for range 2 {
				swept, err := jailed.Sweep(t.Context())
				kept := swept.Kept["orphan.7"]
				if err != nil || kept == nil || !strings.Contains(kept.Error(), "store is down") || len(swept.Workspaces) > 0 || swept.Bases > 0 {
					t.Errorf("got %v, %v; want one workspace kept, and why", swept, err)
				}
			}
			var got []string
			var change Change
			jailed.cfg.Salvage = func(ctx context.Context, w *Workspace) (err error) {
				got = append(got, w.ID(), w.Base())
				if change, err = w.Collect(ctx); err != nil {
					return err
				}
				saved := filepath.Join(t.TempDir(), "patch")
				err = errors.Join(disk.CopyFile(saved, change.Patch), w.Saved(receipt(change)))
				change.Patch = saved
				return err
			}
			swept, err := jailed.Sweep(t.Context())
			if err != nil || len(swept.Workspaces) != 1 || swept.Bases != 1 {
				t.Errorf("got %v, %v; want one workspace and one base swept", swept, err)
			}
			if len(got) != 2 || got[0] != "orphan.7" || len(got[1]) != 40 {
				t.Errorf("salvaged %q, want orphan.7 and its base once", got)
			}
			if isolation == jobs.IsolationWorktree && change.Commits != 2 {
				t.Errorf("got %d commits, want 2; notes %q", change.Commits, change.Notes)
			}
			if text := patch(t, change); !strings.Contains(text, "+one") || !strings.Contains(text, "+two") {
				t.Errorf("got patch\n%s\nwant both files", text)
			}
			nothingLeft(t, jailed)
			if again, err := jailed.Sweep(t.Context()); err != nil || len(again.Workspaces) > 0 || len(got) != 2 {
				t.Errorf("a second sweep: got %v, %v", again, err)
			}
		})
	}
}

// TestCloseNeedsAReceipt: what was changed goes only with a receipt of it.
func TestCloseNeedsAReceipt(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Overlay, Clone} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			s, repo := openAs(t, strategy, Limits{}), newRepo(t)
			for _, c := range []struct {
				name string
				do   func(w *Workspace) error
				goes bool
			}{
				{"never shown", func(*Workspace) error { return nil }, true},
				{"changed", func(w *Workspace) error { act(t, w, "echo x > new"); return nil }, false},
				{"changed and collected", func(w *Workspace) error { act(t, w, "echo x > new"); collect(t, w); return nil }, false},
				{"unchanged and collected", func(w *Workspace) error { act(t, w, "true"); collect(t, w); return nil }, true},
				{"stored", func(w *Workspace) error { act(t, w, "echo x > new"); return w.Saved(receipt(collect(t, w))) }, true},
				{"stored, then changed", func(w *Workspace) error {
					act(t, w, "echo x > new")
					err := w.Saved(receipt(collect(t, w)))
					act(t, w, "echo y > new")
					return err
				}, false},
				{"stored, but not all of it", func(w *Workspace) error {
					act(t, w, "echo x > new; git add new; git commit -qm x")
					if err := w.Saved(changes.Receipt{Patch: collect(t, w).SHA256}); err == nil {
						t.Error("half a receipt was accepted")
					}
					return nil
				}, false},
			} {
				w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
				if err == nil {
					err = c.do(w)
				}
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				_, unsaved := errors.AsType[*UnsavedError](w.Close())
				_, err = os.Stat(s.homes.dir("job.1"))
				if unsaved == c.goes || (err == nil) != unsaved {
					t.Errorf("%s: refused %v, directory %v; want it to go: %v", c.name, unsaved, err, c.goes)
				}
				s.cfg.Salvage = salvageAll
				if swept, err := s.Sweep(t.Context()); err != nil || len(swept.Kept) > 0 || len(swept.Workspaces) == 1 == c.goes {
					t.Errorf("%s: swept %+v, %v", c.name, swept, err)
				}
				nothingLeft(t, s)
			}
		})
	}
}

func TestNothingToSalvage(t *testing.T) {
	s := open(t, Limits{})
	s.cfg.Salvage = func(_ context.Context, w *Workspace) error {
		return fmt.Errorf("asked to salvage %s, which was never used", w.ID())
	}
	write(t, s.homes.dir("half.1"), "workspace/README", "a kill in the middle of Prepare")
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
}

func TestSweepLeavesWhatIsInUse(t *testing.T) {
	s := open(t, Limits{BaseAge: 1}) // every base is old enough
	repo := newRepo(t)
	w := prepare(t, s, "job.1", repo)
	second := openIn(t, s.cfg.Dir, Limits{BaseAge: 1})
	for _, sweeper := range []*Spaces{s, second} {
		swept, err := sweeper.Sweep(t.Context())
		if err != nil || len(swept.Workspaces) > 0 || swept.Bases > 0 {
			t.Errorf("got %v, %v; want nothing swept", swept, err)
		}
	}
	write(t, w.Dir(), "new", "x\n")
	if got := collect(t, w); got.Files != 1 {
		t.Errorf("got %d files after a sweep, want 1", got.Files)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	swept, err := second.Sweep(t.Context())
	if err != nil || swept.Bases != 1 {
		t.Errorf("got %v, %v; want one base evicted", swept, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/bases/*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// The mirror was looked at while it still had that base.
	if _, err := second.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/mirror.git")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w = prepare(t, s, "job.2", repo) // and all comes back
	run(t, w.Dir(), "git", "fsck")
	w.Close()
}

func TestManySweepersAtOnce(t *testing.T) {
	s := open(t, Limits{})
	for i := range 50 {
		write(t, s.homes.dir(fmt.Sprintf("gone.%d", i)), "workspace/a/b/c", "x")
	}
	failed := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := s.Sweep(context.Background())
			failed <- err
		}()
	}
	for range 4 {
		if err := <-failed; err != nil {
			t.Errorf("sweep: %v", err)
		}
	}
	nothingLeft(t, s)
}

// As an unprivileged user, to whom modes apply.
func TestUnreadableTreesAsUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user; as a user, TestCloseRemovesEverything does the same")
	}
	dir, err := os.MkdirTemp("", "penstock-user-") //nolint:usetesting // another user must get into it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	data, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(exectest.WriteFile(binary, data, 0o755), os.Chmod(dir, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^(TestCloseRemovesEverything|TestDeepTree|TestUnreadableIsRead)$", "-test.count=1")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func TestUnreadableIsRead(t *testing.T) {
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "echo more >> README; chmod 000 README; mkdir d; echo x > d/f; chmod 000 d; chmod 000 .")
	if got := collect(t, w); got.Files != 2 {
		t.Errorf("got %d files, want 2:\n%s", got.Files, patch(t, got))
	}
}
