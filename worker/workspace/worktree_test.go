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
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/worktree"
)

const jobA, jobB = "01992d3c-5a4b-7000-8000-00000000000a", "01992d3c-5a4b-7000-8000-00000000000b"

// A result is a repository and what a job has made of it.
type result struct {
	repo    string
	trees   *worktree.Set
	records string // where those of trees are
	worktree.Request
}

// newResult lets an agent work in a real workspace.
func newResult(tb testing.TB, script string) result {
	tb.Helper()
	repo := newRepo(tb)
	w := prepare(tb, openJailed(tb, Limits{}), "job.1", repo)
	sh(tb, w.Dir(), script)
	c := collect(tb, w)
	dir := tb.TempDir()
	r := result{repo: repo, Request: worktree.Request{
		Repo: repo, Job: jobA, Title: "Mend the frobnicator!", Base: w.Base(), Finished: time.Unix(1.7e9, 0), Patch: filepath.Join(dir, "patch"),
	}}
	if err := disk.CopyFile(r.Patch, c.Patch); err != nil {
		tb.Fatal(err)
	}
	if c.Bundle != "" {
		r.Bundle = filepath.Join(dir, "bundle")
		if err := disk.CopyFile(r.Bundle, c.Bundle); err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	r.records = filepath.Join(tb.TempDir(), "worktrees")
	if r.trees, err = worktree.Open(r.records); err != nil {
		tb.Fatal(err)
	}
	return r
}

func (r result) add(tb testing.TB) worktree.Worktree {
	tb.Helper()
	wt, _, err := r.trees.Add(tb.Context(), r.Request)
	if err != nil {
		tb.Fatal(err)
	}
	return wt
}

// clean fails unless the repository is as if there had been no worktree.
func (r result) clean(tb testing.TB) {
	tb.Helper()
	if got := run(tb, r.repo, "git", "worktree", "list", "--porcelain"); strings.Count(got, "worktree ") != 1 {
		tb.Errorf("registrations are left:\n%s", got)
	}
	if names, err := disk.Names(filepath.Join(r.repo, ".git/worktrees")); err == nil && len(names) > 0 {
		tb.Errorf("registrations are left: %q", names)
	}
	if names, err := disk.Names(filepath.Join(r.repo, ".penstock", "worktrees")); err == nil && len(names) > 0 {
		tb.Errorf("directories are left: %q", names)
	}
	if list, err := r.trees.List(); err != nil || len(list) > 0 {
		tb.Errorf("records are left: %v, %v", list, err)
	}
	if got := run(tb, r.repo, "git", "for-each-ref", "refs/heads/penstock"); got != "" {
		tb.Errorf("branches are left: %s", got)
	}
	if got := run(tb, r.repo, "git", "status", "--porcelain"); got != "" {
		tb.Errorf("the user's tree is changed: %s", got)
	}
}

const (
	twoCommits = `echo one >> README; git commit -qam one; echo '{}' > package.json; git add -A; git commit -qm two; echo rest > rest`
	noCommits  = `echo one >> README; echo '{}' > package.json; printf 'a\0b' > bin; rm src/b.go`
)

func TestWorktreeOfAResult(t *testing.T) {
	for name, script := range map[string]string{"commits": twoCommits, "patch": noCommits} {
		t.Run(name, func(t *testing.T) {
			r := newResult(t, script)
			_, want := apply(t, r.repo, Change{Patch: r.Patch, PatchSize: 1})
			wt, look, err := r.trees.Add(t.Context(), r.Request)
			if err != nil {
				t.Fatal(err)
			}
			if wt.Path != filepath.Join(r.repo, ".penstock/worktrees/mend-the-frobnicator-0000000a") || wt.Branch != "penstock/job/mend-the-frobnicator-0000000a" {
				t.Errorf("got %s on %s", wt.Path, wt.Branch)
			}
			if len(look) != 1 || !strings.HasPrefix(look[0], "package.json: ") {
				t.Errorf("got %q to look at", look)
			}
			if got := run(t, wt.Path, "git", "rev-parse", "HEAD^{tree}"); got != want {
				t.Errorf("got tree %s, the patch leads to %s", got, want)
			}
			if got := run(t, wt.Path, "git", "status", "--porcelain", "--branch"); got != "## "+wt.Branch {
				t.Errorf("got status %q", got)
			}
			if script == twoCommits && run(t, wt.Path, "git", "log", "--format=%s", r.Base+"..") != "Uncommitted changes\ntwo\none" {
				t.Errorf("got %s", run(t, wt.Path, "git", "log", "--oneline"))
			}
			run(t, r.repo, "git", "fsck", "--strict")
			sh(t, wt.Path, "git -c user.name=x -c user.email=x commit -q --allow-empty -m mine; git reset -q --hard HEAD^")
			// The result is nowhere but on its branch, which stays.
			left, err := r.trees.Remove(t.Context(), wt, false)
			if err != nil || left != wt.Branch {
				t.Errorf("got %q, %v", left, err)
			}
			run(t, r.repo, "git", "rev-parse", "--verify", "-q", wt.Branch)
			// It is taken up again, and goes by force.
			again := r.add(t)
			if again.Head != wt.Head {
				t.Errorf("got another commit for the same result: %s, was %s", again.Head, wt.Head)
			}
			run(t, r.repo, "git", "merge", "-q", again.Branch)
			if _, err := r.trees.Remove(t.Context(), again, true); err != nil {
				t.Error(err)
			}
			r.clean(t)
		})
	}
}

func TestWorktreeIsReused(t *testing.T) {
	r := newResult(t, noCommits)
	first := r.add(t)
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(first.Path, old, old); err != nil {
		t.Fatal(err)
	}
	write(t, first.Path, "mine", "x")
	// From inside the worktree the main repository is found.
	r.Repo = first.Path
	second := r.add(t)
	if second.Path != first.Path || !second.Refreshed.After(first.Refreshed) || !second.Created.Equal(first.Created) {
		t.Errorf("got %+v, was %+v", second, first)
	}
	if info, err := os.Stat(first.Path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("its time was not refreshed: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(first.Path, "mine")); err != nil || string(data) != "x" {
		t.Errorf("work in it is gone: %v", err)
	}
	r.Job, r.Name = jobB, "other/one"
	other := r.add(t)
	if other.Path != filepath.Join(r.repo, ".penstock/worktrees/other+one") {
		t.Errorf("nested: %s", other.Path)
	}
	r.Job = jobA
	if _, _, err := r.trees.Add(t.Context(), r.Request); err == nil || !strings.Contains(err.Error(), "taken by job "+jobB) {
		t.Errorf("got %v", err)
	}
	// What the user removed by hand is made again.
	r.Name, r.Repo = "", r.repo
	if err := os.RemoveAll(first.Path); err != nil {
		t.Fatal(err)
	}
	if third := r.add(t); third.Created.Equal(first.Created) || run(t, third.Path, "git", "status", "--porcelain") != "" {
		t.Errorf("got %+v", third)
	}
	list, err := r.trees.List()
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	for _, wt := range list {
		if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
			t.Error(err)
		}
	}
	r.clean(t)
}

func TestWorktreePlaces(t *testing.T) {
	r := newResult(t, noCommits)
	elsewhere := t.TempDir()
	sh(t, elsewhere, "mkdir real; ln -s real link; ln -s nowhere dangling; mkdir full; echo x > full/x")
	for _, c := range []struct{ name, dir, branch, want string }{
		{name: "..", want: "leads elsewhere"}, {name: "a/../b", want: "leads elsewhere"}, {name: "/etc", want: "part"},
		{name: "-f", want: "begins"}, {name: "a/.git/b", want: "begins"}, {name: "a.lock", want: "reserved"}, {name: "con.txt", want: "reserved"},
		{name: "a\x00b", want: "part"}, {name: "a\\b", want: "part"}, {name: "a+b", want: "part"}, {name: strings.Repeat("a", 65), want: "64"}, {name: "//srv/x", want: "part"},
		{dir: filepath.Join(elsewhere, "full"), want: "exists"}, {dir: filepath.Join(elsewhere, "dangling"), want: "exists"},
		{dir: filepath.Join(elsewhere, "none/x"), want: "no such file"}, {dir: filepath.Join(elsewhere, "a\nb"), want: "control"},
		{dir: filepath.Join(r.repo, ".git/x"), want: "git directory"},
		{branch: "-D", want: "not a plain name"}, {branch: "a..b", want: "not a plain name"}, {branch: "main", want: ""},
	} {
		q := r.Request
		q.Name, q.Dir, q.Branch = c.name, c.dir, c.branch
		wt, _, err := r.trees.Add(t.Context(), q)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %s, %v, want %q", c, wt.Path, err, c.want)
		}
	}
	r.Dir = filepath.Join(elsewhere, "link/there")
	wt := r.add(t)
	if wt.Path != filepath.Join(elsewhere, "real/there") {
		t.Errorf("got %s", wt.Path)
	}
	q := r.Request
	q.Job, q.Dir, q.Branch = jobB, filepath.Join(wt.Path, "in/side"), "x"
	if err := os.Mkdir(filepath.Join(wt.Path, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.trees.Add(t.Context(), q); err == nil || !strings.Contains(err.Error(), "inside another worktree") {
		t.Errorf("got %v", err)
	}
	if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
		t.Error(err)
	}
	// A result that was merged may have a link where worktrees are to be.
	if err := os.RemoveAll(filepath.Join(r.repo, ".penstock")); err != nil {
		t.Fatal(err)
	}
	symlink(t, elsewhere, filepath.Join(r.repo, ".penstock"))
	r.Dir = ""
	if _, _, err := r.trees.Add(t.Context(), r.Request); err == nil || !strings.Contains(err.Error(), "not a directory of yours") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(r.repo, ".penstock")); err != nil {
		t.Fatal(err)
	}
	r.clean(t)
}

