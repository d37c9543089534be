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
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/worktree"
)

// planted makes what git would run, wherever it were to read it: in the
// worktree, in what its .git leads to, and in the attempt's own git directory.
const planted = `evil="$1"; ran="$2"
mkdir -p "$evil/hooks" "$evil/objects" "$evil/refs"
printf '#!/bin/sh\ntouch "%s"\n' "$ran" > "$evil/run"; chmod +x "$evil/run"
for hook in post-checkout pre-commit reference-transaction post-index-change pre-auto-gc; do cp "$evil/run" "$evil/hooks/$hook"; done
echo "ref: refs/heads/main" > "$evil/HEAD"
cat > "$evil/config" <<X
[core]
	repositoryformatversion = 0
	fsmonitor = $evil/run
	hooksPath = $evil/hooks
	sshCommand = $evil/run
[filter "evil"]
	clean = $evil/run
	smudge = $evil/run
	process = $evil/run
	required = true
[diff]
	external = $evil/run
[diff "evil"]
	textconv = $evil/run
X
echo '* filter=evil diff=evil' > .gitattributes
echo changed >> README`

// TestLinkedAfterAHostileAgent lets an agent replace all that it can, and looks
// whether the host's git, or anything else of the host, obeys it.
func TestLinkedAfterAHostileAgent(t *testing.T) {
	for name, c := range map[string]struct {
		last string // done after planting, in the worktree
		kept bool   // whether there is a worktree to keep
	}{
		"gitdir elsewhere": {`rm .git; echo "gitdir: $evil" > .git`, true},
		"a repository":     {`rm .git; cp -a "$evil" .git`, true},
		"a link":           {`rm .git; ln -s "$evil" .git`, true},
		"no .git":          {`rm .git`, true},
		"a fifo":           {`rm .git; mkfifo .git`, true},
		"gone":             {`cd ..; rm -rf "$OLDPWD"`, false},
		"replaced":         {`cd ..; mv "$OLDPWD" "$OLDPWD.away"; ln -s "$evil" "$OLDPWD"`, false},
		"another":          {`cd ..; mv "$OLDPWD" "$OLDPWD.away"; cp -a "$evil" "$OLDPWD"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, repo := openLinked(t), newRepo(t)
			w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
			wt, _ := w.Worktree()
			evil, ran := filepath.Join(t.TempDir(), "evil"), filepath.Join(t.TempDir(), "ran")
			w.contents.touched()
			sh(t, w.Dir(), strings.NewReplacer("$1", evil, "$2", ran).Replace(planted)+"\n"+c.last)
			// What the agent's own git directory says.
			sh(t, w.path("repo"), `cp "`+evil+`/config" config; mkdir hooks; cp "`+evil+`"/hooks/* hooks`)
			change, err := w.Collect(t.Context())
			if (err == nil) != c.kept {
				t.Fatalf("collected: %v", err)
			}
			if c.kept {
				if change.Files != 2 || w.Saved(receipt(change)) != nil {
					t.Errorf("got %+v", change)
				}
				w.Keep()
				closeSpace(t, w)
				kept := onlyWorktrees(t, s, repo, 1)[0]
				if got := run(t, kept.Path, "git", "rev-parse", "--git-common-dir"); got != filepath.Join(repo, ".git") {
					t.Errorf("people's git reads %s", got)
				}
				if _, err := worktree.New(s.cfg.Worktrees).Remove(t.Context(), kept, false); err != nil {
					t.Error(err)
				}
			} else {
				if err := w.remove(); err != nil { // its owner has given it up
					t.Error(err)
				}
				nothingLeft(t, s)
				sh(t, repo, `rm -rf "`+wt.Path+`.away"`)
				if name == "another" { // its owner is not known, so it stays
					sh(t, repo, `test -x "`+wt.Path+`/run"; rm -rf "`+wt.Path+`"`)
				}
			}
			if !disk.Exists(filepath.Join(evil, "run")) {
				t.Error("what a link led to was removed")
			}
			if disk.Exists(ran) {
				t.Error("something that the agent planted ran on the host")
			}
			onlyWorktrees(t, s, repo, 0)
		})
	}
}

// Without a jail the agent writes the repository's own configuration. What of the
// host works there afterwards obeys nothing of it; what people do is their own affair.
func TestLinkedAfterAHostileAgentWithoutAJail(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	r := linkRequest(jobA, "7", repo)
	r.Unjailed = true
	w := prepareLinked(t, s, r)
	wt, _ := w.Worktree()
	evil, ran := filepath.Join(t.TempDir(), "evil"), filepath.Join(t.TempDir(), "ran")
	w.contents.touched()
	sh(t, w.Dir(), `git checkout -q -b other; echo mine > mine; git add mine; git commit -qm mine
`+strings.NewReplacer("$1", evil, "$2", ran).Replace(planted)+`
common=$(git rev-parse --git-common-dir); own=$(git rev-parse --git-dir)
mkdir -p "$common/hooks"; cp "$evil"/hooks/* "$common/hooks"
printf '[extensions]\n\tworktreeConfig = true\n' >> "$common/config"
tail -n +3 "$evil/config" | sed '1i [core]' >> "$common/config"
cp "$evil/config" "$own/config.worktree"; cp "$evil/config" "$common/config.worktree"`)
	c := save(t, w)
	if c.Files != 3 || c.Commits != 2 {
		t.Errorf("got %+v", c)
	}
	w.Keep()
	closeSpace(t, w)
	again := linkRequest(jobA, "9", repo)
	again.Again = r.ID
	for _, next := range []Request{again, linkRequest(jobB, "10", repo)} {
		w := prepareLinked(t, s, next)
		inJail(t, w, "echo more > more; git add more; git commit -qm more")
		save(t, w)
		w.Keep()
		closeSpace(t, w)
	}
	trees := worktree.New(s.cfg.Worktrees)
	list, err := trees.List()
	if err != nil || len(list) != 2 || list[0].Path != wt.Path {
		t.Fatalf("got %+v, %v", list, err)
	}
	write(t, wt.Path, "README", "touched")
	if _, err := trees.Remove(t.Context(), list[0], false); err == nil || !strings.Contains(err.Error(), "uncommitted changes in README") {
		t.Errorf("removed: %v", err)
	}
	for _, wt := range list {
		if _, err := trees.Remove(t.Context(), wt, true); err != nil {
			t.Error(err)
		}
	}
	if disk.Exists(ran) {
		t.Error("something that the agent planted ran on the host")
	}
	// The planting was real.
	sh(t, repo, "git status >/dev/null 2>&1 || true")
	if !disk.Exists(ran) {
		t.Error("what was planted does not run for anybody")
	}
}

// linkedCrashEnv tells the test binary to be a worker: "<directory>\n<repository>".
const linkedCrashEnv = "PENSTOCK_TEST_CRASH_LINKED"

func linkedCrashChild() {
	dir, repo, _ := strings.Cut(os.Getenv(linkedCrashEnv), "\n")
	s, err := Open(context.Background(), Config{Dir: dir, Jail: &bwrap.Backend{}, Strategy: Linked, Worktrees: filepath.Join(dir, "worktrees")})
	for n := 0; err == nil; n++ {
		err = linkedCrashOnce(s, fmt.Sprintf("job-%d", os.Getpid()), n, repo)
	}
	fmt.Println(err)
	os.Exit(1)
}

func linkedCrashOnce(s *Spaces, job string, n int, repo string) error {
	r := linkRequest(job, fmt.Sprint(n), repo)
	if n > 0 {
		r.Again = fmt.Sprintf("%s.%d", job, n-1)
	}
	w, err := s.Prepare(context.Background(), r)
	if err != nil {
		return err
	}
	w.contents.touched()
	err = os.WriteFile(filepath.Join(w.Dir(), fmt.Sprint("new", n)), []byte("x\n"), 0o644)
	if err == nil {
		var c Change
		if c, err = w.Collect(context.Background()); err == nil {
			err = w.Saved(receipt(c))
		}
	}
	if n%2 == 0 {
		w.Keep()
	}
	return errors.Join(err, w.Close())
}

func TestLinkedKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	s, repo := openLinked(t), newRepo(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	held := prepareLinked(t, s, linkRequest(jobB, "1", repo))
	for range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), linkedCrashEnv+"="+s.cfg.Dir+"\n"+repo)
		var said strings.Builder
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed, and says so
		if said.Len() > 0 {
			t.Fatalf("seed %d: the worker failed: %s", seed, said.String())
		}
		sweepLinked(t, s, seed)
	}
	closeUnused(t, held) // with its files: no agent has been there
	list, err := worktree.New(s.cfg.Worktrees).List()
	if err != nil {
		t.Fatal(err)
	}
	for _, wt := range onlyWorktrees(t, s, repo, len(list)) {
		run(t, wt.Path, "git", "status")
		if _, err := worktree.New(s.cfg.Worktrees).Remove(t.Context(), wt, true); err != nil {
			t.Error(err)
		}
	}
	onlyWorktrees(t, s, repo, 0)
	run(t, repo, "git", "fsck", "--strict")
	nothingLeft(t, s)
}

// sweepLinked sweeps until what outlived the worker, and still holds its locks,
// has gone: then no record is in half state but that of the workspace in use.
func sweepLinked(t *testing.T, s *Spaces, seed uint64) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(slowtest.Limit(20 * time.Second)); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Fatalf("seed %d: sweep: %v", seed, err)
		}
		left = nil
		list, err := worktree.New(s.cfg.Worktrees).List()
		if err != nil {
			t.Fatal(err)
		}
		for _, wt := range list {
			if wt.State != "" && wt.Job != jobB {
				left = append(left, wt.State+" "+wt.Path)
			}
		}
		jobDirs, err := disk.Names(filepath.Join(s.cfg.Dir, "jobs"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 && len(jobDirs) == 1 {
			return
		}
		left = append(left, jobDirs...)
	}
	t.Fatalf("seed %d: left behind: %q", seed, left)
}
