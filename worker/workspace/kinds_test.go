package workspace

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// kinds are the repositories that git itself works in. Each script runs in an
// empty directory, beside a usual repository ORIGIN with commits "first" and
// "second", and leaves what "repo" names, or prints another path.
var kinds = []struct {
	name, script string
	ref          string
	history      string // the subjects of all commits; "" is "second\nfirst"
	refused      string // what the refusal says, where git here cannot read it, or must not
	noBranch     bool   // a result cannot be delivered as a branch there
}{
	{name: "a usual one", script: `git clone -q "$ORIGIN" repo`},
	{name: "bare", script: `git clone -q --bare "$ORIGIN" repo`},
	{name: "a mirror", script: `git clone -q --mirror "$ORIGIN" repo`},
	{name: "shallow", script: `git clone -q --depth 1 "file://$ORIGIN" repo`, history: "second"},
	{name: "shallow and bare", script: `git clone -q --bare --depth 1 "file://$ORIGIN" repo`, history: "second"},
	{name: "shallow, with a commit of its own", script: `git clone -q --depth 1 "file://$ORIGIN" repo; cd repo; git commit -q --allow-empty -m third`, history: "third\nsecond"},
	{name: "shallow, another branch", script: `git clone -q --depth 1 --no-single-branch "file://$ORIGIN" repo; git -C repo branch -q side origin/side`, ref: "side", history: "side"},
	{name: "a partial clone that has the files", script: `git clone -q --filter=blob:none "file://$ORIGIN" repo`, history: "second"},
	{name: "a partial clone that lacks files", script: `git clone -q --filter=blob:none --no-checkout "file://$ORIGIN" repo`, refused: "git fetch --refetch --no-filter"},
	{name: "a partial clone without trees", script: `git clone -q --filter=tree:0 --bare "file://$ORIGIN" repo`, refused: "partial clone"},
	{name: "a sparse checkout", script: `git clone -q "$ORIGIN" repo; git -C repo sparse-checkout set src`},
	{name: "shared objects", script: `git clone -q --shared "$ORIGIN" repo`},
	{name: "shared objects, by another relative path", script: `git clone -q --shared --bare "$ORIGIN" a; ln -s "$ORIGIN/.git/objects" there; echo ../../there > a/objects/info/alternates; mv a repo`},
	{name: "a linked worktree", script: `git clone -q "$ORIGIN" main; git -C main worktree add -q -b linked ../repo`},
	{name: "a linked worktree of a bare one", script: `git clone -q --bare "$ORIGIN" main.git; git -C main.git worktree add -q -b linked ../repo`},
	{name: "a linked worktree that was moved", script: `git clone -q "$ORIGIN" main; git -C main worktree add -q -b linked ../old; mv old repo`, refused: "git worktree repair"},
	{name: "bare beside its worktrees", script: `mkdir repo; git clone -q --bare "$ORIGIN" repo/.bare; echo 'gitdir: ./.bare' > repo/.git`},
	{name: "a worktree beside its bare repository", script: `mkdir all; git clone -q --bare "$ORIGIN" all/.bare; echo 'gitdir: ./.bare' > all/.git; cd all; git worktree add -q -b linked side; mv "$PWD/side" ../repo; git -C ../repo worktree repair`},
	{name: "a separate git directory", script: `git clone -q --separate-git-dir "$PWD/away.git" "$ORIGIN" repo`, refused: "config core.worktree"},
	{name: "a separate git directory that knows", script: `git clone -q --separate-git-dir "$PWD/away.git" "$ORIGIN" repo; git --git-dir=away.git config core.worktree "$PWD/repo"`},
	{name: "a separate git directory by its own name", script: `git clone -q --separate-git-dir "$PWD/repo" "$ORIGIN" tree`},
	{name: "a link to a git directory", script: `git clone -q "$ORIGIN" repo; mv repo/.git away.git; ln -s ../away.git repo/.git`, refused: "config core.worktree"},
	{name: "a link to a git directory that knows", script: `git clone -q "$ORIGIN" repo; mv repo/.git away.git; ln -s ../away.git repo/.git; git --git-dir=away.git config core.worktree ../repo`},
	{name: "links within", script: `git clone -q "$ORIGIN" repo; cd repo/.git; mv packed-refs info/p; ln -s info/p packed-refs`},
	{name: "links out of it", script: `git clone -q "$ORIGIN" a; git clone -q "$ORIGIN" repo; rm -r repo/.git/refs; ln -s "$PWD/a/.git/refs" repo/.git/refs`, refused: "leads out of the repository"},
	{name: "HEAD is a link", script: `git clone -q "$ORIGIN" repo; cd repo/.git; rm HEAD; ln -s refs/heads/main HEAD`},
	{name: "a submodule", script: `git init -q -b main super; cd super; git -c protocol.file.allow=always submodule --quiet add "$ORIGIN" sub; ln -s super/sub ../repo`},
	{name: "a submodule of a linked worktree", script: `git init -q -b main super; cd super; git -c protocol.file.allow=always submodule --quiet add "$ORIGIN" sub; git commit -q -m s
git worktree add -q ../wt; cd ../wt; git -c protocol.file.allow=always submodule --quiet update --init; ln -s wt/sub ../repo`},
	{name: "with submodules", script: `git clone -q "$ORIGIN" repo; cd repo; git -c protocol.file.allow=always submodule --quiet add "$ORIGIN" sub; git commit -q -m third`, history: "third\nsecond\nfirst"},
	{name: "sha256", script: `git init -q -b main --object-format=sha256 repo; cd repo; echo a > README; git add .; git commit -q -m first; echo b >> README; git commit -q -a -m second`},
	{name: "sha256, by a short id", ref: "short", script: `git init -q -b main --object-format=sha256 repo; cd repo; echo a > README; git add .; git commit -q -m first; echo b >> README; git commit -q -a -m second`},
	{name: "no branch at HEAD", script: `git clone -q "$ORIGIN" repo; git -C repo symbolic-ref HEAD refs/heads/gone`, ref: "main"},
	{name: "HEAD at a remote's branch", script: `git clone -q "$ORIGIN" repo; git -C repo symbolic-ref HEAD refs/remotes/origin/main`},
	{name: "HEAD at a commit", script: `git clone -q "$ORIGIN" repo; git -C repo checkout -q --detach`},
	{name: "files that differ in case", script: `git clone -q "$ORIGIN" repo; cd repo; git config core.ignoreCase true; echo x > readme; mkdir SRC; echo x > SRC/a.go; git -c core.ignoreCase=false add .; git commit -q -m third`, history: "third\nsecond\nfirst"},
	{name: "a name with spaces and more", script: `git clone -q "$ORIGIN" "a b'c\$d"; ln -s "a b'c\$d" repo`},
	{name: "refs in the format reftable", script: `git clone -q "$ORIGIN" repo; cd repo; git config core.repositoryFormatVersion 1; git config extensions.refStorage reftable; echo 'ref: refs/heads/.invalid' > .git/HEAD`, refused: "refstorage"},
	{name: "an extension that nobody knows", script: `git clone -q "$ORIGIN" repo; cd repo; git config core.repositoryFormatVersion 1; git config extensions.penstock yes`, refused: "penstock"},
	{name: "a format of the future", script: `git clone -q "$ORIGIN" repo; git -C repo config core.repositoryFormatVersion 9`, refused: "newer git"},
	{name: "a bundle", script: `git -C "$ORIGIN" bundle create -q "$PWD/repo" --all`, refused: "git clone"},
}

