package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// setUp runs a script as setup, and says whether another's was taken over.
func setUp(tb testing.TB, w *Workspace, key, script string) bool {
	tb.Helper()
	took, reused, err := w.Setup(tb.Context(), key, func(ctx context.Context, in *Workspace) error {
		act(tb, in, script)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	if reused != (took > 0) {
		tb.Errorf("took over %v, which had taken %v", reused, took)
	}
	return reused
}

// threeWays prepares the same workspace as a clone, as an overlay whose setup is
// its own, and as one that takes over what the setup of another wrote.
func threeWays(t *testing.T, repo, setup string) map[string]*Workspace {
	t.Helper()
	spaces := both(t, repo)
	own, s := spaces[Overlay], spaces[Overlay].spaces
	setUp(t, own, "", setup)
	setUp(t, spaces[Clone], "key", setup)
	first := prepareOver(t, s, "first.1", repo)
	if setUp(t, first, "key", setup) {
		t.Error("the first took over what nobody had made")
	}
	second := prepareOver(t, s, "second.1", repo)
	if !setUp(t, second, "key", "exit 1") {
		t.Error("the second made anew what the first had made")
	}
	return map[string]*Workspace{"clone": spaces[Clone], "own": own, "first": first, "second": second}
}

// sameFourTimes fails unless all workspaces collect the same after setup and
// script.
func sameFourTimes(t *testing.T, repo, setup, script string) {
	t.Helper()
	got := map[string]string{}
	spaces := threeWays(t, repo, setup)
	for name, w := range spaces {
		act(t, w, script)
		got[name] = collected(t, w) + picked(t, w)
	}
	for name, text := range got {
		if text != got["clone"] {
			t.Errorf("after setup\n%s\nand job\n%s\nthe workspace %q has\n%s\na clone has\n%s", setup, script, name, text, got["clone"])
		}
	}
	for _, w := range spaces {
		if err := w.remove(); err != nil {
			t.Error(err)
		}
	}
}

// picked tells all files of a workspace.
func picked(t *testing.T, w *Workspace) string {
	t.Helper()
	var all strings.Builder
	left, err := w.Pick(t.Context(), []string{"**"}, func(picked Picked) error {
		data, err := io.ReadAll(picked.Content)
		fmt.Fprintf(&all, "%s: %q\n", picked.Path, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&all, "left %q\n", left)
	return all.String()
}

func TestWhatSetupWroteIsCollectedTheSameFromALayer(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	for name, scripts := range map[string][2]string{
		"nothing at all":        {"true", "true"},
		"setup alone":           {"echo x > gen; echo y >> README; rm many/f1; mkdir out; echo x > out/x", "true"},
		"job alone":             {"true", "echo x > gen; echo y >> README; rm -r many"},
		"job edits setup's":     {"mkdir a; echo x > a/x; echo y > a/y", "echo z >> a/x; rm a/y; echo w > a/w"},
		"job removes setup's":   {"mkdir a; echo x > a/x; echo y >> README", "rm -r a README"},
		"job restores":          {"rm README; echo x >> src/a.go; rm -r many", "git checkout -q -- ."},
		"ignored by setup":      {"mkdir out; echo x > out/x; echo l > a.log", "echo '!*.log' >> .gitignore"},
		"un-ignored by job":     {"mkdir -p out/d; echo x > out/d/x; echo l > a.log", "rm .gitignore"},
		"ignore file by setup":  {"echo '*.tmp' > .gitignore; echo x > a.tmp; echo l > a.log", "echo y > b.tmp; echo l > b.log"},
		"ignore file below":     {"mkdir a; echo '*' > a/.gitignore; echo x > a/x", "echo y > a/y; echo z > z"},
		"ignored file forced":   {"echo x > f.log", "git add -f f.log; git commit -qm x"},
		"replaced by job":       {"rm -r many; echo x > many; mkdir d; echo x > d/x", "rm many; mkdir many; echo y > many/f1; rm -r d; echo d > d"},
		"made again by job":     {"rm -r many", "mkdir many; echo file 1 > many/f1; echo y > many/y"},
		"made again by setup":   {"rm -r many; mkdir many; echo file 1 > many/f1; echo z > many/z", "echo y > many/y; rm many/z"},
		"renamed by setup":      {"mv many lots; echo x >> lots/f3; rm lots/f4", "echo y >> lots/f5; rm lots/f6"},
		"renamed by job":        {"echo x > many/x; rm many/f2", "mv many lots; echo y >> lots/f5"},
		"setup's renamed":       {"mkdir -p a/b; echo x > a/b/x; ln -s x a/b/l", "mv a/b c; mv a d; echo y > c/y"},
		"renamed by both":       {"mv many lots; rm lots/f1", "mkdir n; mv lots n/more; rm n/more/f2; echo y > lots"},
		"renamed twice by both": {"mv many a; mv a b", "mv b c; mv c d; rm d/f0"},
		"renamed and back":      {"mv many lots; echo x > lots/x", "mv lots many; rm many/x"},
		"below a renamed":       {"mkdir a; mv many a/m; echo x > a/m/x", "mv a z; mv z/m q; rm q/f1; echo y > q/y"},
		"swapped by both":       {"mv many x; mv src many; mv x src", "mv many x; mv src many; mv x src"},
		"swapped by job":        {"echo x > many/x; echo y > src/y", "mv many x; mv src many; mv x src; rm src/f1"},
		"removed below renamed": {"mv many lots", "rm -r lots"},
		"modes and links":       {"chmod +x README; ln -sf src link; ln -s /etc/passwd out", "chmod -x README tools/fmt.sh; rm out; ln -s tools out"},
		"links in the way":      {"rm -r many; ln -s src many", "rm many; mkdir many; echo x > many/a.go"},
		"fifos":                 {"mkfifo new; rm README; mkfifo README", "mkfifo more"},
		"attributes":            {"echo '* text eol=crlf' > .gitattributes; printf 'a\\r\\nb\\n' > src/a.go", "printf 'c\\r\\n' > src/c.go"},
		"commits of setup":      {"echo x > x; git add x; git commit -qm one", "echo y > y"},
		"commits of both":       {"echo x > x; git add x; git commit -qm one; echo y > y", "git add y; git commit -qm two; echo z > z"},
		"branch of setup":       {"git checkout -q -b other; git commit -q --allow-empty -m e; git gc -q", "echo x > x; git add x; git commit -qm x; git stash -q || true"},
		"nested repository":     {"git init -q sub; echo x > sub/x", "echo y > sub/y"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			sameFourTimes(t, repo, scripts[0], scripts[1])
		})
	}
}

func TestRandomSetups(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	repo := newRepo(t)
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			sameFourTimes(t, repo, edits(r), edits(r))
		})
	}
}

