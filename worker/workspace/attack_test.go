package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// plantings are what an agent may leave for the host's git to run. Each runs
// in the workspace; $M is the file that proves that something ran, $P a
// program that makes it.
var plantings = []struct{ name, script string }{
	{"hook", `mkdir -p .git/hooks; for h in pre-commit post-checkout post-index-change reference-transaction fsmonitor-watchman; do cp $P .git/hooks/$h; done`},
	{"hooks swapped", `mkdir .git/h2; mkdir -p .git/hooks; mv .git/hooks .git/h3; mv .git/h2 .git/hooks; cp $P .git/hooks/pre-commit`},
	{"fsmonitor", `git config core.fsmonitor $P`},
	{"config replaced", `cp .git/config .git/c2; printf "[core]\nfsmonitor = $P\n" >> .git/c2; mv -f .git/c2 .git/config`},
	{".git rebuilt", `mv .git .git2; cp -a .git2 .git; git config core.fsmonitor $P; rm -rf .git2`},
	{"ssh command", `git config core.sshCommand $P; git config remote.o.url ssh://x/y`},
	{"hooks path", `mkdir h; cp $P h/pre-commit; git config core.hooksPath h`},
	{"credential helper", `git config credential.helper "!$P"`},
	{"filter", `git config filter.z.clean $P; git config filter.z.smudge $P; git config filter.z.process $P; echo '* filter=z' > .gitattributes`},
	{"textconv", `git config diff.z.textconv $P; git config diff.z.command $P; echo '* diff=z' > .gitattributes`},
	{"external diff", `git config diff.external $P`},
	{"merge driver", `git config merge.z.driver $P; echo '* merge=z' > .gitattributes`},
	{"pager", `git config core.pager $P; git config pager.diff-tree $P`},
	{"gpg", `git config gpg.program $P; git config commit.gpgsign true`},
	{"alias", `git config alias.diff-tree "!$P"; git config alias.st "!$P"`},
	{"commondir", `mkdir evil; cp -a .git/objects .git/refs .git/HEAD evil/; printf "[core]\nfsmonitor = $P\n" > evil/config; echo ../evil > .git/commondir`},
	{"config.worktree", `git config extensions.worktreeConfig true; printf "[core]\nfsmonitor = $P\n" > .git/config.worktree`},
	{"include", `git config include.path ../.gitshared; printf "[core]\nfsmonitor = $P\n" > .gitshared`},
	{"husky", `mkdir .husky; cp $P .husky/pre-commit; git config core.hooksPath .husky`},
	{"filter tool in the tree", `cp $P tools/fmt.sh; git config filter.fmt.clean ./tools/fmt.sh; echo '*.go filter=fmt' > .gitattributes`},
	{"nested repository", `mkdir sub; cd sub; git init -q; echo x > f; git config core.fsmonitor $P`},
	{"nested gitlink", `mkdir sub; cd sub; git init -q; echo x > f; git add f; git commit -qm x; cd ..; git add sub 2>/dev/null; git -C sub config core.fsmonitor $P`},
	{"gitlink five down", `mkdir -p a/b/c/d/sub; cd a/b/c/d/sub; git init -q; echo x > f; git add f; git commit -qm x; git config core.fsmonitor $P; cd ../../../../..; git add a 2>/dev/null`},
	{"bare repository", `mkdir b; cp -r .git/objects .git/refs .git/HEAD b/; printf "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ..\nfsmonitor = $P\n" > b/config`},
	{"modules", `mkdir -p .git/modules/x; printf "[core]\nfsmonitor = $P\n" > .git/modules/x/config`},
	{"submodule's .git", `mkdir evilgd sm; cp -r .git/objects .git/refs .git/HEAD evilgd/; printf "[core]\nfsmonitor = $P\n" > evilgd/config; echo 'gitdir: ../evilgd' > sm/.git; echo x > sm/f`},
	{".gitmodules", `printf "[submodule \"x\"]\npath = x\nurl = ext::$P\nupdate = !$P\n" > .gitmodules; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; mkdir x`},
	{"rebase state", `mkdir .git/rebase-merge; echo "exec $P" > .git/rebase-merge/git-rebase-todo`},
	{"replace", `echo evil > README; git commit -qam evil; git replace HEAD~1 HEAD; git reset -q --hard HEAD~1 2>/dev/null || true`},
	{"skip-worktree", `git update-index --skip-worktree README; git update-index --assume-unchanged src/a.go; echo hidden >> README; echo hidden >> src/a.go`},
	{"exclude", `mkdir -p .git/info; echo '*' > .git/info/exclude; echo x > hidden`},
	{"other branch", `git update-ref refs/heads/release HEAD; git update-ref refs/remotes/origin/main $(git commit-tree HEAD^{tree} -m evil)`},
	{"objects destroyed", `rm -rf .git/objects/*`},
	{".git file", `mv .git .e; printf "[core]\nfsmonitor = $P\n" >> .e/config; echo "gitdir: $PWD/.e" > .git`},
	{".git anew", `rm -rf .git; git init -q; git config core.fsmonitor $P`},
	{"forged main repository", `mkdir -p .m/.git/worktrees/j; cp -r .git/objects .git/refs .git/HEAD .m/.git/; printf "[core]\nfsmonitor = $P\n" > .m/.git/config; rm -rf .git; echo "gitdir: $PWD/.m/.git/worktrees/j" > .git; echo ../.. > .m/.git/worktrees/j/commondir; echo "$PWD/.git" > .m/.git/worktrees/j/gitdir; echo ref: refs/heads/agent > .m/.git/worktrees/j/HEAD`},
	{"branch names", `mkdir -p .git/refs/heads; git rev-parse HEAD > ".git/refs/heads/x;$(basename $P)"; git rev-parse HEAD > '.git/refs/heads/--upload-pack=x' `},
	{"alternates", `mkdir -p .git/objects/info; echo $PRIVATE/.git/objects > .git/objects/info/alternates`},
	{"info/attributes", `mkdir -p .git/info; echo '* filter=fmt' > .git/info/attributes; git config filter.fmt.clean $P`},
	{"submodule.recurse", `git config submodule.recurse true; git config diff.ignoreSubmodules none; git config status.submoduleSummary true`},
	{"uploadpack hook", `git config uploadpack.packObjectsHook $P`},
	{"alternate refs", `git config core.alternateRefsCommand $P`},
	{"index garbage", `head -c 5000 /dev/urandom > .git/index`},
	{"HEAD garbage", `echo 'ref: ../../../../etc/passwd' > .git/HEAD`},
	{"HEAD is a fifo", `rm .git/HEAD; mkfifo .git/HEAD`},
	{"config is a fifo", `rm .git/config; mkfifo .git/config`},
	{"lock files", `touch .git/index.lock .git/HEAD.lock .git/config.lock`},
	{".git is gone", `rm -rf .git`},
	{".git is a link", `mv .git /tmp/git-$$; ln -s /tmp/git-$$ .git; rm -rf /tmp/git-$$`},
	{".git is a fifo", `rm -rf .git; mkfifo .git`},
	{".GIT", `mkdir .GIT '.git ' .git. 'git~1' '.git::$INDEX_ALLOCATION' 'a\.git'; for d in .GIT '.git ' .git. 'git~1' '.git::$INDEX_ALLOCATION' 'a\.git'; do printf "[core]\nfsmonitor = $P\n" > "$d/config"; done`},
	{".g\u200cit", "mkdir .g\u200cit; printf \"[core]\\nfsmonitor = $P\\n\" > .g\u200cit/config"},
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

func TestPlantingsNeverRun(t *testing.T) {
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
				if err := w.Close(); err != nil {
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
					if err := w.Close(); err != nil {
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
