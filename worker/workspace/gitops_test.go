package workspace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// operations are what people and agents do with git. Of each line the output
// and the exit code count, and in the end all that git and the files say.
var operations = []struct{ name, script string }{
	{"look", "git status\ngit log --stat\ngit blame src/a.go\ngit grep -n package\ngit ls-files -s\ngit show HEAD~1\ngit remote -v\ngit describe --always"},
	{"add and commit", "echo x >> README\necho n > new\ngit add -A\ngit diff --cached\ngit commit -m one\ngit commit --amend -m two\ngit reflog"},
	{"modes and links", "chmod +x README\nchmod -x tools/fmt.sh\nln -s README l\nln -sfn src link\ngit add -A\ngit commit -m modes\ngit diff --stat HEAD~1"},
	{"remove", "git rm -r many\ngit rm --cached README\ngit commit -m removed\nrm -r src\ngit status -s\ngit restore src\ngit clean -n\ngit clean -fdx"},
	{"all files gone", "rm -rf ./*\ngit status -s\ngit checkout -f .\ngit status -s"},
	{"directory to file and back", "rm -r many\necho x > many\ngit add -A\ngit commit -m file\ngit checkout HEAD~1 -- many\ngit status -s"},
	{"stash", "echo x >> README\necho n > new\ngit stash push -u -m mine\ngit status -s\ngit stash list\ngit stash pop\ngit stash push README\ngit stash branch other"},
	{"reset", "echo x >> README\ngit commit -qam x\ngit reset --soft HEAD~1\ngit reset\ngit reset --hard\ngit reset --hard HEAD~2\ngit reset --hard ORIG_HEAD"},
	{"branches and tags", "git switch -c topic\ngit branch -m renamed\ngit tag -a v1 -m v1\ngit branch -f other HEAD~1\ngit switch other\ngit branch -D renamed\ngit switch --detach v1\ngit notes add -m note"},
	{"merge", "git switch -qc topic HEAD~1\necho t > topic\ngit add -A\ngit commit -qm topic\ngit merge -m merged agent\ngit merge --abort\ngit log --graph --oneline"},
	{"conflict", "git switch -qc topic HEAD~1\necho t > README\ngit commit -qam topic\ngit merge agent\ngit status -s\ngit diff\ngit checkout --theirs README\ngit add README\ngit commit -m resolved"},
	{"rebase", "git switch -qc topic HEAD~2\necho t > topic\ngit add -A\ngit commit -qm topic\necho u >> topic\ngit commit -qam more\ngit rebase -q agent\ngit log --oneline\ngit rebase -q --onto HEAD~4 HEAD~2\ngit log --oneline"},
	{"rebase with a conflict", "git switch -qc topic HEAD~1\necho t > README\ngit commit -qam topic\ngit rebase -q agent 2>/dev/null\ngit status -s\ngit rebase --abort\ngit rebase -q agent 2>/dev/null\necho r > README\ngit add README\nGIT_EDITOR=true git rebase --continue 2>/dev/null\ngit log --oneline"},
	{"rebase by hand", "for i in 1 2 3; do echo $i >> many/f1; git commit -qam $i; done\nGIT_SEQUENCE_EDITOR=\"sed -i -e 2s/pick/fixup/ -e 3s/pick/drop/\" git rebase -q -i HEAD~3\ngit log --oneline --stat"},
	{"cherry-pick and revert", "git switch -qc topic HEAD~2\ngit cherry-pick agent~1\ngit revert --no-edit HEAD\ngit log --oneline"},
	{"patches", "echo x > new\ngit add -A\ngit commit -qm x\ngit format-patch -o out HEAD~2\ngit reset -q --hard HEAD~2\ngit am out/*.patch\ngit diff HEAD~1 > d\ngit apply -R d\ngit apply --index d"},
	{"bisect", "git bisect start HEAD HEAD~3\ngit bisect run sh -c \"! grep -q third README\"\ngit bisect reset"},
	{"gc", "echo x > new\ngit add -A\ngit commit -qm x\ngit gc -q\ngit gc -q --prune=now --aggressive\ngit fsck --full\ngit log --oneline"},
	{"repack and prune", "echo x > new\ngit add -A\ngit commit -qm x\ngit reset -q --hard HEAD~1\ngit reflog expire --expire=now --all\ngit prune\ngit repack -q -a -d\ngit repack -q -A -d\ngit pack-refs --all\ngit commit-graph write\ngit multi-pack-index write\ngit maintenance run -q\ngit fsck --full --strict"},
	{"worktree", "git worktree add ../elsewhere\ngit worktree add -q -b side .side HEAD~1\ncd .side && echo s > s && git add -A && git commit -qm side; cd ..\ngit worktree list\ngit log --oneline side\ngit worktree remove .side\ngit worktree prune -v"},
	{"submodule", "git init -q inner\n(cd inner && echo i > i && git add -A && git commit -qm inner)\ngit -c protocol.file.allow=always submodule --quiet add ./inner sub\ngit submodule status\ngit commit -qm sub\ngit submodule --quiet deinit -f sub\ngit -c protocol.file.allow=always submodule --quiet update --init\ncat sub/i\ngit rm -q sub\nrm -rf inner"},
	{"sparse checkout", "git sparse-checkout set src\nls\ngit status -s\ngit sparse-checkout add many\necho x >> many/f1\ngit commit -qam sparse\ngit sparse-checkout disable\nls"},
	{"move a file", "git mv README READ\ngit mv src/a.go src/c.go\ngit commit -qm moved\ngit log --oneline --follow READ"},
	{"move a directory", "mv many lots\ngit add -A\ngit status -s\ngit commit -qm moved\nmv lots/f1 src\nmkdir -p deep/er\nmv lots deep/er\ngit add -A\ngit commit -qm deeper\ngit log --stat -2"},
	{"index", "git update-index --chmod=+x README\ngit update-index --assume-unchanged src/a.go\necho x >> src/a.go\ngit status -s\ngit update-index --really-refresh\ngit read-tree HEAD\ngit update-index --refresh\ngit checkout-index -f -a\ngit write-tree"},
	{"hooks and filters", "mkdir -p .git/hooks\nprintf '#!/bin/sh\\necho hook; test ! -e stop' > .git/hooks/pre-commit\nchmod +x .git/hooks/pre-commit\necho x > new\ngit add -A\ngit commit -qm x\ntouch stop\ngit add stop\ngit commit -qm y\ngit config filter.up.clean 'tr a-z A-Z'\necho '*.up filter=up' > .gitattributes\necho low > a.up\ngit add -A\ngit show :a.up"},
	{"copies", "git clone -q . copy\ngit -C copy log --oneline\ngit -C copy fsck\ngit bundle create -q b HEAD agent\ngit bundle list-heads b\ngit archive HEAD | tar t\nrm -rf copy b"},
	{"to a remote", "git push\ngit pull\ngit fetch\ngit init -q --bare r\ngit remote add r ./r\ngit push -q r agent\ngit fetch -q r\ngit push -q -f r HEAD~1:agent\ngit pull -q --rebase r agent\ngit branch -vv\nrm -rf r"},
	{"files", "ln README hard\necho x >> hard\ncat README\nstat -c %h README hard\nmv -T src tools/src\nmv tools/src src\ncp -a many copy\ntouch -d @1000 many/f1\nflock README true\nmkfifo f\nrm f\nfind . -newer README -name 'f*'"},
}

