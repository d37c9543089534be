package workspace

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// past makes a repository with a commit for each script, and returns them.
// Most of its files never change, so that a delta pays.
func past(tb testing.TB, scripts ...string) (repo string, commits []string) {
	tb.Helper()
	repo = newRepo(tb)
	sh(tb, repo, "mkdir -p lots/of; for i in $(seq 200); do echo $i > lots/of/$i; done; printf 'a\\nb\\n' > lots/a.txt; git add -A; git commit -qm lots")
	commits = append(commits, run(tb, repo, "git", "rev-parse", "HEAD"))
	for _, script := range scripts {
		sh(tb, repo, script+"\ngit add -A; git commit -q --allow-empty -m next")
		commits = append(commits, run(tb, repo, "git", "rev-parse", "HEAD"))
	}
	return repo, commits
}

// prepareAt prepares an overlay of a commit.
func prepareAt(tb testing.TB, s *Spaces, repo, commit string) *Workspace {
	tb.Helper()
	w, err := s.Prepare(tb.Context(), Request{ID: "at." + commit, Repo: jobs.Repo{URL: repo, Commit: commit, Ref: "from-" + commit[:7]}, Isolation: jobs.IsolationWorktree})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func closeAll(tb testing.TB, all ...*Workspace) {
	tb.Helper()
	for _, w := range all {
		if err := w.remove(); err != nil {
			tb.Error(err)
		}
	}
}

// census prints all that an agent finds: files with kind, mode, target and
// content; what git says of them; and what its index says without a look inside.
const census = `find . -path ./.git -prune -o -printf '%y %m %p %l\n' | sort
find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum
git diff-files; git -c core.fsmonitor=false diff-files; git status --porcelain --ignored; git ls-files -s; git for-each-ref; git log --oneline; git fsck`

// TestDeltas goes from commit to commit, over deltas and with whole templates,
// and finds the same.
func TestDeltas(t *testing.T) {
	t.Parallel()
	scripts := []string{
		"echo more >> README; git rm -q src/a.go; echo new > src/new.go",
		"rm README; mkdir README; echo x > README/x; rm src/b.go; ln -s ../many src/b.go", // files to a directory, to a link
		"rm -r README many; echo file > many; chmod +x lots/of/1; chmod -x tools/fmt.sh",  // and back, a directory to a file
		"rm many; mkdir -p many/deep; git mv lots/of many/deep/er; git mv many/deep/er lots/of; echo '*.tmp' > lots/.gitignore",
		"git rm -q -r src tools; mkdir -p src/.x; echo y > src/.x/y; rm link; ln -s lots link",
		"echo '*.txt text eol=crlf' > .gitattributes", // of the file itself nothing changes
		"git tag x; git update-ref refs/heads/other HEAD; rm lots/.gitignore; for i in $(seq 30); do echo $i >> lots/of/$i; done",
	}
	if !testing.Short() {
		for seed := range 8 {
			scripts = append(scripts, edits(rand.New(rand.NewPCG(uint64(seed), 2))))
		}
	}
	repo, commits := past(t, scripts...)
	s, told := openAs(t, Overlay, Limits{}), openAs(t, Overlay, monitored)
	deltas, deepest := 0, 0
	for i, commit := range commits {
		whole := openAs(t, Overlay, Limits{})
		a, b, c := prepareAt(t, s, repo, commit), prepareAt(t, whole, repo, commit), prepareAt(t, told, repo, commit)
		want := act(t, b, census)
		if got := act(t, a, census); got != want {
			t.Errorf("commit %d, over %d others: got\n%s\nwant\n%s", i, len(a.base.Trees)-1, got, want)
		}
		if got := act(t, c, census); got != want {
			t.Errorf("commit %d, over %d others, with a monitor: got\n%s\nwant\n%s", i, len(c.base.Trees)-1, got, want)
		}
		if len(b.base.Trees) != 1 {
			t.Errorf("a template over nothing has %d directories", len(b.base.Trees))
		}
		deltas, deepest = deltas+min(1, len(a.base.Trees)-1), max(deepest, len(a.base.Trees))
		closeAll(t, a, b, c)
	}
	if deltas < len(commits)/2 || deepest != 4 {
		t.Errorf("%d deltas, at most %d directories: that proves little", deltas, deepest)
	}
}

// TestDeltaCollects: what an agent does over a delta comes out as from a clone.
func TestDeltaCollects(t *testing.T) {
	t.Parallel()
	repo, commits := past(t, "rm README many/f1; echo '*.tmp' > src/.gitignore", "rm -r many; mkdir many; echo x > many/x; echo y > README; rm src/.gitignore; echo '*.log' > many/.gitignore")
	for name, script := range map[string]string{
		"edit":      "echo more >> README; rm lots/of/7; echo z > many/z; echo z > many/z.log; echo z > src/z.tmp",
		"renamed":   "mv many more || true; mv lots less || true; mv less/of less/off || true; rm -f less/off/3",
		"replaced":  "rm -r many; echo x > many; rm README; mkdir README; echo x > README/x",
		"put back":  "rm -r many; mkdir many; for i in 1 2 3; do echo file $i > many/f$i; done; printf 'hello\\nworld\\n' > README",
		"commits":   "{ git mv many lots/many 2>/dev/null || mv many lots; }; git add -A; git commit -qm one; echo x > y",
		"read only": "cat README many/* > /dev/null",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			spaces := map[Strategy]*Workspace{}
			for _, way := range []Strategy{Clone, Overlay} {
				s := openAs(t, way, Limits{})
				closeAll(t, prepareAt(t, s, repo, commits[0]), prepareAt(t, s, repo, commits[1]))
				spaces[way] = prepareAt(t, s, repo, commits[2])
			}
			if n := len(spaces[Overlay].base.Trees); n != 3 {
				t.Fatalf("got a template of %d directories, want 3", n)
			}
			found := map[Strategy]string{}
			for way, w := range spaces {
				act(t, w, script)
				found[way] = picked(t, w)
			}
			if found[Clone] != found[Overlay] {
				t.Errorf("of an overlay are picked\n%s\nof a clone\n%s", found[Overlay], found[Clone])
			}
			same(t, spaces, "true")
		})
	}
}

