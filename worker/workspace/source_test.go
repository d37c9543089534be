package workspace

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

func TestRefs(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	sh(t, repo, `git tag v1; git tag -am annotated v2; git switch -qc feature/x; echo x > x; git add x; git commit -qm x
git switch -q main; git branch both; git tag both feature/x; git tag blob $(git rev-parse HEAD:README)`)
	rev := func(name string) string { return run(t, repo, "git", "rev-parse", name) }
	mainID, featureID := rev("main"), rev("feature/x")
	s := open(t, Limits{})
	for i, c := range []struct {
		repo jobs.Repo
		want string
	}{
		{jobs.Repo{}, mainID},
		{jobs.Repo{Ref: "main"}, mainID},
		{jobs.Repo{Ref: "refs/heads/main"}, mainID},
		{jobs.Repo{Ref: "feature/x"}, featureID},
		{jobs.Repo{Ref: "v1"}, mainID},
		{jobs.Repo{Ref: "v2"}, mainID},
		{jobs.Repo{Ref: "both"}, mainID},
		{jobs.Repo{Ref: featureID}, featureID},
		{jobs.Repo{Ref: featureID[:10]}, featureID},
		{jobs.Repo{Commit: featureID}, featureID},
		{jobs.Repo{Ref: "main", Commit: featureID}, featureID},
		{jobs.Repo{Ref: "nothing"}, ""},
		{jobs.Repo{Ref: "abcdef1234"}, ""},
		{jobs.Repo{Ref: "blob"}, ""},
		{jobs.Repo{Commit: strings.Repeat("1", 40)}, ""},
		{jobs.Repo{Commit: rev("v2")}, ""},
	} {
		c.repo.URL = repo
		id := fmt.Sprintf("job.%d", i)
		if c.want == "" {
			_, err := s.Prepare(t.Context(), Request{ID: id, Repo: c.repo, Isolation: jobs.IsolationWorktree})
			if _, ok := errors.AsType[*source.RefError](err); !ok || !strings.Contains(err.Error(), repo) {
				t.Errorf("%v: got %v, want a RefError that names the repository", c.repo, err)
			}
			continue
		}
		w := prepareAs(t, s, id, c.repo, jobs.IsolationWorktree)
		if got := run(t, w.Dir(), "git", "rev-parse", "HEAD"); got != c.want || w.Base() != c.want {
			t.Errorf("%v: got %s and base %s, want %s", c.repo, got, w.Base(), c.want)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBranchMoves(t *testing.T) {
	t.Parallel()
	repo, s := newRepo(t), open(t, Limits{})
	first := prepare(t, s, "job.1", repo)
	sh(t, repo, "echo x > x; git add x; git commit -qm second")
	second := prepare(t, s, "job.2", repo)
	if first.Base() == second.Base() || second.Base() != run(t, repo, "git", "rev-parse", "main") {
		t.Errorf("got bases %s and %s after a commit", first.Base(), second.Base())
	}
	sh(t, repo, "git reset -q --hard HEAD~1; echo y > y; git add y; git commit -qm forced; git gc -q --prune=now")
	third := prepare(t, s, "job.3", repo)
	if want := run(t, repo, "git", "rev-parse", "main"); third.Base() != want {
		t.Errorf("got base %s after a forced update, want %s", third.Base(), want)
	}
	// The commit that the user's repository has lost is still ours.
	again := prepareAs(t, s, "job.4", jobs.Repo{URL: repo, Commit: second.Base()}, jobs.IsolationWorktree)
	run(t, again.Dir(), "git", "fsck")
	for _, w := range []*Workspace{first, second, third, again} {
		w.Close()
	}
}

func TestAllPathsOfARepositoryAreOneSource(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	linked := filepath.Join(t.TempDir(), "linked")
	run(t, repo, "git", "worktree", "add", "-q", "-b", "side", linked)
	sh(t, linked, "echo x > x; git add x; git commit -qm side")
	link := filepath.Join(t.TempDir(), "link")
	symlink(t, repo, link)
	s := open(t, Limits{})
	want, err := s.access.Locate(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{repo + "/", filepath.Join(repo, "src"), filepath.Join(repo, ".git"), linked, link, "file://" + repo} {
		got, err := s.access.Locate(t.Context(), path)
		if err != nil || got.Key != want.Key {
			t.Errorf("%s: got source %s, %v; want %s", path, got.Remote.URL, err, want.Remote.URL)
		}
	}
	before := run(t, repo, "git", "worktree", "list")
	w := prepare(t, s, "job.1", linked)
	if want := run(t, linked, "git", "rev-parse", "HEAD"); w.Base() != want {
		t.Errorf("from a linked worktree: got base %s, want its own HEAD %s", w.Base(), want)
	}
	sh(t, linked, "git checkout -q --detach; echo y > y; git add y; git commit -qm detached")
	detached := prepare(t, s, "job.2", linked)
	if want := run(t, linked, "git", "rev-parse", "HEAD"); detached.Base() != want {
		t.Errorf("from a detached worktree: got base %s, want %s", detached.Base(), want)
	}
	if after := run(t, repo, "git", "worktree", "list"); strings.Count(after, "\n") != strings.Count(before, "\n") {
		t.Errorf("git worktree list: %s\nwas %s", after, before)
	}
	w.Close()
	detached.Close()
}

func TestForgedLinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	private, dir := newRepo(t), t.TempDir()
	for i, script := range []string{
		"echo \"gitdir: $PRIVATE/.git\" > .git",
		"mkdir -p e/objects e/refs; echo 'ref: refs/heads/main' > e/HEAD; echo \"$PRIVATE/.git\" > e/commondir; echo 'gitdir: e' > .git",
		"mkdir -p e/objects e/refs; echo 'ref: refs/heads/main' > e/HEAD; echo \"$PRIVATE/.git\" > e/commondir; echo \"$PWD/.git\" > e/gitdir; echo 'gitdir: e' > .git",
		"mkdir -p .git/objects .git/refs; echo 'ref: refs/heads/main' > .git/HEAD; echo \"$PRIVATE/.git\" > .git/commondir",
		"ln -s \"$PRIVATE/.git\" .git",
		"git init -q -b main; rm -r .git/refs .git/objects; ln -s \"$PRIVATE/.git/refs\" .git/refs; ln -s \"$PRIVATE/.git/objects\" .git/objects",
		"mkdir -p .m/.git/modules/x; cp -r \"$PRIVATE/.git/.\" .m/.git/modules/x; echo 'gitdir: .m/.git/modules/x' > .git",
	} {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		sh(t, at, "PRIVATE='"+private+"'\n"+script)
		_, err := open(t, Limits{}).Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: at}, Isolation: jobs.IsolationWorktree})
		if !refusedAs(jobs.RepoUnsupported)(err) {
			t.Errorf("%s: got %v, want a refusal", script, err)
		}
	}
}

