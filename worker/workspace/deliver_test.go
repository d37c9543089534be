package workspace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/git"
)

const testJob = "01890000-0000-7000-8000-000000000000"

// delivery is what a worker asks for.
func deliveryTo(repo, branch string) Delivery {
	return Delivery{
		Repo: repo, Branch: branch, Message: "Fix it", At: time.Unix(1_800_000_000, 0),
		Trailers: []string{"Penstock-Job: " + testJob, "Penstock-Session: " + testJob},
		Permit:   func(context.Context, string) (time.Time, error) { return time.Now().Add(time.Minute), nil },
	}
}

// work makes one change and two commits, as an agent does, and one more
// change that it does not commit.
func work(tb testing.TB, w *Workspace) Change {
	tb.Helper()
	inside(tb, w, `printf 'one\n' > new && git add new && git commit -q -m 'Add new' -m 'Why.

Signed-off-by: Agent <agent@example.org>
penstock-job: somebody-elses'
printf 'two\n' >> new && git commit -q -a -m 'Change new'
printf 'left\n' > left`)
	return collect(tb, w)
}

// inside runs a script as an agent in a clone.
func inside(tb testing.TB, w *Workspace, script string) { tb.Helper(); sh(tb, w.Dir(), script) }

func deliver(tb testing.TB, c Change, d Delivery) Delivered {
	tb.Helper()
	got, err := c.Deliver(tb.Context(), d)
	if err != nil {
		tb.Fatalf("deliver: %v", err)
	}
	return got
}

// around is all of a repository that a delivery must not change.
func around(tb testing.TB, repo string) string {
	tb.Helper()
	text := run(tb, repo, "git", "symbolic-ref", "HEAD")
	for line := range strings.Lines(run(tb, repo, "git", "for-each-ref") + "\n") {
		if !strings.Contains(line, "refs/heads/penstock/") {
			text += line
		}
	}
	if run(tb, repo, "git", "rev-parse", "--is-bare-repository") == "false" {
		text += run(tb, repo, "git", "--no-optional-locks", "status", "--porcelain", "--ignored") + run(tb, run(tb, repo, "git", "rev-parse", "--absolute-git-dir"), "sha256sum", "index", "HEAD")
	}
	return text
}

func TestDeliver(t *testing.T) {
	bare := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "bare.git")
		run(t, "/", "git", "clone", "-q", "--bare", newRepo(t), dir)
		return dir
	}
	overHTTP := func(t *testing.T) (string, string) {
		dir := bare(t)
		return strings.Replace(serve(t, filepath.Dir(dir)).URL, "http://", "http://u:s3cret@", 1) + "/bare.git", dir
	}
	same := func(make func(*testing.T) string) func(*testing.T) (string, string) {
		return func(t *testing.T) (string, string) { dir := make(t); return dir, dir }
	}
	for _, c := range []struct {
		name string
		make func(*testing.T) (url, dir string)
	}{
		{"a directory with a work tree", same(func(t *testing.T) string { return newRepo(t) })},
		{"a bare repository", same(bare)},
		{"a file URL", func(t *testing.T) (string, string) { dir := bare(t); return "file://" + dir, dir }},
		{"a URL", overHTTP},
		{"another user's repository", same(func(t *testing.T) string {
			if os.Geteuid() != 0 {
				t.Skip("only root writes as others")
			}
			dir := newRepo(t)
			sh(t, dir, `chown -R 65534:65534 . ; for d in "$(dirname "$PWD")" "$(dirname "$(dirname "$PWD")")"; do chmod 755 "$d"; done`)
			return dir
		})},
		{"a linked worktree", func(t *testing.T) (string, string) {
			dir, linked := newRepo(t), filepath.Join(t.TempDir(), "linked")
			run(t, dir, "git", "worktree", "add", "-q", "-b", "side", linked)
			return linked, dir
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, dir := c.make(t)
			t.Setenv("GIT_CONFIG_COUNT", "1") // for the test's own git, which looks at other users' files
			t.Setenv("GIT_CONFIG_KEY_0", "safe.directory")
			t.Setenv("GIT_CONFIG_VALUE_0", "*")
			// What must not run, or is the server's own.
			sh(t, dir, `g=$(git rev-parse --git-common-dir); mkdir -p "$g/hooks"; for h in pre-receive update post-receive reference-transaction post-update push-to-checkout pre-push post-checkout; do
printf '#!/bin/sh\n: > "%s/ran.$(basename "$0")"\n' "$(cd "$g" && pwd)" > "$g/hooks/$h"; chmod 755 "$g/hooks/$h"; done
[ "$(id -u)" != 0 ] || chown -R --reference="$g/HEAD" "$g/hooks"`)
			testDeliverTo(t, url, dir)
		})
	}
}

