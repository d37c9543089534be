package trialmerge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/series"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/checkout"
)

// childOf has the test binary try the patches of a repository, as the command does.
const childOf = "PENSTOCK_TEST_TRIAL_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childOf); dir != "" {
		if _, err := tryAll(context.Background(), dir, enough); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

var enough = Limits{Pairs: 100_000, Time: 10 * time.Minute}

// A planted change is made by a script in a work tree of the base.
type planted struct{ name, script string }

// various are changes that meet in every way.
var various = []planted{
	{"near", "sed -i 's/^line 2$/line two/' text"},
	{"same", "sed -i 's/^line 2$/the second line/' text"},
	{"far", "sed -i 's/^line 18$/line eighteen/' text"},
	{"both", "sed -i 's/^line 18$/the last but two/; s/^line 10$/line ten/' text"},
	{"alike", "sed -i 's/^line 2$/line two/' text; echo alike > alike"},
	{"moved", "mv text moved; sed -i 's/^line 6$/line six/' moved"},
	{"gone", "rm text"},
	{"mode", "chmod +x text"},
	{"binary1", `printf 'one\0' > binary`},
	{"binary2", `printf 'two\0' > binary; echo two > two`},
	{"file", "echo file > place"},
	{"directory", "mkdir place; echo in > place/in"},
	{"link", "ln -s text place"},
	{"movedir", "mv lib src"},
	{"addin", "echo new > lib/new"},
	{"addout", "echo new > src; echo new > other"},
	{"union1", "echo one >> log"},
	{"union2", "echo two >> log"},
	{"driver1", "echo one > lib/a.drv"},
	{"driver2", "echo two > lib/a.drv"},
	{"filter1", "sed -i 's/^line 1$/one/' big.flt"},
	{"filter2", "sed -i 's/^line 20$/twenty/' big.flt"},
	{"attributes", "echo '* merge=evil filter=evil' > .gitattributes"},
	{"control", "printf x > \"$(printf 'a\\033[31m\\nb')\""},
	{"control2", "printf y > \"$(printf 'a\\033[31m\\nb')\""},
	{"apart", "echo apart > apart"},
}