// told is the final state by git and the files. It leaves out which objects are stored
// where: objects of the base stay there.
const told = `echo "== in the end"
git rev-parse HEAD; git symbolic-ref -q HEAD; git for-each-ref; git stash list; git worktree list; git submodule status
git status --porcelain=v2 --branch; git ls-files -s -v; git fsck --full --strict --no-progress; git log --all --format='%H %T %an %s'
find . -path ./.git -prune -o -printf '%y %m %p %l\n' | sort
find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum`

// history is a repository with some commits.
func history(tb testing.TB) string {
	tb.Helper()
	repo := newRepo(tb)
	sh(tb, repo, `echo second >> README; git commit -qam second; echo 'package c' > src/c.go; git add -A; git commit -qm third
echo third >> README; git commit -qam fourth; git tag v0`)
	return repo
}

// tells runs a script as an agent would, each line of it, and returns what
// was said, with the exit codes.
func tells(tb testing.TB, w *Workspace, script string) string {
	tb.Helper()
	var lines strings.Builder
	for line := range strings.SplitSeq(script, "\n") {
		fmt.Fprintf(&lines, "%s\necho \"[$?] %s\"\n", line, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(line))
	}
	var out bytes.Buffer
	spec := sandbox.Spec{
		Args: []string{"bash", "-c", lines.String() + told},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C", "GIT_AUTHOR_DATE=@0 +0000", "GIT_COMMITTER_DATE=@0 +0000",
			"GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"},
	}
	w.Show(&spec)
	if _, err := sandbox.Run(tb.Context(), w.spaces.cfg.Jail, spec, sandbox.Streams{Stdout: &out, Stderr: &out}); err != nil {
		tb.Fatalf("%s: %v: %s", script, err, out.String())
	}
	return out.String()
}