func TestErrorsNameTheRepository(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	unborn := t.TempDir()
	run(t, unborn, "git", "init", "-q")
	fifo := newRepo(t)
	sh(t, fifo, "mkfifo .git/refs/heads/stuck")
	refused := httptest.NewServer(http.NotFoundHandler())
	defer refused.Close()
	secret := strings.Replace(refused.URL, "http://", "http://user:s3cret@", 1) + "/acme/web.git?token=t0ken"
	for _, c := range []struct {
		url, want string
		is        func(error) bool
	}{
		{filepath.Join(empty, "missing"), "missing", isA[*source.UnreachableError]},
		{empty, "git init", refusedAs(jobs.NotARepository)},
		{unborn, "no commit", isA[*source.RefError]},
		{fifo, "stuck", refusedAs(jobs.RepoUnsupported)},
		{secret, "/acme/web.git", isA[*source.UnreachableError]},
		{"https://nowhere.invalid/x", "nowhere.invalid", isA[*source.UnreachableError]},
		{"git@nowhere.invalid:x", "nowhere.invalid", isA[*source.UnreachableError]},
	} {
		s := open(t, Limits{})
		_, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: c.url}, Isolation: jobs.IsolationWorktree})
		if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %T %v, want %q in it", c.url, err, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "t0ken")) {
			t.Errorf("%s: the error tells the password: %v", c.url, err)
		}
		nothingLeft(t, s)
	}
}

