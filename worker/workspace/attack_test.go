package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// plantings are what an agent may leave for the host to run. Each runs in the
// workspace; $M is the file that proves that something ran, $P a program that
// makes it. What fires it is something that people do in their checkouts.
var plantings = []struct{ name, script, fires string }{
	{"hook", `mkdir -p .git/hooks; for h in pre-commit post-checkout post-index-change reference-transaction fsmonitor-watchman; do cp $P .git/hooks/$h; done`, `git commit --allow-empty -m x`},
	{"hooks swapped", `mkdir .git/h2; mkdir -p .git/hooks; mv .git/hooks .git/h3; mv .git/h2 .git/hooks; cp $P .git/hooks/pre-commit`, `git commit --allow-empty -m x`},
	{"fsmonitor", `git config core.fsmonitor $P`, `git status`},
	{"config replaced", `cp .git/config .git/c2; printf "[core]\nfsmonitor = $P\n" >> .git/c2; mv -f .git/c2 .git/config`, `git status`},
	{".git rebuilt", `mv .git .git2; cp -a .git2 .git; git config core.fsmonitor $P; rm -rf .git2`, `git status`},
	{"ssh command", `git config core.sshCommand $P; git config remote.o.url ssh://x/y`, `timeout 1 git fetch o`},
	{"hooks path", `mkdir h; cp $P h/pre-commit; git config core.hooksPath h`, `git commit --allow-empty -m x`},
	{"credential helper", `git config credential.helper "!$P"`, `echo url=https://x.invalid | git credential fill`},
	{"filter", `git config filter.z.clean $P; git config filter.z.smudge $P; git config filter.z.process $P; echo '* filter=z' > .gitattributes`, `touch -d @1 README; git add -A`},
	{"textconv", `git config diff.z.textconv $P; git config diff.z.command $P; echo '* diff=z' > .gitattributes`, `echo y >> README; git diff`},
	{"external diff", `git config diff.external $P`, `echo y >> README; git diff`},
	{"merge driver", `git config merge.z.driver $P; echo '* merge=z' > .gitattributes`, `git switch -qc m1; echo 1 > README; git commit -qam 1; git switch -qc m2 HEAD~1; echo 2 > README; git commit -qam 2; git merge -q m1`},
	{"pager", `git config core.pager $P; git config pager.diff-tree $P`, `script -qec 'git log' /dev/null`},
	{"gpg", `git config gpg.program $P; git config commit.gpgsign true`, `git commit --allow-empty -m x`},
	{"alias", `git config alias.diff-tree "!$P"; git config alias.st "!$P"`, `git st`},
	{"commondir", `mkdir evil; cp -a .git/objects .git/refs .git/HEAD evil/; printf "[core]\nfsmonitor = $P\n" > evil/config; echo ../evil > .git/commondir`, `git status`},
	{"config.worktree", `git config extensions.worktreeConfig true; printf "[core]\nfsmonitor = $P\n" > .git/config.worktree`, `git status`},
	{"include", `git config include.path ../.gitshared; printf "[core]\nfsmonitor = $P\n" > .gitshared`, `git status`},
	{"husky", `mkdir .husky; cp $P .husky/pre-commit; git config core.hooksPath .husky`, `git commit --allow-empty -m x`},
	{"filter tool in the tree", `cp $P tools/fmt.sh; git config filter.fmt.clean ./tools/fmt.sh; echo '*.go filter=fmt' > .gitattributes`, `echo // >> src/a.go; git add -A`},
	{"nested repository", `mkdir sub; cd sub; git init -q; echo x > f; git config core.fsmonitor $P`, `cd sub; git status`},
	{"nested gitlink", `mkdir sub; cd sub; git init -q; echo x > f; git add f; git commit -qm x; cd ..; git add sub 2>/dev/null; git -C sub config core.fsmonitor $P`, `git status`},
	{"gitlink five down", `mkdir -p a/b/c/d/sub; cd a/b/c/d/sub; git init -q; echo x > f; git add f; git commit -qm x; git config core.fsmonitor $P; cd ../../../../..; git add a 2>/dev/null`, `git diff --stat`},
	{"bare repository", `mkdir b; cp -r .git/objects .git/refs .git/HEAD b/; printf "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ..\nfsmonitor = $P\n" > b/config`, `cd b; git status`},
	{"modules", `mkdir -p .git/modules/x; printf "[core]\nfsmonitor = $P\n" > .git/modules/x/config`, ""},
	{"submodule's .git", `mkdir evilgd sm; cp -r .git/objects .git/refs .git/HEAD evilgd/; printf "[core]\nfsmonitor = $P\n" > evilgd/config; echo 'gitdir: ../evilgd' > sm/.git; echo x > sm/f`, `cd sm; git status`},
	{".gitmodules", `printf "[submodule \"x\"]\npath = x\nurl = ext::$P\nupdate = !$P\n" > .gitmodules; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; mkdir x`, ""},
	{"rebase state", `mkdir .git/rebase-merge; cd .git/rebase-merge; git rev-parse HEAD | tee onto > orig-head; echo refs/heads/main > head-name; touch interactive; echo "exec $P" > git-rebase-todo`, `git rebase --continue`},
	{"replace", `echo evil > README; git commit -qam evil; git replace HEAD~1 HEAD; git reset -q --hard HEAD~1 2>/dev/null || true`, ""},
	{"skip-worktree", `git update-index --skip-worktree README; git update-index --assume-unchanged src/a.go; echo hidden >> README; echo hidden >> src/a.go`, ""},
	{"exclude", `mkdir -p .git/info; echo '*' > .git/info/exclude; echo x > hidden`, ""},
	{"other branch", `git update-ref refs/heads/release HEAD; git update-ref refs/remotes/origin/main $(git commit-tree HEAD^{tree} -m evil)`, ""},
	{"objects destroyed", `rm -rf .git/objects/*`, ""},
	{".git file", `mv .git .e; printf "[core]\nfsmonitor = $P\n" >> .e/config; echo "gitdir: $PWD/.e" > .git`, `git status`},
	{".git anew", `rm -rf .git; git init -q; git config core.fsmonitor $P`, `git status`},
	{"forged main repository", `mkdir -p .m/.git/worktrees/j; cp -r .git/objects .git/refs .git/HEAD .m/.git/; printf "[core]\nfsmonitor = $P\n" > .m/.git/config; rm -rf .git; echo "gitdir: $PWD/.m/.git/worktrees/j" > .git; echo ../.. > .m/.git/worktrees/j/commondir; echo "$PWD/.git" > .m/.git/worktrees/j/gitdir; echo ref: refs/heads/agent > .m/.git/worktrees/j/HEAD`, `cd .m; git status`},
	{"branch names", `mkdir -p .git/refs/heads; git rev-parse HEAD > ".git/refs/heads/x;$(basename $P)"; git rev-parse HEAD > '.git/refs/heads/--upload-pack=x' `, ""},
	{"alternates", `mkdir -p .git/objects/info; echo $PRIVATE/.git/objects > .git/objects/info/alternates`, ""},
	{"info/attributes", `mkdir -p .git/info; echo '* filter=fmt' > .git/info/attributes; git config filter.fmt.clean $P`, `touch -d @1 README; git add -A`},
	{"submodule.recurse", `git config submodule.recurse true; git config diff.ignoreSubmodules none; git config status.submoduleSummary true`, ""},
	{"uploadpack hook", `git config uploadpack.packObjectsHook $P`, ""},
	{"alternate refs", `git config core.alternateRefsCommand $P`, ""},
	{"index garbage", `head -c 5000 /dev/urandom > .git/index`, ""},
	{"HEAD garbage", `echo 'ref: ../../../../etc/passwd' > .git/HEAD`, ""},
	{"HEAD is a fifo", `rm .git/HEAD; mkfifo .git/HEAD`, ""},
	{"config is a fifo", `rm .git/config; mkfifo .git/config`, ""},
	{"lock files", `touch .git/index.lock .git/HEAD.lock .git/config.lock`, ""},
	{".git is gone", `rm -rf .git`, ""},
	{".git is a link", `mv .git /tmp/git-$$; ln -s /tmp/git-$$ .git; rm -rf /tmp/git-$$`, ""},
	{".git is a fifo", `rm -rf .git; mkfifo .git`, ""},
	{".GIT", `mkdir .GIT '.git ' .git. 'git~1' '.git::$INDEX_ALLOCATION' 'a\.git'; for d in .GIT '.git ' .git. 'git~1' '.git::$INDEX_ALLOCATION' 'a\.git'; do printf "[core]\nfsmonitor = $P\n" > "$d/config"; done`, ""},
	{".g\u200cit", "mkdir .g\u200cit; printf \"[core]\\nfsmonitor = $P\\n\" > .g\u200cit/config", ""},
	{"linked worktree", `git worktree add -q wt; printf "[core]\nfsmonitor = $P\n" >> .git/config`, `cd wt; git status`},
	{"linked worktree's commondir", `git worktree add -q wt; mkdir c; cp -r .git/objects .git/refs .git/HEAD c/; printf "[core]\nfsmonitor = $P\n" > c/config; echo "$PWD/c" > .git/worktrees/wt/commondir`, `cd wt; git status`},
	{"hooks of the main repository", `git worktree add -q wt; d=$(git -C wt rev-parse --git-common-dir); mkdir -p "$d/hooks"; cp $P "$d/hooks/post-checkout"`, `git checkout -q HEAD~0`},
	{"configuration of the main repository", `git worktree add -q wt; git -C wt config core.fsmonitor $P`, `git status`},
	{"gitlink that is a link", `mkdir real; git init -q real; git -C real config core.fsmonitor $P; ln -s real sub; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub`, `cd sub; git status`},
	{"hooks of a nested repository", `git init -q sub; cd sub; mkdir -p .git/hooks; cp $P .git/hooks/pre-commit; echo x > f`, `cd sub; git add f; git commit -qm x`},
	{"tasks of an editor", `mkdir .vscode; printf '{"tasks":[{"label":"x","command":"%s","runOptions":{"runOn":"folderOpen"}}]}' $P > .vscode/tasks.json`, ""},
	{"environment of a directory", `printf "$P\n" > .envrc`, `. ./.envrc`},
	{"build files", `printf "all:\n\t$P\n" > Makefile; printf '{"scripts":{"postinstall":"%s"}}' $P > package.json`, `make`},
	{"settings of agents", `mkdir .claude; printf '{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"%s"}]}]}}' $P | tee .claude/settings.json > .claude/settings.local.json`, ""},
	{"start files of shells", `printf "$P\n" | tee .zshenv .bash_login > .bashrc`, `. ./.bashrc`},
	{"start file of tests", `printf "import os; os.system('$P')\n" | tee conftest.py > sitecustomize.py`, `PYTHONPATH=. python3 -c 0`},
}