// ends runs a script in a workspace of each strategy, and fails unless it ends
// alike, and alike is collected. It returns what was said.
func ends(t *testing.T, spaces map[Strategy]*Spaces, repo, script string) string {
	t.Helper()
	said, made := map[Strategy]string{}, map[Strategy]string{}
	for strategy, s := range spaces {
		w := prepare(t, s, "job.1", repo)
		said[strategy] = tells(t, w, script)
		c := collect(t, w)
		made[strategy] = fmt.Sprintf("%d commits, %d files, skipped %q, notes %q\n%s", c.Commits, c.Files, c.Skipped, c.Notes, patch(t, c))
	}
	if said[Clone] != said[Overlay] {
		t.Errorf("in an overlay\n%s\nin a clone\n%s", said[Overlay], said[Clone])
	}
	if made[Clone] != made[Overlay] {
		t.Errorf("of an overlay is collected\n%s\nof a clone\n%s", made[Overlay], made[Clone])
	}
	if !strings.Contains(said[Clone], "\n== in the end\n") || strings.Contains(said[Clone], "not found") {
		t.Errorf("it does not work in a clone:\n%s", said[Clone])
	}
	return said[Clone]
}

// TestGitInAnOverlay: whatever is done with git in an overlay ends as it does
// in a clone, and so does what is collected.
func TestGitInAnOverlay(t *testing.T) {
	t.Parallel()
	repo := history(t)
	spaces := map[Strategy]*Spaces{Clone: openAs(t, Clone, Limits{}), Overlay: openAs(t, Overlay, Limits{})}
	for _, op := range someOf(operations) {
		t.Run(strings.ReplaceAll(op.name, " ", "-"), func(t *testing.T) { ends(t, spaces, repo, op.script) })
	}
}

// TestNpmInAnOverlay: packages that the commit brings are replaced, removed and
// installed anew.
func TestNpmInAnOverlay(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "npm")
	repo := newRepo(t)
	sh(t, repo, `for v in 1 2; do for p in a b; do
mkdir -p $p/lib/deep
echo '{"name":"'$p'","version":"'$v'.0.0","bin":{"'$p'":"cli.js"}}' > $p/package.json
echo '#!/usr/bin/env node' > $p/cli.js; echo "console.log($v)" >> $p/cli.js; echo $v > $p/lib/deep/same; echo $v > $p/lib/only$v
npm pack ./$p --silent; rm -r $p; done; done
echo '{"name":"app","version":"1.0.0"}' > package.json
npm install --offline --silent ./a-1.0.0.tgz ./b-1.0.0.tgz
git add -A -f; git commit -qm packages`)
	spaces := map[Strategy]*Spaces{Clone: openAs(t, Clone, Limits{}), Overlay: openAs(t, Overlay, Limits{})}
	said := ends(t, spaces, repo, `npm ls
npm install --offline --silent ./a-2.0.0.tgz
node_modules/.bin/a
npm uninstall --offline --silent b
npm ls
npm ci --offline --silent
npm install --offline --silent ./b-2.0.0.tgz
node_modules/.bin/b
rm -r node_modules
npm ci --offline --silent
npm ls`)
	for _, line := range []string{"2\n[0] node_modules/.bin/a", "2\n[0] node_modules/.bin/b", "f 644 ./node_modules/b/lib/only2"} {
		if !strings.Contains(said, line) {
			t.Errorf("want %q in\n%s", line, said)
		}
	}
}

