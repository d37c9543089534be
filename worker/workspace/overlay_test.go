package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
)

// act runs a script as an agent would: in a jail that shows the workspace.
func act(tb testing.TB, w *Workspace, script string) string {
	tb.Helper()
	var out bytes.Buffer
	spec := sandbox.Spec{
		Args: []string{"bash", "-ec", script},
		Env:  []string{"PATH=/usr/bin:/bin", "HOME=" + sandbox.HomePath, "GIT_AUTHOR_DATE=@0 +0000", "GIT_COMMITTER_DATE=@0 +0000"},
	}
	w.Show(&spec)
	exit, err := sandbox.Run(tb.Context(), w.spaces.cfg.Jail, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil || !exit.Success() {
		tb.Fatalf("%s: got %v, err %v: %s", script, exit, err, out.String())
	}
	return out.String()
}

// both prepares the same workspace by each strategy.
func both(tb testing.TB, repo string) map[Strategy]*Workspace {
	tb.Helper()
	spaces := map[Strategy]*Workspace{}
	for _, s := range []Strategy{Clone, Overlay} {
		spaces[s] = prepareAs(tb, openAs(tb, s, Limits{}), "job.1", jobs.Repo{URL: repo}, jobs.IsolationWorktree)
		if (spaces[s].Strategy() == Overlay) != (s == Overlay) {
			tb.Fatalf("strategy %s made another workspace", s)
		}
	}
	return spaces
}

func TestOverlayCollectsWhatACloneDoes(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"nothing":                      "true",
		"edit":                         "echo more >> README; echo new > src/new.go; rm many/f1",
		"modes":                        "chmod +x README; chmod -x tools/fmt.sh",
		"touched, not changed":         "touch README; cp -p src/a.go x; cat x > src/a.go; rm x",
		"links":                        "ln -sf src link; ln -s /etc/passwd out; rm README; ln -s tools README",
		"directory removed":            "rm -r many",
		"directory removed and made":   "rm -r many; mkdir many; echo x > many/f1; echo file 2 > many/f2",
		"directory made, same content": "cp -r many m; rm -r many; mv m many",
		"directory renamed":            "mv many lots; echo x >> lots/f3; rm lots/f4",
		"directory renamed in a new":   "mkdir -p a/b; mv many a/b/c; mv a/b d",
		"directories swapped":          "mv many x; mv src many; mv x src",
		"renamed twice":                "mv many a; mv a b; rm b/f0",
		"renamed and another in place": "mv many a; mkdir many; echo y > many/f1",
		"file to directory":            "rm README; mkdir README; echo x > README/x",
		"file to empty directory":      "rm README; mkdir README",
		"directory to file":            "rm -r many; echo x > many",
		"ignored":                      "echo x > a.log; mkdir out; echo x > out/x; echo y >> kept.log",
		"ignore file changed":          "echo '*.tmp' > .gitignore; echo x > a.tmp; echo x > a.log; echo x > src/b.log",
		"ignore file removed":          "rm .gitignore; echo x > a.log",
		"ignore file below":            "echo '*' > src/.gitignore; echo x > src/x; echo y >> src/a.go",
		"ignored file forced":          "echo x > f.log; git add -f f.log; git commit -qm x",
		"attributes":                   "echo '* text eol=crlf' > .gitattributes; printf 'a\\r\\nb\\n' > src/a.go",
		"fifo":                         "rm README; mkfifo README; mkfifo new",
		"nested repository":            "git init -q sub; echo x > sub/x",
		"hostile names":                `echo x > $'a\nb'; echo x > -- '--help'; echo x > $'\xff'; echo x > '"q"'; mkdir $'d\\'; echo x > $'d\\/e'`,
		"commits":                      "git mv many lots 2>/dev/null || { mv many lots; git add -A; }; git commit -qm one; echo x > y; git add y; git commit -qm two; echo z >> y",
		"history":                      "git checkout -q -b other; git commit -q --allow-empty -m e; git gc -q; git stash -q || true",
		"made-up marks": `for m in opaque=y redirect=/many redirect=/../../x redirect=../x; do d=src; [ $m = opaque=y ] && d=many
			python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.overlay." + sys.argv[2], sys.argv[3].encode())' $d ${m%=*} ${m#*=} || true; done; touch many/new src/new`,
		"mode 000": "mkdir h; echo x > h/x; chmod 000 h; echo y > y; chmod 000 y",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			same(t, both(t, newRepo(t)), script)
		})
	}
}

// same fails unless both workspaces collect the same after script.
func same(t *testing.T, spaces map[Strategy]*Workspace, script string) {
	t.Helper()
	got := map[Strategy]string{}
	for s, w := range spaces {
		act(t, w, script)
		got[s] = collected(t, w)
		if err := w.remove(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, w.spaces)
	}
	if got[Clone] != got[Overlay] {
		t.Errorf("after %s\nan overlay has\n%s\na clone has\n%s", script, got[Overlay], got[Clone])
	}
}