func testDeliverTo(t *testing.T, url, dir string) {
	s := openJailed(t, Limits{})
	w := prepare(t, s, "job.1", url)
	before := around(t, dir)
	change := work(t, w)
	d := deliveryTo(url, "penstock/b/17")
	got := deliver(t, change, d)
	tip := run(t, dir, "git", "rev-parse", "refs/heads/penstock/b/17")
	if got.Commit != tip || got.Replaced != "" || strings.Contains(got.Repo, "s3cret") {
		t.Errorf("got %+v, the branch is at %s", got, tip)
	}
	if text := run(t, dir, "git", "log", "--format=%s %an", w.Base()+".."+tip); text != "Uncommitted changes Penstock agent\nChange new A\nAdd new A" {
		t.Errorf("the branch has\n%s", text)
	}
	for rev := range strings.SplitSeq(run(t, dir, "git", "rev-list", w.Base()+".."+tip), "\n") {
		if got := run(t, dir, "git", "show", "-s", "--format=%(trailers:key=Penstock-Job,valueonly,separator=%x2C)", rev); got != testJob {
			t.Errorf("commit %s is said to be of job %q", rev, got)
		}
	}
	want := run(t, "/", "git", "--git-dir="+w.path("git"), "rev-parse", change.tree+"^{tree}")
	if tree := run(t, dir, "git", "rev-parse", tip+"^{tree}"); tree != want {
		t.Errorf("the branch leads to tree %s, the patch to %s", tree, want)
	}
	if now := around(t, dir); now != before {
		t.Errorf("the repository changed beside the branch:\n%s\nwas\n%s", now, before)
	}
	// Again, because the confirmation was lost.
	if again := deliver(t, change, d); again.Commit != tip {
		t.Errorf("again: got %+v, want %s", again, tip)
	}
	run(t, dir, "git", "fsck", "--full", "--strict")
	ran, err := filepath.Glob(filepath.Join(run(t, dir, "git", "rev-parse", "--path-format=absolute", "--git-common-dir"), "ran.*"))
	if remote := strings.HasPrefix(url, "http"); err != nil || remote != (len(ran) > 0) {
		t.Errorf("hooks that ran: %v, %v; want them with a remote only", ran, err)
	}
	if info, err := os.Stat(dir); err == nil {
		owner := info.Sys().(*syscall.Stat_t).Uid
		run(t, "/", "sh", "-ec", fmt.Sprintf(`test -z "$(find "%s" ! -user %d)"`, dir, owner))
	}
}

// An existing branch belongs to its user, unless a lost attempt of the same job has
// announced that it would put this commit there.
func TestDeliverToABranchThatExists(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "remote"} {
		t.Run(kind, func(t *testing.T) {
			dir := newRepo(t)
			url := dir
			if kind == "remote" {
				run(t, dir, "git", "config", "http.receivepack", "true")
				url = strings.Replace(serve(t, filepath.Dir(dir)).URL, "http://", "http://u:s3cret@", 1) + "/user%20repo/.git"
			}
			first := prepare(t, openJailed(t, Limits{}), "job.1", url)
			lost := deliver(t, work(t, first), deliveryTo(url, "penstock/x"))

			second := prepare(t, openJailed(t, Limits{}), "job.2", url)
			write(t, second.Dir(), "new", "of the second\n")
			change, d := collect(t, second), deliveryTo(url, "penstock/x")
			d.Permit = func(context.Context, string) (time.Time, error) {
				t.Error("asked for leave to overwrite")
				return time.Time{}, errors.New("no")
			}
			_, err := change.Deliver(t.Context(), d)
			if there, ok := errors.AsType[*BranchError](err); !ok || there.Branch != "penstock/x" || strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("got %v, want a BranchError", err)
			}
			if now := run(t, dir, "git", "rev-parse", "penstock/x"); now != lost.Commit {
				t.Fatalf("the branch was moved to %s", now)
			}
			d = deliveryTo(url, "penstock/x")
			d.Replaces = []string{lost.Commit}
			got := deliver(t, change, d)
			if now := run(t, dir, "git", "rev-parse", "penstock/x"); now != got.Commit || got.Replaced != lost.Commit {
				t.Errorf("got %+v, the branch is at %s", got, now)
			}
			if names := run(t, dir, "git", "for-each-ref", "--format=%(refname)", "refs/heads/penstock"); names != "refs/heads/penstock/x" {
				t.Errorf("there are now %s", names)
			}
		})
	}
}