func TestWorktreeStaysWhileWorkWouldBeLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"changed":   {"echo mine >> README", "uncommitted changes in README"},
		"untracked": {"echo mine > new", "uncommitted changes in new"},
		"staged":    {"echo mine > new; git add new", "uncommitted changes in new"},
		"committed": {"echo mine >> README; git commit -qam mine", "has 1 commits"},
		"detached":  {"git checkout -q --detach; git commit -q --allow-empty -m mine", "has 1 commits"},
		"locked":    {"git worktree lock .", "is locked"},
		// What is committed in another repository is in no commit of this one.
		"submodule": {"git init -q sub; git -C sub commit -q --allow-empty -m x; git -c advice.addEmbeddedRepo=false add sub; git commit -qm sub; git push -q . HEAD:refs/remotes/origin/x; echo > sub/f", "uncommitted changes in sub"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResult(t, noCommits)
			wt := r.add(t)
			sh(t, wt.Path, c.script)
			_, err := r.trees.Remove(t.Context(), wt, false)
			if _, kept := errors.AsType[*worktree.KeptError](err); !kept || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !disk.Exists(filepath.Join(wt.Path, "README")) {
				t.Error("it was removed")
			}
			if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
				t.Error(err)
			}
			r.clean(t)
		})
	}
	r := newResult(t, noCommits)
	wt := r.add(t)
	sh(t, wt.Path, "echo mine >> README; git commit -qam mine; git push -q . HEAD:refs/remotes/origin/mine; mkdir out; echo x > out/x")
	if _, err := r.trees.Remove(t.Context(), wt, false); err != nil {
		t.Errorf("what was pushed keeps it: %v", err)
	}
	if disk.Exists(wt.Path) {
		t.Error("it is still there")
	}
}