// A repository is one of a user's, whose configuration, hooks and attributes name programs that leave a mark,
// with a patch of each change beside it.
func repository(t *testing.T, changes []planted) (dir, mark string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tree")
	mark = filepath.Join(filepath.Dir(dir), "mark")
	run(t, ".", "git", "init", "-q", "-b", "main", dir)
	run(t, dir, "sh", "-c", `for i in $(seq 20); do echo line $i; done > text; cp text big.flt; echo first > log; printf 'base\0' > binary
mkdir lib; echo a > lib/a.drv; echo b > lib/b; echo c > lib/c
printf 'log merge=union\n*.drv merge=evil\n*.flt filter=evil\n' > .gitattributes; git add .; git commit -qm base`)
	for _, c := range changes {
		run(t, dir, "sh", "-c", c.script+"; git add -A; git diff --cached --binary --full-index --no-renames > ../"+c.name+".patch; git reset -q --hard; git clean -qfd")
	}
	evil := filepath.Join(filepath.Dir(dir), "evil")
	if err := exectest.WriteFile(evil, []byte("#!/bin/sh\necho \"$@\" >> "+mark+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"merge.evil.driver", "merge.default", "filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.external", "core.pager"} {
		run(t, dir, "git", "config", name, evil)
	}
	for _, hook := range []string{"pre-commit", "post-merge", "reference-transaction", "post-index-change", "commit-msg", "pre-merge-commit"} {
		run(t, dir, "cp", evil, ".git/hooks/"+hook)
	}
	return dir, mark
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := runErr(dir, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

func runErr(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// digest is of every file in and beside a repository.
func digest(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d %x\n", path, len(data), sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func batch(dir string, names []string) (Batch, error) {
	base, err := runErr(dir, "git", "rev-parse", "HEAD")
	b := Batch{ID: "b", Source: func(_ context.Context, s series.Step) ([]byte, error) {
		return os.ReadFile(filepath.Join(filepath.Dir(dir), strings.TrimPrefix(s.Job, "job-")+".patch"))
	}}
	for _, name := range names {
		b.Results = append(b.Results, jobs.Result{ID: name, Job: "job-" + name, BaseCommit: strings.TrimSpace(base)})
	}
	return b, err
}

// tryAll tries all patches beside a repository.
func tryAll(ctx context.Context, dir string, limits Limits) (found Found, err error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.patch"))
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".patch"))
	}
	if err != nil {
		return found, err
	}
	b, err := batch(dir, names)
	if err != nil {
		return found, err
	}
	tree, err := checkout.Open(ctx, dir, os.Environ())
	if err != nil {
		return found, err
	}
	return Try(ctx, tree, b, limits)
}

// states are those of the pairs, by "a b".
func states(found Found) map[string]mergeorder.State {
	all := map[string]mergeorder.State{}
	for _, p := range found.Pairs {
		all[p.A+" "+p.B] = p.State
	}
	return all
}

// Each pair that git merge stops at is found, and no other; the order merges without a stop where git merge
// follows it. Nothing that the repository names runs, and nothing in it changes.
func TestAsGitMerges(t *testing.T) {
	t.Parallel()
	dir, mark := repository(t, various)
	before := digest(t, dir)
	found, err := tryAll(t.Context(), dir, enough)
	if err != nil {
		t.Fatal(err)
	}
	if ran, err := os.ReadFile(mark); err == nil {
		t.Errorf("these ran: %s", ran)
	}
	if digest(t, dir) != before {
		t.Error("the repository has changed")
	}
	if found.Untried > 0 || found.MorePairs != 0 || found.Merge+found.Stop != len(various) {
		t.Errorf("%+v", found)
	}
	real := branches(t, dir)
	got := states(found)
	for i, a := range real.names {
		for _, b := range real.names[i+1:] {
			want := mergeorder.Merges
			if !real.merges(t, a, b) {
				want = mergeorder.Conflict
			}
			is, listed := got[a+" "+b]
			if is != want && (listed || want == mergeorder.Conflict) {
				t.Errorf("%s and %s: got %q, git merge says %s", a, b, is, want)
			}
		}
	}
	for pair, want := range map[string]mergeorder.State{
		"near same": mergeorder.Conflict, "far near": mergeorder.Merges, "alike near": mergeorder.Merges, "moved near": mergeorder.Merges, "gone near": mergeorder.Conflict, "mode near": mergeorder.Merges,
		"binary1 binary2": mergeorder.Conflict, "directory file": mergeorder.Conflict, "file link": mergeorder.Conflict, "addin movedir": mergeorder.Conflict, "union1 union2": mergeorder.Merges,
		"driver1 driver2": mergeorder.Conflict, "filter1 filter2": mergeorder.Merges, "control control2": mergeorder.Conflict,
	} {
		if got[pair] != want {
			t.Errorf("%s: %q, want %s", pair, got[pair], want)
		}
	}
	var order []string
	for _, turn := range found.Order {
		if turn.State == mergeorder.Merges {
			order = append(order, turn.Item)
			continue
		}
		var with []string
		for _, before := range slices.Sorted(slices.Values(order)) {
			if pair := []string{min(before, turn.Item), max(before, turn.Item)}; got[strings.Join(pair, " ")] == mergeorder.Conflict {
				with = append(with, before)
			}
		}
		if len(with) == 0 || !slices.Equal(turn.With, with) || len(turn.Conflicts) == 0 {
			t.Errorf("%+v, want that it conflicts with %v", turn, with)
		}
	}
	if !real.merges(t, order...) {
		t.Errorf("git merge stops in the order %v", order)
	}
}

// A real repository has a branch of each patch.
type real struct {
	dir   string
	names []string
}

func branches(t *testing.T, dir string) real {
	t.Helper()
	r := real{dir: filepath.Join(t.TempDir(), "clone")}
	run(t, ".", "git", "clone", "-q", dir, r.dir)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".patch")
		r.names = append(r.names, name)
		run(t, r.dir, "sh", "-c", "git checkout -q -b "+name+" origin/main && git apply --index --binary "+f+" && git commit -qm "+name)
	}
	return r
}

// merges reports whether git merges branches one after the other.
func (r real) merges(t *testing.T, names ...string) bool {
	t.Helper()
	run(t, r.dir, "git", "checkout", "-q", "--detach", names[0])
	for _, name := range names[1:] {
		if _, err := runErr(r.dir, "git", "merge", "-q", "-m", "merge", name); err != nil {
			run(t, r.dir, "sh", "-c", "git merge --abort || git reset -q --hard; git clean -qfd")
			return false
		}
	}
	return true
}

