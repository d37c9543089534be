package workspace

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// branchyRepo makes a repository with some directories and two branches.
func branchyRepo(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "repo")
	for d := range 4 {
		for s := range 3 {
			for f := range 4 {
				write(tb, dir, fmt.Sprintf("d%d/s%d/f%d", d, s, f), fmt.Sprintln(d, s, f))
			}
		}
	}
	write(tb, dir, ".gitignore", "*.tmp\n")
	sh(tb, dir, "git init -q -b main; git add -A; git commit -qm one; git checkout -qb other; git mv d0 moved; echo x > d1/s1/more; git add -A; git commit -qm two; git checkout -q main")
	return dir
}

// asked is what git has been told by the monitor, "" for nothing, without the names that
// are in every answer.
const asked = `/jail/init changed-files 2 1 | tr '\0' '\n' | sed '/^1$/d; /\.penstock-monitor$/d; /\/$/d'; `

func TestMonitorNamesWhatWasWritten(t *testing.T) {
	w := prepare(t, openAs(t, Overlay, monitored), "job.1", branchyRepo(t))
	if got := act(t, w, "git config core.fsmonitor; "+asked+"git status --porcelain"); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "test -d /penstock/upper && ") {
		t.Errorf("of nothing: %q", got)
	}
	got := act(t, w, "echo x > d1/s1/f1; rm d1/s1/f2; echo x > d1/s1/new; mv d2 renamed; "+asked)
	if want := "d1/s1/f1\nd1/s1/f2\nd1/s1/new\nd2\nrenamed\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What was new and is removed again is in no layer.
func TestMonitorForgetsNothing(t *testing.T) {
	w := prepare(t, openAs(t, Overlay, monitored), "job.1", branchyRepo(t))
	got := act(t, w, `mkdir -p new/deep; touch d1/s1/new new/deep/f loose; git add d1 new; git status -s; git status -s
rm -r new d1/s1/new loose; echo; git status -s`)
	if want := "A  d1/s1/new\nA  new/deep/f\n?? loose\n"; got != want+want+"\nAD d1/s1/new\nAD new/deep/f\n" {
		t.Errorf("got %q", got)
	}
}

func TestMonitorOfAUser(t *testing.T) {
	for _, name := range []string{"TestMonitorTellsTheTruth", "TestMonitorOverALayer"} {
		t.Run(name, func(t *testing.T) { sandboxtest.Unprivileged(t, name) })
	}
}