// collected tells all that a workspace has collected.
func collected(t *testing.T, w *Workspace) string {
	t.Helper()
	c := collect(t, w)
	return fmt.Sprintf("%d files, %d commits, notable %q, skipped %q, notes %q\n%s", c.Files, c.Commits, c.Notable, c.Skipped, c.Notes, patch(t, c))
}

func TestStrategies(t *testing.T) {
	t.Parallel()
	s := openAs(t, Auto, Limits{})
	if err := s.Try(t.Context(), "hardlinks"); err == nil || !strings.Contains(err.Error(), "overlay") {
		t.Errorf("got %v, want the known strategies named", err)
	}
	repo := jobs.Repo{URL: newRepo(t)}
	for _, c := range []struct {
		request Request
		want    Strategy
	}{
		{Request{ID: "a.1", Repo: repo, Isolation: jobs.IsolationWorktree}, Overlay},
		{Request{ID: "b.1", Repo: repo, Isolation: jobs.IsolationWorktree, Plain: true}, Clone},
		{Request{ID: "c.1", Repo: repo, Isolation: jobs.IsolationNone}, ""},
	} {
		w, err := s.Prepare(t.Context(), c.request)
		if err != nil || w.Strategy() != c.want {
			t.Fatalf("%+v: got %v, err %v, want %q", c.request, w, err, c.want)
		}
		if err := w.remove(); err != nil {
			t.Error(err)
		}
	}
	forced := openAs(t, Overlay, Limits{})
	if _, err := forced.Prepare(t.Context(), Request{ID: "d.1", Repo: repo, Isolation: jobs.IsolationWorktree, Plain: true}); err == nil {
		t.Error("an overlay was made for a jail that cannot show it")
	}
	nothingLeft(t, forced)
	unjailed, err := Open(t.Context(), Config{Dir: t.TempDir(), Strategy: Overlay})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unjailed.Prepare(t.Context(), Request{ID: "e.1", Repo: repo, Isolation: jobs.IsolationWorktree}); err == nil || !strings.Contains(err.Error(), "no jail") {
		t.Errorf("got %v, want a word about the jail", err)
	}
}

// TestOverlayIsSalvaged: after the death of its owner the upper directory is
// collected as if nothing had happened.
func TestOverlayIsSalvaged(t *testing.T) {
	s := openAs(t, Overlay, Limits{})
	w := prepareAs(t, s, "job.1", jobs.Repo{URL: newRepo(t)}, jobs.IsolationWorktree)
	act(t, w, "git mv many lots; git commit -qm moved; echo x > new")
	if err := errors.Join(w.lock.Release(), w.base.Release()); err != nil { // as the kernel would
		t.Fatal(err)
	}
	w.lock = nil // nothing is left to close
	var got Change
	s.cfg.Salvage = func(ctx context.Context, w *Workspace) (err error) {
		if got, err = w.Collect(ctx); err != nil {
			return err
		}
		return w.Saved(receipt(got))
	}
	swept, err := s.Sweep(t.Context())
	if err != nil || len(swept.Workspaces) != 1 || got.Commits != 2 || got.Files != 21 {
		t.Errorf("got %+v, %+v, err %v", swept, got, err)
	}
	nothingLeft(t, s)
}

// TestRandomEdits compares the two ways after random scripts.
func TestRandomEdits(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	repo := newRepo(t)
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			same(t, both(t, repo), edits(rand.New(rand.NewPCG(uint64(seed), 1))))
		})
	}
}

// edits writes a script of changes, each of which may fail. It renames
// nothing to a name that is ignored: there an overlay keeps what "git mv"
// would, and a clone cannot know.
func edits(r *rand.Rand) string {
	names := []string{"README", "src", "src/a.go", "src/b.go", "tools", "tools/fmt.sh", "many", "many/f1", "many/f2", "link", "new", "new/x", "new/y", "z/q"}
	name := func() string { return names[r.IntN(len(names))] }
	lines := []string{"set +e"}
	for range 12 {
		a, b := name(), name()
		if strings.HasPrefix(b+"/", a+"/") {
			b = "copy" // cp into itself ends anywhere
		}
		lines = append(lines, []string{
			"echo " + fmt.Sprint(r.IntN(9)) + " >> " + a, "rm -rf " + a, "mkdir -p " + a, "python3 -c 'import os; os.rename(\"" + a + "\",\"" + b + "\")'",
			"mv -T " + a + " " + b, "chmod +x " + a, "ln -sfn " + b + " " + a, "cp -r " + a + " " + b, "echo '*.tmp' > " + filepath.Join(filepath.Dir(a), ".gitignore"),
			"touch " + a, "echo x > " + filepath.Join(filepath.Dir(a), "i.log"), "echo x > " + filepath.Join(filepath.Dir(a), "i.tmp"), "rm -f .gitignore", "rm -f kept.log",
		}[r.IntN(14)]+" 2>/dev/null")
	}
	return strings.Join(append(lines, "true"), "\n")
}