func TestWorktreeInUseStays(t *testing.T) {
	if !disk.Exists("/proc/self/cwd") {
		t.Skip("this system does not tell where its processes are")
	}
	r := newResult(t, noCommits)
	wt := r.add(t)
	t.Chdir(filepath.Join(wt.Path, "src"))
	if _, err := r.trees.Remove(t.Context(), wt, false); err == nil || !strings.Contains(err.Error(), "in use by a process") {
		t.Errorf("got %v", err)
	}
	t.Chdir("/")
	// Without its repository the possible losses are not known.
	if err := os.Rename(filepath.Join(r.repo, ".git"), filepath.Join(r.repo, "git")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.trees.Remove(t.Context(), wt, false); err == nil || !strings.Contains(err.Error(), "lost its repository") {
		t.Errorf("got %v", err)
	}
	if _, err := r.trees.Remove(t.Context(), wt, true); err != nil || disk.Exists(wt.Path) {
		t.Errorf("it is still there: %v", err)
	}
}

// The traps an agent may set in a worktree that it was let into.
func TestWorktreeThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	evil := `mkdir -p .m/.git/worktrees/j && cd .m/.git && echo 'ref: refs/heads/main' > HEAD && mkdir -p objects refs hooks
printf '[core]\n\tfsmonitor = touch %s\n\thooksPath = %s\n' "$PWN" "$PWD/hooks" > config
printf '#!/bin/sh\ntouch %s\n' "$PWN" > hooks/post-checkout; chmod +x hooks/post-checkout; cd ../..`
	for name, script := range map[string]string{
		".git to a repository of its own":    evil + `; rm .git; echo "gitdir: $PWD/.m/.git" > .git`,
		".git to what looks like a worktree": evil + `; rm .git; echo ../.. > .m/.git/worktrees/j/commondir; echo "$PWD/.git" > .m/.git/worktrees/j/gitdir; cp .m/.git/HEAD .m/.git/worktrees/j; echo "gitdir: $PWD/.m/.git/worktrees/j" > .git`,
		".git is a directory":                `rm .git; git init -q; git config core.fsmonitor "touch $PWN"`,
		"commondir leads elsewhere":          evil + `; echo "$PWD/.m/.git" > "$(git rev-parse --git-dir)/commondir"`,
		"submodule with a filter":            `git init -q s; echo one > s/f; echo '* filter=x' > s/.gitattributes; git -C s add -A; git -C s commit -q -m x; git add s 2>/dev/null; git commit -qm s; git -C s config filter.x.clean "touch $PWN; cat"; echo two > s/f`,
		"hooks of the repository":            `d="$(git rev-parse --git-common-dir)/hooks"; mkdir -p "$d"; for h in post-checkout reference-transaction post-index-change; do printf '#!/bin/sh\ntouch %s\n' "$PWN" > "$d/$h"; chmod +x "$d/$h"; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResult(t, noCommits)
			wt := r.add(t)
			pwn := filepath.Join(t.TempDir(), "pwned")
			sh(t, wt.Path, "PWN="+pwn+"\n"+script)
			if err := os.RemoveAll(pwn); err != nil {
				t.Fatal(err)
			}
			q := r.Request
			q.Job, q.Branch = jobB, "second"
			second, _, err := r.trees.Add(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			_ = r.add(t)
			_, err = r.trees.Remove(t.Context(), wt, false)
			if _, kept := errors.AsType[*worktree.KeptError](err); err != nil && !kept {
				t.Error(err)
			}
			for _, wt := range []worktree.Worktree{wt, second} {
				if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
					t.Error(err)
				}
			}
			if disk.Exists(pwn) {
				t.Error("something of the agent's ran")
			}
			if !disk.Exists(filepath.Join(r.repo, "README")) {
				t.Error("the user's repository was harmed")
			}
			// One that was not dirty went at once, and left its branch.
			sh(t, r.repo, "rm -rf .git/hooks; git branch -q -D "+wt.Branch+" 2> /dev/null || true")
			r.clean(t)
		})
	}
}

func TestWorktreesInParallel(t *testing.T) {
	r := newResult(t, twoCommits)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			q := r.Request
			q.Job = fmt.Sprintf("01992d3c-5a4b-7000-8000-%012d", i)
			if _, _, err := r.trees.Add(t.Context(), q); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := r.trees.List()
	if err != nil || len(list) != 12 {
		t.Fatalf("got %d, %v", len(list), err)
	}
	for _, wt := range list {
		wg.Go(func() {
			if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r.clean(t)
}

// worktreeEnv tells the test binary to add and remove worktrees until it is
// killed: the fields of a request, one a line.
const worktreeEnv = "PENSTOCK_TEST_WORKTREE"

func worktreeChild() {
	f := strings.Split(os.Getenv(worktreeEnv), "\n")
	t, err := worktree.Open(f[0])
	for err == nil {
		var wt worktree.Worktree
		wt, _, err = t.Add(context.Background(), worktree.Request{Repo: f[1], Job: jobB, Base: f[2], Bundle: f[3], Title: "killed"})
		if err == nil {
			_, err = t.Remove(context.Background(), wt, true)
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestWorktreeKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	r := newResult(t, twoCommits)
	mine := r.add(t)
	write(t, mine.Path, "mine", "x")
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), worktreeEnv+"="+strings.Join([]string{r.records, r.repo, r.Base, r.Bundle}, "\n"))
		var said strings.Builder
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed, and says so
		if said.Len() > 0 {
			t.Fatalf("seed %d: it failed: %s", seed, said.String())
		}
		q := r.Request
		q.Job, q.Title = jobB, "killed"
		wt, _, err := r.trees.Add(t.Context(), q)
		if err != nil {
			t.Fatalf("seed %d: after a kill: %v", seed, err)
		}
		if got := run(t, wt.Path, "git", "status", "--porcelain"); got != "" {
			t.Fatalf("seed %d: got a half worktree: %s", seed, got)
		}
		if _, err := r.trees.Remove(t.Context(), wt, true); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := run(t, r.repo, "git", "worktree", "list", "--porcelain"); strings.Count(got, "worktree ") != 2 {
			t.Fatalf("seed %d: registrations are left:\n%s", seed, got)
		}
	}
	if !disk.Exists(filepath.Join(mine.Path, "mine")) {
		t.Error("work in another worktree is gone")
	}
	if _, err := r.trees.Remove(t.Context(), mine, true); err != nil {
		t.Error(err)
	}
	run(t, r.repo, "git", "fsck", "--strict")
	r.clean(t)
}

// A git kills its starter in the middle of a checkout, and ends: a power cut, as far as
// the repository can tell.
func TestWorktreeOfWhichOnlyHalfIsThere(t *testing.T) {
	r := newResult(t, twoCommits)
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	// This git kills its starter in the middle of the checkout.
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \" $* \" in *' read-tree -u '*) : > half; kill -9 $PPID; exit 1;; esac\nexec " + real + " \"$@\"\n"
	if err := exectest.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), worktreeEnv+"="+strings.Join([]string{r.records, r.repo, r.Base, r.Bundle}, "\n"))
	if out, err := cmd.Output(); err == nil || len(out) > 0 {
		t.Fatalf("nobody was killed: %s, %v", out, err)
	}
	list, err := r.trees.List()
	if err != nil || len(list) != 1 || list[0].State != "adding" || !disk.Exists(filepath.Join(list[0].Path, "half")) {
		t.Fatalf("there is no half worktree: %+v, %v", list, err)
	}
	if got := run(t, r.repo, "git", "worktree", "list", "--porcelain"); !strings.Contains(got, "locked penstock is making") {
		t.Fatalf("got\n%s", got)
	}
	// Any call for the repository settles it.
	other := r.add(t)
	if disk.Exists(list[0].Path) {
		t.Error("the half is still there")
	}
	if _, err := r.trees.Remove(t.Context(), other, true); err != nil {
		t.Error(err)
	}
	r.clean(t)
}