// someOf takes every fifth with -short: each costs dozens of processes.
func someOf[T any](all []T) []T {
	if !testing.Short() {
		return all
	}
	var some []T
	for i := 0; i < len(all); i += 5 {
		some = append(some, all[i])
	}
	return some
}

// arm gives the marker, and the lines of a script that name it.
func arm(t *testing.T) (marker, env string) {
	t.Helper()
	dir := t.TempDir()
	marker = filepath.Join(dir, "ran")
	program := filepath.Join(dir, "program")
	write(t, dir, "program", "#!/bin/sh\necho \"$0 $*\" >> "+marker+"\ncat\n")
	executable(t, program)
	return marker, "M='" + marker + "'; P='" + program + "'; PRIVATE='" + template() + "'\n"
}

// A planting that would never run proves nothing.
func TestPlantingsWouldRun(t *testing.T) {
	t.Parallel()
	for _, p := range someOf(plantings) {
		if p.fires == "" {
			continue // it misleads git without running anything, or needs a program that tests do not have
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(p.fires, "python3") {
				exectest.Need(t, "python3")
			}
			marker, env := arm(t)
			dir := newRepo(t)
			sh(t, dir, env+p.script)
			os.Remove(marker)
			// Most end with an error, or wait for a program that is not what it should be.
			cmd := exec.Command("timeout", "-k", "1", "10", "sh", "-c", p.fires)
			cmd.Dir, cmd.Env, cmd.WaitDelay = dir, gitEnv(), time.Second
			out, err := cmd.CombinedOutput()
			if _, missing := os.Stat(marker); missing != nil {
				t.Errorf("%s ran nothing: %v\n%s", p.fires, err, out)
			}
		})
	}
}