// A patch that leads out of the repository, or is damaged, is on no commit, and the others are tried all the same.
func TestHostilePatches(t *testing.T) {
	t.Parallel()
	dir, mark := repository(t, various[:3])
	added := func(path string) string {
		return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nnew file mode 100644\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+x\n", path)
	}
	hostile := map[string]string{
		"outside": added("../outside"), "absolute": added("/tmp/penstock-outside"), "config": added(".git/config"), "case": added("sub/.GIT/config"),
		"beyond":  "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/tmp\n\\ No newline at end of file\n" + added("l/beyond"),
		"damaged": "diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,900 +1,900 @@\n-line 1\n+x\n", "stale": "diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1 +1 @@\n-never\n+x\n",
		"bomb":    "diff --git a/big b/big\nnew file mode 100644\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) + "\nGIT binary patch\nliteral 3000000000\nHcmV?d00001\n\nliteral 0\nHcmV?d00001\n\n",
		"nothing": "", "long": added(strings.Repeat("d/", 2000) + "f"), "option": added("--upload-pack=touch " + mark),
	}
	for name, patch := range hostile {
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), name+".patch"), []byte(patch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := digest(t, dir)
	found, err := tryAll(t.Context(), dir, enough)
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, dir) != before {
		t.Error("the repository has changed")
	}
	if found.Merge != 4 || found.Stop != 1 || found.Untried != len(hostile)-2 {
		t.Errorf("%d merge, %d stop, %d were not tried: %+v", found.Merge, found.Stop, found.Untried, found.Order)
	}
	for _, turn := range found.Order {
		_, is := hostile[turn.Item]
		if is = is && turn.Item != "long" && turn.Item != "option"; is != (turn.State == mergeorder.Untried) || is != (turn.Why != "") {
			t.Errorf("%+v", turn)
		}
	}
	if why := found.Order[slices.IndexFunc(found.Order, func(turn mergeorder.Turn) bool { return turn.Item == "bomb" })].Why; !strings.Contains(why, "over limit") {
		t.Errorf("a patch that needs much memory: %s", why)
	}
	for _, path := range []string{filepath.Join(filepath.Dir(dir), "outside"), "/tmp/penstock-outside", "/tmp/beyond", mark} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
}

// Of 300 results, the conflicts that were planted are found, and no others.
func TestPlantedAmong300(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t, nil)
	run(t, dir, "sh", "-c", "rm .git/hooks/*; git config --unset core.fsmonitor; for f in $(seq 30); do for i in $(seq 100); do echo $f line $i; done > f$f; done; git add .; git commit -qm files")
	want := map[string]bool{}
	var names []string
	for i := range 300 {
		// Ten results change each file, ten lines apart; each seventh changes the lines of the one before it in its file.
		file, line := i%30+1, 10*(i/30)+5
		name := fmt.Sprintf("r%03d", i)
		if i%7 == 0 && i >= 30 {
			line -= 10
			want[fmt.Sprintf("r%03d %s", i-30, name)] = true
		}
		names = append(names, name)
		patch := fmt.Sprintf("diff --git a/f%[1]d b/f%[1]d\n--- a/f%[1]d\n+++ b/f%[1]d\n@@ -%[2]d +%[2]d @@\n-%[1]d line %[2]d\n+%[3]s\n", file, line, name)
		full := strings.Replace(patch, fmt.Sprintf("@@ -%[1]d +%[1]d @@\n", line), fmt.Sprintf("@@ -%[1]d,3 +%[1]d,3 @@\n %[2]d line %[1]d\n", line-1, file), 1) + fmt.Sprintf(" %d line %d\n", file, line+1)
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), name+".patch"), []byte(full), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := tryAll(t.Context(), dir, enough)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, p := range found.Pairs {
		if p.State == mergeorder.Conflict {
			got[p.A+" "+p.B] = true
		}
	}
	// A chain of conflicts needs one of two to be left out.
	if len(found.Pairs) != 30*45 || found.Untried > 0 || !found.Fewest {
		t.Errorf("%d pairs, want those of ten results in each of 30 files; %d untried, fewest %v", len(found.Pairs), found.Untried, found.Fewest)
	}
	for _, name := range names {
		for _, other := range names {
			if pair := name + " " + other; got[pair] != want[pair] {
				t.Errorf("%s: conflict %v, want %v", pair, got[pair], want[pair])
			}
		}
	}
	if len(want) == 0 {
		t.Error("no conflict was planted")
	}
}

