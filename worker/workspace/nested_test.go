package workspace

import (
	"strings"
	"testing"
)

// TestNestedRepositoryWithCommits: a repository that the agent makes within its
// workspace comes back as its files, whatever the agent's git made of it. A gitlink
// would name a commit that only the agent had.
func TestNestedRepositoryWithCommits(t *testing.T) {
	t.Parallel()
	const nested = `git init -q sub/inner; cd sub/inner; echo deep > f; echo '*.o' > .gitignore; echo x > x.o; git add .; git commit -q -m inner; echo more > g; cd ../..
`
	for name, script := range map[string]string{
		"left alone":    nested,
		"added":         nested + "git add -A",
		"committed":     nested + "git add -A; git commit -q -m outer; echo y > y",
		"a clone":       "git clone -q . sub/inner; cd sub/inner; git checkout -q -b own; rm -r many tools src link kept.log; echo deep > f; echo more > g; git add -A; git commit -q -m inner",
		"with worktree": nested + "git -C sub/inner worktree add -q ../other; rm sub/other/f sub/other/.gitignore",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, s := newRepo(t), openJailed(t, Limits{})
			w := prepare(t, s, "job.1", repo)
			inside(t, w, script)
			change := collect(t, w)
			if got := patch(t, change); !strings.Contains(got, "+deep") || !strings.Contains(got, "+more") || strings.Contains(got, "Subproject") {
				t.Errorf("got patch\n%s", got)
			}
			if got := strings.Join(change.Skipped, "\n"); !strings.Contains(got, "sub/inner/.git") || !strings.Contains(got, "its files are kept") {
				t.Errorf("nothing says what became of the nested .git: %q", got)
			}
			deliver(t, change, deliveryTo(repo, "penstock/x"))
			tree := run(t, repo, "git", "ls-tree", "-r", "penstock/x", "sub/")
			if !strings.Contains(tree, "\tsub/inner/f") || !strings.Contains(tree, "\tsub/inner/g") || strings.Contains(tree, "160000") || strings.Contains(tree, ".o") {
				t.Errorf("the delivered branch has\n%s", tree)
			}
			dir, _ := apply(t, repo, change)
			if got := run(t, dir, "git", "ls-files", "-s", "sub"); got != strings.ReplaceAll(run(t, repo, "git", "ls-tree", "-r", "--format=%(objectmode) %(objectname) 0%x09%(path)", "penstock/x", "sub/"), "\r", "") {
				t.Errorf("the patch has other files than the branch:\n%s", got)
			}
		})
	}
}