// What happens between the last look and the change is seen by the change.
func TestDeliverRaces(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "remote"} {
		dir := newRepo(t)
		url := dir
		if kind == "remote" {
			url = strings.Replace(serve(t, filepath.Dir(dir)).URL, "http://", "http://u:s3cret@", 1) + "/user%20repo/.git"
		}
		w := prepare(t, openJailed(t, Limits{}), "job.1", url)
		write(t, w.Dir(), "new", "x\n")
		change := collect(t, w)
		refused := errors.New("lease lost")
		for _, c := range []struct {
			name   string
			permit func(context.Context, string) (time.Time, error)
			ok     func(error) bool
			leads  string
		}{
			{"no leave", func(context.Context, string) (time.Time, error) { return time.Time{}, refused },
				func(err error) bool { return errors.Is(err, refused) }, ""},
			{"a leave that has run out", func(context.Context, string) (time.Time, error) { return time.Now().Add(-time.Second), nil },
				func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, ""},
			{"somebody was faster", func(context.Context, string) (time.Time, error) {
				run(t, dir, "git", "branch", "penstock/x", "main")
				return time.Now().Add(time.Minute), nil
			}, isA[*BranchError], "main"},
			{"somebody did the same", func(_ context.Context, commit string) (time.Time, error) {
				run(t, dir, "git", "branch", "-D", "penstock/x")
				run(t, dir, "git", "--git-dir="+w.path("git"), "push", "-q", filepath.Join(dir, ".git"), commit+":refs/heads/penstock/x")
				return time.Now().Add(time.Minute), nil
			}, func(err error) bool { return err == nil }, ""},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				d := deliveryTo(url, "penstock/x")
				d.Permit = c.permit
				if c.name == "somebody did the same" {
					d.Replaces = []string{w.Base()}
				}
				got, err := change.Deliver(t.Context(), d)
				if !c.ok(err) {
					t.Errorf("got %+v, %v", got, err)
				}
				names := run(t, dir, "git", "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/penstock")
				want := strings.TrimSpace("penstock/x " + got.Commit)
				if c.leads != "" {
					want = "penstock/x " + run(t, dir, "git", "rev-parse", c.leads)
				}
				if err != nil && c.leads == "" {
					want = ""
				}
				if names != want {
					t.Errorf("there is %q, want %q", names, want)
				}
			})
		}
	}
}

// Places that cannot take a branch stay as they are, and say why.
func TestDeliverIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, prepare, says string }{
		{"checked out, without a commit", "git symbolic-ref HEAD refs/heads/penstock/x", "checked out"},
		{"checked out in a linked worktree", `git worktree add -q -b penstock/x "$(dirname "$PWD")/linked"`, "checked out"},
		{"below a branch", "git branch penstock", "penstock"},
		{"above a branch", "git branch penstock/x/y", "penstock/x"},
		{"no room for objects", "rm -r .git/objects/pack; : > .git/objects/pack", "pack"},
		{"a base that is gone", "git commit -q --amend -m other; git update-ref -d refs/remotes/x || :; git reflog expire --expire=now --all; git gc -q --prune=now", "base commit"},
		{"no repository any more", "mv .git elsewhere", "not a git repository"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := newRepo(t)
			w := prepare(t, openJailed(t, Limits{}), "job.1", repo)
			write(t, w.Dir(), "new", "x\n")
			change := collect(t, w)
			sh(t, repo, c.prepare)
			dir := repo
			if c.name == "no repository any more" {
				dir = filepath.Join(repo, "elsewhere")
			}
			before := run(t, dir, "git", "for-each-ref")
			d := deliveryTo(repo, "penstock/x")
			if strings.Contains(c.name, "linked") {
				d.Replaces = []string{w.Base()} // even then
			}
			_, err := change.Deliver(t.Context(), d)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a word about %q", err, c.says)
			}
			if isA[*BranchError](err) != (c.says == "checked out") {
				t.Errorf("got %T", err)
			}
			if now := run(t, dir, "git", "for-each-ref"); now != before {
				t.Errorf("refs are now\n%s\nwere\n%s", now, before)
			}
		})
	}
}