// The same in a repository inside the workspace, which the agent made a part
// of its own: git on the host looks into such by itself.
func TestNestedPlantingsNeverRun(t *testing.T) {
	t.Parallel()
	for _, p := range someOf(plantings) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			marker, env := arm(t)
			repo := newRepo(t)
			w := prepare(t, openJailed(t, Limits{}), "job.1", repo)
			sh(t, w.Dir(), env+"git clone -q . a/sub; (cd a/sub\n"+p.script+"\n)\ntimeout 2 git add a/sub || git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),a/sub; timeout 2 git commit -qm nested || true")
			write(t, w.Dir(), "work", "done\n")
			os.Remove(marker)
			change := collect(t, w)
			if ran, err := os.ReadFile(marker); err == nil {
				t.Fatalf("the host ran the agent's code: %s", ran)
			}
			dir, _ := apply(t, repo, change)
			if got, err := os.ReadFile(filepath.Join(dir, "work")); err != nil || string(got) != "done\n" {
				t.Errorf("the agent's work is not in the patch: %q, %v", got, err)
			}
		})
	}
}

func TestPlantingsNeverRun(t *testing.T) {
	t.Parallel()
	for _, isolation := range []jobs.Isolation{jobs.IsolationWorktree, jobs.IsolationNone} {
		for _, p := range someOf(plantings) {
			t.Run(string(isolation)+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				marker, env := arm(t)
				repo := newRepo(t)
				pristine := filepath.Join(t.TempDir(), "pristine")
				run(t, "/", "git", "clone", "-q", "--no-hardlinks", repo, pristine)
				w := prepareAs(t, open(t, Limits{}), "job.1", jobs.Repo{URL: repo}, isolation)
				sh(t, w.Dir(), env+p.script)
				write(t, w.Dir(), "work", "done\n")
				// What the agent itself ran while it planted does not count.
				os.Remove(marker)
				change := collect(t, w)
				if ran, err := os.ReadFile(marker); err == nil {
					t.Fatalf("the host ran the agent's code: %s", ran)
				}
				dir, _ := apply(t, pristine, change)
				if got, err := os.ReadFile(filepath.Join(dir, "work")); err != nil || string(got) != "done\n" {
					t.Errorf("the agent's work is not in the patch: %q, %v", got, err)
				}
				if err := w.remove(); err != nil {
					t.Errorf("close: %v", err)
				}
				if ran, err := os.ReadFile(marker); err == nil {
					t.Fatalf("the host ran the agent's code: %s", ran)
				}
			})
		}
	}
}