// What there was no room or no time for is said.
func TestLimits(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t, various)
	found, err := tryAll(t.Context(), dir, Limits{Pairs: 3, Time: enough.Time})
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, p := range found.Pairs {
		if p.State != mergeorder.Untried {
			tried++
		} else if p.Why != "only 3 pairs are tried" {
			t.Errorf("%+v", p)
		}
	}
	if tried != 3 || found.Fewest || found.Untried > 0 {
		t.Errorf("%d pairs were tried, want 3: %+v", tried, found)
	}
	found, err = tryAll(t.Context(), dir, Limits{Pairs: 3, Time: time.Nanosecond})
	if err != nil || found.Untried != len(various) || found.Order[0].Why != errTime.Error() {
		t.Errorf("without time: %v, %+v", err, found)
	}
}

// A commit that the repository lacks is said, and one of another history.
func TestOtherBases(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t, various[:3])
	run(t, dir, "sh", "-c", "rm .git/hooks/*; git config --unset core.fsmonitor; git commit -q --allow-empty -m later")
	tree, err := checkout.Open(t.Context(), dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	b, err := batch(dir, []string{"near", "same", "far"})
	if err != nil {
		t.Fatal(err)
	}
	b.Results[0].BaseCommit = strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD^"))
	b.Results[2].BaseCommit = strings.Repeat("1", 40)
	found, err := Try(t.Context(), tree, b, enough)
	if err != nil {
		t.Fatal(err)
	}
	if got := states(found); got["near same"] != mergeorder.Conflict || got["near far"] != mergeorder.Untried {
		t.Errorf("%v", got)
	}
	if last := found.Order[2]; last.Item != "far" || last.State != mergeorder.Untried || !strings.Contains(last.Why, "does not have the base commit") {
		t.Errorf("%+v", last)
	}
}

// However a trial ends, the repository is as it was, and the next trial removes what is left.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t, various)
	before := digest(t, dir)
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"apply", "merge-tree", "commit-tree"} {
		bin, tmp := t.TempDir(), t.TempDir()
		script := "#!/bin/sh\ncase \"$*\" in *' " + at + " '*) echo >> $0.count; [ $(wc -l < $0.count) -ge 3 ] && kill -9 $PPID ;; esac\nexec " + git + " \"$@\"\n"
		if err := exectest.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childOf+"="+dir, "TMPDIR="+tmp, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := child.CombinedOutput(); err == nil || child.ProcessState.ExitCode() != -1 {
			t.Fatalf("%s: it was not killed: %v\n%s", at, err, out)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) != 1 {
			t.Errorf("%s: it has left %v, %v", at, left, err)
		}
		child = exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childOf+"="+dir, "TMPDIR="+tmp)
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
			t.Errorf("%s: after the next one there is %v, %v", at, left, err)
		}
		if digest(t, dir) != before {
			t.Errorf("%s: the repository has changed", at)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := fmt.Errorf("interrupted")
	b, err := batch(dir, []string{"near", "same"})
	if err != nil {
		t.Fatal(err)
	}
	source := b.Source
	b.Source = func(ctx context.Context, s series.Step) ([]byte, error) {
		cancel(interrupted)
		return source(ctx, s)
	}
	tree, err := checkout.Open(t.Context(), dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(ctx, tree, b, enough); !errors.Is(err, interrupted) {
		t.Errorf("interrupted: %v", err)
	}
	if digest(t, dir) != before {
		t.Error("interrupted: the repository has changed")
	}
}

// An old git is said once, and not of each pair.
func TestOldGit(t *testing.T) {
	dir, _ := repository(t, various[:3])
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *' merge-tree '*) echo 'usage: git merge-tree <base-tree> <branch1> <branch2>' >&2; exit 129 ;; esac\nexec " + git + " \"$@\"\n"
	if err := exectest.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if _, err := tryAll(t.Context(), dir, enough); !errors.Is(err, checkout.ErrOldGit) {
		t.Errorf("got %v", err)
	}
}