func TestDeliverToAReadOnlyRemote(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	run(t, dir, "git", "config", "http.receivepack", "false")
	url := strings.Replace(serve(t, filepath.Dir(dir)).URL, "http://", "http://u:s3cret@", 1) + "/user%20repo/.git"
	w := prepare(t, openJailed(t, Limits{}), "job.1", url)
	write(t, w.Dir(), "new", "x\n")
	_, err := collect(t, w).Deliver(t.Context(), deliveryTo(url, "penstock/x"))
	if failed, ok := errors.AsType[*git.Error](err); !ok || strings.Contains(err.Error(), "s3cret") || failed.Code == 0 {
		t.Errorf("got %v, want git's error without the password", err)
	}
}

func TestDeliverNothing(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	w := prepare(t, openJailed(t, Limits{}), "job.1", repo)
	got := deliver(t, collect(t, w), deliveryTo(repo, "penstock/x"))
	if refs := run(t, repo, "git", "for-each-ref", "refs/heads/penstock"); got.Commit != "" || refs != "" {
		t.Errorf("got %+v, %s; want no branch of nothing", got, refs)
	}
}

// The overlay, the shallow workspace and the worker without a jail deliver
// what the clone does.
func TestDeliverFromOtherWorkspaces(t *testing.T) {
	t.Parallel()
	t.Run("shallow", func(t *testing.T) {
		repo := newRepo(t)
		sh(t, repo, "for i in $(seq 60); do git commit -q --allow-empty -m $i; done")
		url := strings.Replace(serve(t, filepath.Dir(repo)).URL, "http://", "http://u:s3cret@", 1) + "/user%20repo/.git"
		for i, to := range []string{repo, url} {
			w := prepare(t, openJailed(t, Limits{History: 1}), "job.1", to)
			if run(t, w.Dir(), "git", "rev-parse", "--is-shallow-repository") != "true" {
				t.Fatal("the workspace has all of history")
			}
			got := deliver(t, work(t, w), deliveryTo(to, fmt.Sprintf("penstock/%d", i)))
			if n := run(t, repo, "git", "rev-list", "--count", got.Commit); n != "64" {
				t.Errorf("the branch has %s commits, want 64", n)
			}
		}
		run(t, repo, "git", "fsck", "--strict")
	})
	t.Run("without a jail", func(t *testing.T) {
		repo, s := newRepo(t), open(t, Limits{})
		w := prepareAs(t, s, "job.1", jobs.Repo{URL: repo}, jobs.IsolationWorktree)
		inside(t, w, "printf 'x\n' > new; git add new; git commit -q -m mine")
		got := deliver(t, collect(t, w), deliveryTo(repo, "penstock/x"))
		want := "Penstock agent <agent@penstock.invalid> 1800000000|Fix it\n\nPenstock-Job: " + testJob + "\nPenstock-Session: " + testJob
		if text := run(t, repo, "git", "log", "-1", "--format=%an <%ae> %at|%B", got.Commit); strings.TrimSpace(text) != want {
			t.Errorf("got %q, want %q", text, want)
		}
	})
}

func TestSilentRemoteEndsADelivery(t *testing.T) {
	t.Parallel()
	repo, release := newRepo(t), make(chan struct{})
	w := prepare(t, openJailed(t, Limits{}), "job.1", repo)
	write(t, w.Dir(), "new", "x\n")
	change := collect(t, w)
	server := serve(t, filepath.Dir(repo))
	front := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "git-receive-pack") {
			<-release
		}
		server.Config.Handler.ServeHTTP(rw, r)
	})
	silent := httptest.NewServer(front)
	defer silent.Close()
	defer close(release)
	url := strings.Replace(silent.URL, "http://", "http://u:s3cret@", 1) + "/user%20repo/.git"
	d := deliveryTo(url, "penstock/x")
	d.Permit = func(context.Context, string) (time.Time, error) { return time.Now().Add(300 * time.Millisecond), nil }
	if _, err := change.Deliver(t.Context(), d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a passed deadline", err)
	}
	if refs := run(t, repo, "git", "for-each-ref", "refs/heads/penstock"); refs != "" {
		t.Errorf("there is %s", refs)
	}
}