// kindsOrigin is what the kinds are made of.
func kindsOrigin(t *testing.T) string {
	t.Helper()
	origin := newRepo(t)
	sh(t, origin, `git config uploadpack.allowFilter true
echo more >> README; git commit -q -a -m second; git switch -q -c side HEAD~1; echo x > x; git add x; git commit -q -m side; git switch -q main`)
	return origin
}

// TestEveryKindOfRepository: of each that git works in a job begins, has its
// history, and brings its result back; or it is refused, once and for all, with
// what stands in the way.
func TestEveryKindOfRepository(t *testing.T) {
	t.Parallel()
	origin := kindsOrigin(t)
	for _, c := range kinds {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sh(t, dir, "ORIGIN='"+origin+"'\n"+c.script)
			repo := filepath.Join(dir, "repo")
			if c.ref == "short" {
				c.ref = run(t, repo, "git", "rev-parse", "--short=10", "HEAD")
			}
			s := openJailed(t, Limits{})
			if c.refused != "" {
				_, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo, Ref: c.ref}, Isolation: jobs.IsolationWorktree})
				if !refusedAs(jobs.RepoUnsupported)(err) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %T %v, want a refusal with %q", err, err, c.refused)
				}
				nothingLeft(t, s)
				return
			}
			w := prepareAs(t, s, "job.1", jobs.Repo{URL: repo, Ref: c.ref}, jobs.IsolationWorktree)
			want := c.history
			if want == "" {
				want = "second\nfirst"
			}
			if got := run(t, w.Dir(), "git", "log", "--format=%s"); got != want {
				t.Errorf("got history %q, want %q", got, want)
			}
			run(t, w.Dir(), "git", "fsck")
			change := work(t, w)
			if change.Files != 2 || len(change.Notes) > 0 {
				t.Errorf("got %d files, notes %q; want 2 and none", change.Files, change.Notes)
			}
			got := deliver(t, change, deliveryTo(repo, "penstock/x"))
			if there := run(t, repo, "git", "rev-parse", "penstock/x"); there != got.Commit {
				t.Errorf("the branch leads to %s, want %s", there, got.Commit)
			}
		})
	}
}