// A second job in a directory that an earlier agent has poisoned.
func TestPoisonedSourceNeverRuns(t *testing.T) {
	t.Parallel()
	for _, p := range someOf(plantings) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			marker, env := arm(t)
			repo := newRepo(t)
			sh(t, repo, env+p.script)
			os.Remove(marker)
			s := open(t, Limits{})
			for _, isolation := range []jobs.Isolation{jobs.IsolationWorktree, jobs.IsolationNone} {
				w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo}, Isolation: isolation})
				if err == nil {
					write(t, w.Dir(), "work", "done\n")
					if _, err := w.Collect(t.Context()); err != nil {
						t.Errorf("%s: collect: %v", isolation, err)
					}
					if err := w.remove(); err != nil {
						t.Errorf("%s: close: %v", isolation, err)
					}
				}
				if ran, err := os.ReadFile(marker); err == nil {
					t.Fatalf("%s: the host ran the agent's code: %s", isolation, ran)
				}
			}
			nothingLeft(t, s)
		})
	}
}

func TestContentOfPlantings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script, want, skipped string
		gone                        string
	}{
		{"nested repository", "git init -q sub; echo deep > sub/f", "+deep", "sub/.git", ""},
		{"committed nested repository", "git init -q sub; cd sub; echo deep > f; git add f; git commit -qm x; cd ..; git add sub", "+deep", "sub/.git", "Subproject"},
		{"fifo over a file", "rm README; mkfifo README", "deleted file mode 100644", "README: is neither", ""},
		{"new fifo", "mkfifo pipe; echo x > other", "+x", "pipe: is neither", ""},
		{"socket", `perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) && bind(S, sockaddr_un("sock")) || exit 1'; echo x > other`, "+x", "sock: is neither", ""},
		{".GIT", "mkdir .GIT; echo evil > .GIT/config; echo x > other", "+x", ".GIT: is .git", "evil"},
		{"hidden by attributes", "echo '* -diff binary' > .gitattributes; echo shown >> README", "+shown", "", ""},
		{"hidden by the index", "git update-index --skip-worktree README; echo shown >> README", "+shown", "", ""},
		{"hidden by exclude", "mkdir -p .git/info; echo '*' > .git/info/exclude; echo shown > new", "+shown", "", ""},
		{"directory replaced by a link", "rm -r src; ln -s /etc src", "+/etc", "", "root:"},
		{"file replaced by a link", "rm README; ln -s /etc/passwd README", "+/etc/passwd", "", "root:"},
		{"attributes are a link", "ln -s /etc/passwd .gitattributes; echo x > new", "+/etc/passwd", "", "root:"},
		{"attributes of the agent", "echo '*.txt text' > .gitattributes; printf 'a\\r\\n' > new.txt", "+a\r\n", "", ""},
		{"ignore file is a link", "rm .gitignore; echo shown > shown.log; ln -s kept.log .gitignore", "+shown", "", ""},
		{"ignore file is a fifo", "rm .gitignore; echo shown > shown.log; mkfifo .gitignore", "+shown", ".gitignore: is neither", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			w := prepare(t, open(t, Limits{}), "job.1", repo)
			sh(t, w.Dir(), c.script)
			change := collect(t, w)
			got := patch(t, change)
			if !strings.Contains(got, c.want) {
				t.Errorf("got patch\n%s\nwant %q in it", got, c.want)
			}
			if c.gone != "" && strings.Contains(got, c.gone) {
				t.Errorf("got patch\n%s\nwant no %q in it", got, c.gone)
			}
			if left := strings.Join(change.Skipped, "\n"); !strings.Contains(left, c.skipped) || c.skipped == "" && left != "" {
				t.Errorf("skipped %q, want %q", left, c.skipped)
			}
			apply(t, repo, change)
		})
	}
}