// TestDeltaKeepsWhatIsBelow: no sweep removes a template that shows through
// another one, and what is on a template of its own goes first.
// A template over which none can be made does not keep its neighbours from
// having one.
func TestADamagedTemplateIsLeftAlone(t *testing.T) {
	t.Parallel()
	repo, commits := past(t, "echo more >> README")
	s := openAs(t, Overlay, Limits{})
	first := prepareAt(t, s, repo, commits[0])
	lock := filepath.Join(first.base.Dir, "template", "tree/.git/index.lock") // which no git goes past
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := prepareAt(t, s, repo, commits[1])
	if n := len(second.base.Trees); n != 1 {
		t.Errorf("the template has %d directories, want one of its own", n)
	}
	if got := act(t, second, "git status --porcelain; tail -n 1 README"); got != "more\n" {
		t.Errorf("got %q", got)
	}
	closeAll(t, first, second)
}

func TestDeltaKeepsWhatIsBelow(t *testing.T) {
	repo, commits := past(t, "echo x > x", "echo y > y")
	s := openAs(t, Overlay, Limits{BaseAge: time.Nanosecond})
	closeAll(t, prepareAt(t, s, repo, commits[0]), prepareAt(t, s, repo, commits[1]))
	w := prepareAt(t, s, repo, commits[2])
	for _, remove := range []func() (int, error){
		func() (int, error) { swept, err := s.Sweep(t.Context()); return swept.Bases, err },
		func() (int, error) { return s.Evict(t.Context(), func() bool { return false }) },
	} {
		if removed, err := remove(); removed != 0 || err != nil {
			t.Errorf("%d bases were removed below a workspace, err %v", removed, err)
		}
		if got := act(t, w, "cat lots/of/1 x y; git status --porcelain"); got != "1\nx\ny\n" {
			t.Errorf("got %q", got)
		}
	}
	closeAll(t, w)
	if removed, err := s.Evict(t.Context(), func() bool { return false }); removed != 3 || err != nil {
		t.Errorf("%d bases were removed, err %v, want all 3: those above first", removed, err)
	}
}