// TestKindsOverHTTP: a server's repository may be of these kinds, too.
func TestKindsOverHTTP(t *testing.T) {
	t.Parallel()
	origin := kindsOrigin(t)
	for _, c := range kinds {
		switch c.name {
		case "bare", "shallow and bare", "a partial clone that has the files", "a partial clone without trees", "sha256, by a short id", "no branch at HEAD", "an extension that nobody knows":
		default:
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sh(t, dir, "ORIGIN='"+origin+"'\n"+c.script)
			if c.ref == "short" {
				c.ref = run(t, filepath.Join(dir, "repo"), "git", "rev-parse", "--short=10", "HEAD")
			}
			address := strings.Replace(serve(t, dir).URL, "http://", "http://u:s3cret@", 1) + "/repo"
			s := open(t, Limits{})
			w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: address, Ref: c.ref}, Isolation: jobs.IsolationWorktree})
			switch {
			case c.refused == "partial clone":
				if !refusedAs(jobs.RepoUnsupported)(err) {
					t.Errorf("got %v, want a refusal", err)
				}
			case c.refused != "":
				if !isA[*source.UnreachableError](err) { // the server does not say more
					t.Errorf("got %v, want an UnreachableError", err)
				}
			case err != nil:
				t.Error(err)
			default:
				run(t, w.Dir(), "git", "fsck")
				if err := w.remove(); err != nil {
					t.Error(err)
				}
			}
			nothingLeft(t, s)
		})
	}
}

// TestHistoryThatCameLater: a mirror of a repository that was shallow has all of
// the history as soon as the repository has it.
func TestHistoryThatCameLater(t *testing.T) {
	t.Parallel()
	origin, dir := kindsOrigin(t), t.TempDir()
	sh(t, dir, "git clone -q --depth 1 'file://"+origin+"' repo")
	repo, s := filepath.Join(dir, "repo"), open(t, Limits{})
	before := prepare(t, s, "job.1", repo)
	sh(t, repo, "git fetch -q --unshallow; git commit -q --allow-empty -m third")
	after := prepare(t, s, "job.2", repo)
	for w, want := range map[*Workspace]string{before: "second", after: "third\nsecond\nfirst"} {
		if got := run(t, w.Dir(), "git", "log", "--format=%s"); got != want {
			t.Errorf("got history %q, want %q", got, want)
		}
		run(t, w.Dir(), "git", "fsck")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestIdOfAnotherFormat: an id of SHA-1 in a repository of SHA-256 is a commit
// that is not there, and spoils nothing for the next job.
func TestIdOfAnotherFormat(t *testing.T) {
	t.Parallel()
	repo, s := newRepo(t), open(t, Limits{})
	sh(t, repo, "rm -rf .git; git init -q -b main --object-format=sha256; git add -A; git commit -q -m x")
	for range 2 {
		_, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo, Commit: strings.Repeat("1", 40)}, Isolation: jobs.IsolationWorktree})
		if !isA[*source.RefError](err) {
			t.Errorf("got %v, want a RefError", err)
		}
		w := prepare(t, s, "job.2", repo)
		run(t, w.Dir(), "git", "fsck")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