// The hook fails where the layers do not tell, and git looks for itself.
func TestMonitorKnowsWhereItDoesNotKnow(t *testing.T) {
	w := prepare(t, openAs(t, Overlay, monitored), "job.1", branchyRepo(t))
	for name, script := range map[string]string{
		"version":        "/jail/init changed-files 1 1",
		"directory":      "cd d1; /jail/init changed-files 2 1",
		"index":          "GIT_INDEX_FILE=.git/index /jail/init changed-files 2 1",
		"git directory":  "cp -r .git /tmp/git; GIT_DIR=/tmp/git /jail/init changed-files 2 1",
		"other worktree": "git worktree add -q /tmp/tree; cd /tmp/tree; /jail/init changed-files 2 1",
		"split index":    "git update-index --split-index; /jail/init changed-files 2 1",
		"no index":       "rm .git/index; /jail/init changed-files 2 1",
		"damaged index":  "head -c 600 .git/index > .git/i; mv .git/i .git/index; /jail/init changed-files 2 1",
		".git elsewhere": "mv .git /tmp/other; echo gitdir: /tmp/other > .git; /jail/init changed-files 2 1; ",
	} {
		if got := act(t, w, "mkdir -p keep; cp -r .git keep/; ("+script+") 2>&1 && echo succeeded; rm -rf .git; mv keep/.git .git; git worktree prune"); !strings.Contains(got, "changed-files: ") || strings.Contains(got, "succeeded") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Git does not tell the agent that it had no answer.
func TestMonitorFailsInSilence(t *testing.T) {
	w := prepare(t, openAs(t, Overlay, monitored), "job.1", branchyRepo(t))
	got := act(t, w, "git worktree add -q /tmp/tree; echo x > /tmp/tree/d1/s1/new; cd /tmp/tree; git status -s 2>&1")
	if got != "?? d1/s1/new\n" {
		t.Errorf("got %q", got)
	}
}

// monitorCheck compares what git says with the monitor, and keeps in its index, with what
// it sees for itself. It ends the script if they differ.
const monitorCheck = `check() {
	/jail/init changed-files 2 1 > /tmp/names || { echo "after: $1: no answer"; exit 1; }
	git status --porcelain $2 > /tmp/told
	GIT_OPTIONAL_LOCKS=0 git -c core.fsmonitor=false -c core.untrackedCache=false status --porcelain $2 > /tmp/seen
	cmp -s /tmp/told /tmp/seen || { echo "after: $1"; diff /tmp/told /tmp/seen | head -5; exit 1; }
}
set +e
`

// step is one thing that an agent may do, in shell. It may fail.
func step(random *rand.Rand) string {
	dir := func() string {
		return []string{"d0", "d1", "d2/s0", "d2/s1", "d3/s0", "new", "new/deep", "d1/s1/new"}[random.IntN(8)]
	}
	file := func() string {
		return dir() + []string{"/f0", "/f1", "/s0/f2", "/s1/f3", "/n", "/x.tmp"}[random.IntN(6)]
	}
	a, b, f, g := dir(), dir(), file(), file()
	all := []string{
		"echo more >> " + f, "mkdir -p " + a + " && echo fresh > " + a + "/n", "rm -f " + f, "rm -rf " + a,
		"mv " + a + " " + b, "mv -T " + a + " " + b, "mv " + f + " " + g, "cp -r " + a + " " + b, "mkdir -p " + a,
		"mv -T " + a + " t && mv -T " + b + " " + a + " && mv -T t " + b, "rm -rf " + a + "; mkdir -p " + a + "/s0; echo y > " + a + "/s0/f2",
		"rm -rf " + a + "; echo file > " + a, "rm -f " + f + "; mkdir -p " + f + "/in; echo z > " + f + "/in/f", "ln -sf f0 " + f,
		"chmod +x " + f, "touch " + f, "echo '*.tmp' > " + a + "/.gitignore", "rm -f .gitignore",
		"git add -A", "git add " + a, "git add -f " + f, "git rm -q -r --cached " + a, "git rm -q -r -f " + a, "git mv " + a + " " + b,
		"git commit -q -a -m c", "git commit -q --allow-empty -m e", "git stash -q -u", "git stash pop -q", "git reset -q --hard",
		"git reset -q", "git reset -q --hard HEAD^", "git checkout -q -- " + a, "git checkout -q main", "git checkout -q -f other", "git clean -q -f -d",
		"git clean -q -f -d -x", "git merge -q other -m m", "git merge --abort", "git rebase -q other", "git rebase --abort",
		"git update-index --index-version 2", "git update-index --index-version 4", "git update-index --assume-unchanged " + f, "git update-index --no-assume-unchanged " + f,
		"rm -f .git/index; git reset -q", "echo n >> .git/info/exclude", "echo f0 > /tmp/ignored; git config core.excludesFile /tmp/ignored",
		"git sparse-checkout set d1 d2", "git sparse-checkout disable", "git init -q " + a, "rm -rf " + a + "; ln -s ../d1 " + a, "git worktree add -q /tmp/wt$RANDOM", "git bisect start -q; git bisect reset", "git ls-files -m > /dev/null",
	}
	return all[random.IntN(len(all))]
}

// steps are random ones, each followed by a comparison.
func steps(random *rand.Rand, n int) string {
	var b strings.Builder
	b.WriteString(monitorCheck)
	var log []string
	for range n {
		s := step(random)
		log = append(log, s)
		untracked := []string{"", "-uall"}[random.IntN(8)/7]
		fmt.Fprintf(&b, "{ %s; } > /dev/null 2>&1\n", s)
		if random.IntN(3) > 0 {
			fmt.Fprintf(&b, "check '%s' %s\n", strings.ReplaceAll(strings.Join(log, "; "), "'", `'\''`), untracked)
		}
	}
	return b.String() + "exit 0\n"
}

// With the monitor git says the same as without, whatever was done.
func TestMonitorTellsTheTruth(t *testing.T) {
	s, repo := openAs(t, Overlay, monitored), branchyRepo(t)
	seed := rand.Uint64()
	for i := range uint64(6) {
		w := prepare(t, s, fmt.Sprintf("job.%d", i), repo)
		random := rand.New(rand.NewPCG(seed, i))
		for range 2 { // the second jail finds what the first has left
			if failed := t.Run("", func(t *testing.T) { act(t, w, steps(random, 12)) }); !failed {
				t.Fatalf("seed %d, %d", seed, i)
			}
		}
		if err := w.remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// A small repository costs less without.
func TestMonitorOfALargeRepositoryOnly(t *testing.T) {
	w := prepare(t, openAs(t, Overlay, Limits{}), "job.1", branchyRepo(t))
	if got := act(t, w, "! git config core.fsmonitor; ls -A /penstock"); got != "objects\n" {
		t.Errorf("got %q", got)
	}
}

// So it does over what setup has written, for all who share it.
func TestMonitorOverALayer(t *testing.T) {
	s, repo := openAs(t, Overlay, monitored), branchyRepo(t)
	setup := "mkdir -p node_modules/a/b; echo x > node_modules/a/b/c; echo y > d1/s1/built; rm d2/s0/f0; rm -rf d3/s0; mkdir d3/s0; echo z > d3/s0/f1; echo more >> d0/s0/f0; git status -s; git rev-parse HEAD"
	first := prepareOver(t, s, "first.1", repo)
	setUp(t, first, "key", setup)
	if got := act(t, first, asked); !strings.Contains(got, "\nnode_modules\n") || strings.Contains(got, "node_modules/a") || !strings.Contains(got, "d1/s1/built\n") {
		t.Errorf("of setup: %q", got)
	}
	seed := rand.Uint64()
	for i := range uint64(2) {
		w := prepareOver(t, s, fmt.Sprintf("job.%d", i), repo)
		if !setUp(t, w, "key", "exit 1") {
			t.Fatal("setup ran again")
		}
		act(t, w, monitorCheck+"check setup; exit 0")
		act(t, w, steps(rand.New(rand.NewPCG(seed, i)), 12))
	}
}

// A delta over another commit's checkout has a monitor, too.
func TestMonitorOverADelta(t *testing.T) {
	s, repo := openAs(t, Overlay, monitored), branchyRepo(t)
	prepareOver(t, s, "job.1", repo)
	sh(t, repo, "echo more >> d1/s1/f1; git rm -q d2/s0/f0; git commit -qam more")
	w := prepareOver(t, s, "job.2", repo)
	if len(w.base.Trees) != 2 {
		t.Fatalf("the template has %q", w.base.Trees)
	}
	if got := act(t, w, asked+"ls -A /penstock /penstock/monitor"); got != "/penstock:\nmonitor\nobjects\nupper\n\n/penstock/monitor:\nbase\nindex\n" {
		t.Errorf("of nothing: %q", got) // and nothing of the other commit is shown
	}
	act(t, w, steps(rand.New(rand.NewPCG(rand.Uint64(), 1)), 12))
}