// TestAnEarlyEditIsSeen: the first job of a commit may change a file in the
// second in which the file was checked out, and leave its size as it was.
func TestAnEarlyEditIsSeen(t *testing.T) {
	t.Parallel()
	for strategy, w := range both(t, newRepo(t)) {
		if got := act(t, w, `printf 'HELLO\nworld\n' > README; git status --porcelain`); got != " M README\n" {
			t.Errorf("%s: git says %q", strategy, got)
		}
		if strategy == Clone {
			continue
		}
		// Not only where the clock happened to show the same second.
		index, err := os.Stat(filepath.Join(w.base.Dir, "template", "tree/.git/index"))
		if err != nil || index.ModTime().After(time.Now()) {
			t.Fatal(index, err)
		}
		for _, name := range []string{"README", "many/f1", "link"} {
			file, err := os.Lstat(filepath.Join(w.base.Dir, "template", "tree", name))
			if err != nil || index.ModTime().Sub(file.ModTime()) < 2*time.Second {
				t.Errorf("%s is of %v, the index of %v, %v", name, file.ModTime(), index.ModTime(), err)
			}
		}
	}
}

// TestGitInAnOverlayAsAUser does the same, and collects, as a user who is not root,
// whose overlays another kind of mount makes.
func TestGitInAnOverlayAsAUser(t *testing.T) {
	t.Parallel()
	asUser(t, "^(TestGitInAnOverlay|TestNpmInAnOverlay|TestAnEarlyEditIsSeen|TestDirectoriesAreRenamed|TestRealShapes)$")
}

// asUser runs tests of this program again as an ordinary user.
func asUser(t *testing.T, tests string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the tests run as an ordinary user already")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const id = 48_765                               // a user who owns nothing here
	home, err := os.MkdirTemp("", "penstock-user-") //nolint:usetesting // that of the test only this user may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	program := filepath.Join(home, "workspace.test")
	run(t, "/", "cp", self, program)
	if err := os.Chown(home, id, id); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.v", "-test.run="+tests, fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("as an ordinary user:\n%s", out)
	case bytes.Count(out, []byte("--- PASS")) < 5:
		t.Errorf("as an ordinary user nothing was tested:\n%s", out)
	}
}

// TestDirectoriesAreRenamed holds the one difference that an agent meets: a user's
// overlay cannot rename a directory that the commit has in one step. Programs that move
// files, as mv does, copy it then; git mv and rename(2) fail, and change nothing.
func TestDirectoriesAreRenamed(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "python3")
	w := prepareAs(t, openAs(t, Overlay, Limits{}), "job.1", jobs.Repo{URL: newRepo(t)}, jobs.IsolationWorktree)
	said := tells(t, w, `git mv many lots
git status -s
python3 -c "import os; os.rename('src', 'source')"
mkdir made
git mv tools made/tools 2>/dev/null || mv tools made/tools
mv made own
python3 -c "import os; os.rename('own', 'again')"`)
	refused := "[128] git mv many lots"
	if os.Geteuid() == 0 {
		refused = "[0] git mv many lots"
	}
	if !strings.Contains(said, refused) || strings.Contains(said, "Invalid cross-device link") == (os.Geteuid() == 0) {
		t.Errorf("want %s in\n%s", refused, said)
	}
	if !strings.Contains(said, "\nf 755 ./again/tools/fmt.sh") || os.Geteuid() != 0 && !strings.Contains(said, "\nf 644 ./many/f1") {
		t.Errorf("files are lost:\n%s", said)
	}
}