func refusedAs(reason jobs.Reason) func(error) bool {
	return func(err error) bool {
		refused, ok := errors.AsType[*source.RefusedError](err)
		return ok && refused.Reason == reason
	}
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func TestOneFetchForAll(t *testing.T) {
	t.Parallel()
	repo, dir := newRepo(t), t.TempDir()
	var fetches atomic.Int32
	var all []*Spaces // two workers on one directory
	for range 2 {
		s, err := Open(t.Context(), Config{Dir: dir, Hooks: Hooks{Fetched: func(string, time.Duration) { fetches.Add(1) }}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			w, err := all[i%2].Prepare(t.Context(), Request{ID: fmt.Sprintf("job.%d", i), Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
			if err != nil {
				t.Error(err)
				return
			}
			write(t, w.Dir(), "new", "x\n")
			if c, err := w.Collect(t.Context()); err != nil || c.Files != 1 {
				t.Errorf("got %d files, %v", c.Files, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := fetches.Load(); got != 1 {
		t.Errorf("got %d fetches, want 1", got)
	}
	nothingLeft(t, all[0])
}

func TestSameWorkspaceTwice(t *testing.T) {
	t.Parallel()
	repo, s := newRepo(t), open(t, Limits{})
	w := prepare(t, s, "job.1", repo)
	_, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	if !errors.Is(err, disk.ErrLocked) {
		t.Errorf("got %v, want %v", err, disk.ErrLocked)
	}
	if _, err := os.Stat(w.Dir()); err != nil {
		t.Errorf("the first was harmed: %v", err)
	}
	for _, id := range []string{"", "..", "a/b", "A", ".x", strings.Repeat("a", 200)} {
		if _, err := s.Prepare(t.Context(), Request{ID: id}); err == nil {
			t.Errorf("id %q was accepted", id)
		}
	}
}

func TestDamagedMirrorIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{
		`for p in mirror.git/objects/pack/*.pack; do chmod +w "$p"; printf garbage | dd of="$p" bs=1 seek=200 conv=notrunc 2>/dev/null; done`,
		`rm -f mirror.git/objects/pack/*`,
		`rm -rf mirror.git; mkdir mirror.git`,
		`rm mirror.git/HEAD`,
		`touch unfinished mirror.git/shallow.lock mirror.git/packed-refs.lock mirror.git/objects/pack/tmp_pack_x`,
		`touch unfinished; rm -f mirror.git/objects/pack/*`,
		`rm -rf mirror.git; touch unfinished`,
		`mkdir -p new-mirror/x new-base/y`,
	} {
		repo, s := newRepo(t), open(t, Limits{})
		src, err := s.access.Locate(t.Context(), repo)
		if err != nil {
			t.Fatal(err)
		}
		w := prepare(t, s, "job.1", repo)
		w.Close()
		sh(t, repo, "echo x > x; git add x; git commit -qm second")
		sh(t, filepath.Join(s.cfg.Dir, "mirrors", src.Key), damage)
		w, err = s.Prepare(t.Context(), Request{ID: "job.2", Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
		if err != nil {
			t.Errorf("%s: %v", damage, err)
			continue
		}
		run(t, w.Dir(), "git", "fsck")
		if got := run(t, w.Dir(), "git", "log", "--format=%s"); got != "second\nfirst" {
			t.Errorf("%s: got history %q", damage, got)
		}
		w.Close()
		run(t, "/", "git", "--git-dir="+filepath.Join(s.cfg.Dir, "mirrors", src.Key, "mirror.git"), "fsck")
		nothingLeft(t, s)
	}
}

func TestLongHistoryIsCut(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	sh(t, repo, "for i in $(seq 70); do git commit -q --allow-empty -m $i; done")
	w := prepare(t, openJailed(t, Limits{History: 1}), "job.1", repo)
	if got := run(t, w.Dir(), "git", "rev-list", "--count", "HEAD"); got != "50" {
		t.Errorf("got %s commits of history, want 50", got)
	}
	sh(t, w.Dir(), "echo x > x; git add x; git commit -qm work; git fsck")
	change := collect(t, w)
	if change.Commits != 1 || len(change.Notes) > 0 {
		t.Errorf("got %d commits, notes %q", change.Commits, change.Notes)
	}
	run(t, repo, "git", "fetch", "-q", change.Bundle, "agent:got")
	run(t, repo, "git", "fsck")
}

func TestUnusualRepositories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, setup, work, want string }{
		{"sha256", "rm -rf .git; git init -q -b main --object-format=sha256; git add -A -f; git commit -qm x", "echo new > new", "+new"},
		{"crlf", "printf '* text=auto eol=crlf\\n' > .gitattributes; git add -A; git commit -qm x", "printf 'one\\r\\ntwo\\r\\n' > new; printf 'hello\\r\\nworld\\r\\nmore\\r\\n' > README", "+more\n"},
		{"crlf in the repository", "printf 'a\\r\\nb\\r\\n' > dos; git add dos; git commit -qm x", "printf 'c\\r\\n' >> dos", "+c\r\n"},
		{"crlf under text=auto", "printf 'a\\r\\nb\\r\\n' > dos; git add dos; git commit -qm x; printf '* text=auto\\n' > .gitattributes; git add .gitattributes; git commit -qm y", "printf 'c\\r\\n' >> dos", "+c\r\n"},
		{"utf-16", "printf '*.u working-tree-encoding=UTF-16LE eol=lf\\n' > .gitattributes; printf 'a\\0\\n\\0' > x.u; git add -A; git commit -qm x", "printf 'b\\0\\n\\0' >> x.u", "+b\n"},
		{"utf-16 that is none", "printf '*.u working-tree-encoding=UTF-16\\n' > .gitattributes; git add -A; git commit -qm x", "printf 'abc' > x.u; echo y > y", "+y\n"},
		{"ident", "printf '*.c ident\\n' > .gitattributes; printf '$Id$\\n' > x.c; git add -A; git commit -qm x", "echo y >> x.c", "+y\n"},
		{"lfs pointer", "printf '*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes; printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize 1\\n' > x.bin; git add -A; git commit -qm x", "echo y > y", "+y\n"},
		{"submodule", "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; git -c protocol.file.allow=always submodule add -q $(cd ../sub; pwd) sub; git commit -qm x", "echo x > sub/inside; echo y > y", "+y\n"},
		{"submodule removed", "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; git -c protocol.file.allow=always submodule add -q $(cd ../sub; pwd) sub; git commit -qm x", "rmdir sub", "-Subproject"},
		{"names", "mkdir 'a b'; echo x > \"a b/$(printf 'x\\ny\\377')\"; git add -A; git commit -qm x", "echo more >> \"a b/$(printf 'x\\ny\\377')\"", "+more\n"},
		{"packed refs and reflogs", "git commit -q --allow-empty -m y; git pack-refs --all; git gc -q", "echo y > y", "+y\n"},
		{"shared objects", "git clone -q --shared . ../shared; rm -rf .git; cp -r ../shared/.git .git", "echo y > y", "+y\n"},
		{"only ignored changes", "true", "echo x > x.log", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := newRepo(t)
			if c.name == "shared objects" {
				origin := newRepo(t)
				c.setup = "rm -rf .git; git clone -q --shared --no-checkout '" + origin + "' .s; mv .s/.git .git; rmdir .s; git reset -q"
			}
			sh(t, repo, c.setup)
			w := prepare(t, open(t, Limits{}), "job.1", repo)
			if got := run(t, w.Dir(), "git", "status", "--porcelain"); got != "" && c.name != "submodule" {
				t.Errorf("a fresh workspace is not clean: %s", got)
			}
			sh(t, w.Dir(), c.work)
			change := collect(t, w)
			if got := patch(t, change); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got patch\n%q\nwant %q in it", got, c.want)
			}
			if change.Files > 2 {
				t.Errorf("got %d changed files:\n%s", change.Files, patch(t, change))
			}
		})
	}
}