// prepareOver is prepareAs for tests with several workspaces at once.
func prepareOver(tb testing.TB, s *Spaces, id, repo string) *Workspace {
	tb.Helper()
	w, err := s.Prepare(tb.Context(), Request{ID: id, Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := w.remove(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

func TestSetupRunsOnceForAllWhoWait(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	others, err := Open(t.Context(), s.cfg) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	var runs, reused atomic.Int32
	var all sync.WaitGroup
	for n := range 6 {
		w := prepareOver(t, []*Spaces{s, others}[n%2], fmt.Sprintf("job-%d.1", n), repo)
		all.Go(func() {
			_, taken, err := w.Setup(t.Context(), "key", func(ctx context.Context, in *Workspace) error {
				runs.Add(1)
				return os.WriteFile(filepath.Join(in.Dir(), "made"), []byte("once\n"), 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			if taken {
				reused.Add(1)
			}
			if got := act(t, w, "cat made; echo mine >> made"); got != "once\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
	if runs.Load() != 1 || reused.Load() != 5 {
		t.Errorf("setup ran %d times, and was taken over %d times", runs.Load(), reused.Load())
	}
	layers, err := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/bases/*/layers/key/files/*"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("the layer has %q, err %v", layers, err)
	}
	if got, err := os.ReadFile(layers[0]); err != nil || string(got) != "once\n" {
		t.Errorf("the jobs wrote %q into the layer, err %v", got, err)
	}
}

// Whatever keeps setup from being shared, the job has what setup wrote.
func TestSetupThatIsNotShared(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		script string
		err    error
		before string
		key    string
	}{
		"failed":     {"echo x > x", broken, "", "key"},
		"unreadable": {"echo x > x; chmod 000 x", nil, "", "key"},
		"no entry":   {"mkdir d; echo x > d/x; chmod 000 d", nil, "", "key"},
		"no key":     {"echo x > x", nil, "", ""},
		"seen":       {"echo x > x", nil, "true", "key"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
			for n := range 2 {
				w := prepareOver(t, s, fmt.Sprintf("job-%d.1", n), repo)
				if c.before != "" {
					act(t, w, c.before)
				}
				ran := false
				_, reused, err := w.Setup(t.Context(), c.key, func(ctx context.Context, in *Workspace) error {
					ran = true
					act(t, in, c.script)
					return c.err
				})
				if !ran || reused || !errors.Is(err, c.err) {
					t.Errorf("ran %v, reused %v, err %v, want %v", ran, reused, err, c.err)
				}
				if got := collect(t, w); got.Files != 1 {
					t.Errorf("got %d files:\n%s", got.Files, patch(t, got))
				}
				if err := w.remove(); err != nil {
					t.Error(err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/bases/*/layers/key*/*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// After a failure no job waits for another one that tries again, and a later success is
// shared.
func TestNobodyWaitsForAFailure(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	try := func(id string, run func() error) {
		w := prepareOver(t, s, id, repo)
		_, _, err := w.Setup(t.Context(), "key", func(context.Context, *Workspace) error { return run() })
		if err != nil && err.Error() != "broken" {
			t.Error(err)
		}
	}
	try("one.1", func() error { return errors.New("broken") })
	try("two.1", func() error {
		try("three.1", func() error { return nil }) // would wait for ever
		return nil
	})
	try("four.1", func() error { t.Error("what the second made is not there"); return nil })
}

// A job that ends while it makes the layer leaves that to the next one that waits; one
// that ends while it waits stops waiting.
func TestSetupIsCancelled(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	maker, waiter, last := prepareOver(t, s, "a.1", repo), prepareOver(t, s, "b.1", repo), prepareOver(t, s, "c.1", repo)
	making, made := make(chan bool), make(chan error, 1)
	go func() {
		_, _, err := maker.Setup(ctx, "key", func(ctx context.Context, in *Workspace) error {
			close(making)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		made <- err
	}()
	<-making
	short, stop := context.WithCancelCause(t.Context())
	stop(gone)
	if _, _, err := waiter.Setup(short, "key", nil); !errors.Is(err, gone) {
		t.Errorf("who waits ended with %v", err)
	}
	cancel(gone)
	if err := <-made; !errors.Is(err, gone) {
		t.Errorf("who made it ended with %v", err)
	}
	if st, err := os.Stat(filepath.Join(last.base.Dir, "layers", "key.lock")); err != nil || st.Size() > 0 {
		t.Errorf("nobody would wait for the next who tries: %v, err %v", st, err)
	}
	if setUp(t, last, "key", "echo x > x") {
		t.Error("what was made by half was taken over")
	}
}

// What a killed maker left is swept, and a layer in use is not.
func TestLayersAreSwept(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	held := prepareOver(t, s, "held.1", repo)
	setUp(t, held, "held", "echo x > x")
	layers := filepath.Join(held.base.Dir, "layers")
	free := prepareOver(t, s, "free.1", repo)
	setUp(t, free, "free", "echo x > x")
	if err := free.Close(); !errors.As(err, new(*UnsavedError)) {
		t.Errorf("closed with %v, what setup wrote counts as the attempt's", err)
	}
	write(t, layers, "dead.new/files/x", "x")
	write(t, layers, "dead.lock", "")
	if swept, err := s.Preview(t.Context()); err != nil || swept.Layers != 0 {
		t.Errorf("preview: %+v, err %v", swept, err)
	}
	down := func(context.Context, *Workspace) error { return errors.New("the store is down") }
	up := func(ctx context.Context, w *Workspace) error {
		if w.layer == nil || w.layer.Files() != filepath.Join(layers, "free", "files") {
			t.Errorf("salvaged without its layer: %+v", w.layer)
		}
		return salvageAll(ctx, w)
	}
	sweep := func(want int) {
		t.Helper()
		if swept, err := s.Sweep(t.Context()); err != nil || swept.Layers != want || swept.Bases != 0 {
			t.Errorf("swept %+v, err %v, want %d layers", swept, err, want)
		}
	}
	s.cfg.Limits.BaseBytes = 1
	s.cfg.Salvage = down
	sweep(0) // a dead workspace needs the one, a living one the other
	s.cfg.Salvage = up
	if names, err := disk.Names(layers); err != nil || len(names) != 4 {
		t.Errorf("there are %q, err %v", names, err)
	}
	sweep(1)
	if names, err := disk.Names(layers); err != nil || len(names) != 2 {
		t.Errorf("there are %q, err %v", names, err)
	}
	if got := act(t, held, "cat x"); got != "x\n" {
		t.Errorf("the layer in use has %q", got)
	}
	if err := held.remove(); err != nil {
		t.Fatal(err)
	}
	if swept, err := s.Preview(t.Context()); err != nil || swept.Bases != 1 || swept.Layers != 1 {
		t.Errorf("preview: %+v, err %v, want the base and its layer", swept, err)
	}
	if swept, err := s.Sweep(t.Context()); err != nil || swept.Bases != 1 || swept.Layers != 1 {
		t.Errorf("swept %+v, err %v, want the base and its layer", swept, err)
	}
}

// A layer that is damaged is made anew.
func TestADamagedLayerIsMadeAnew(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	one := prepareOver(t, s, "one.1", repo)
	setUp(t, one, "key", "echo x > x")
	info := filepath.Join(one.layer.Dir, "layer.json")
	if err := one.remove(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(info, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	two := prepareOver(t, s, "two.1", repo)
	if setUp(t, two, "key", "echo y > x") {
		t.Error("a damaged layer was taken over")
	}
	if got := act(t, two, "cat x"); got != "y\n" {
		t.Errorf("got %q", got)
	}
}

// What shows a workspace with a layer cannot change the layer, not even by a
// second setup with another key.
func TestALayerIsBelowOneSetupOnly(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	w := prepareOver(t, s, "one.1", repo)
	setUp(t, w, "key", "echo x > x")
	var spec sandbox.Spec
	w.Show(&spec)
	if len(spec.Lower) != 2 || spec.Workspace != w.Dir() {
		t.Errorf("shown: %q over %q", spec.Workspace, spec.Lower)
	}
	setUp(t, w, "other", "echo y > x")
	if got, err := os.ReadFile(filepath.Join(w.layer.Files(), "x")); err != nil || string(got) != "x\n" {
		t.Errorf("the layer has %q, err %v", got, err)
	}
}

// The kernel marks a directory that takes the place of a file only where it
// can; the layer's file hides the base's directory all the same.
func TestALayersFileHidesWhatIsBelow(t *testing.T) {
	s, repo := openAs(t, Overlay, Limits{}), newRepo(t)
	w := prepareOver(t, s, "one.1", repo)
	setUp(t, w, "key", "rm -r many; echo x > many")
	write(t, w.Dir(), "many/new", "x\n")
	if got := collect(t, w); got.Files != 11 {
		t.Errorf("got %d files, want ten removed and one new:\n%s", got.Files, patch(t, got))
	}
}
