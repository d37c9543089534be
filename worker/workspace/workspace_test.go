package workspace

import (
	"errors"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestChangeIsWhatAddWouldAdd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script string }{
		{"nothing", "true"},
		{"edit", "echo more >> README"},
		{"edit of the same size", "printf 'hEllo\nworld\n' > README"},
		{"edit with the old time", "touch -r README /tmp/$$; printf 'hEllo\nworld\n' > README; touch -r /tmp/$$ README; rm /tmp/$$"},
		{"touch", "touch README src/*"},
		{"new", "echo x > new; mkdir -p p/q; echo y > p/q/r"},
		{"delete", "rm README; rm -r src"},
		{"delete all", "rm -rf * .gitignore"},
		{"rename", "mv src source; mv README README.md"},
		{"mode", "chmod +x README; chmod -x tools/fmt.sh"},
		{"link", "rm link; ln -s src link; ln -s /etc/passwd secret; ln -s nowhere dangling"},
		{"file becomes link", "rm README; ln -s src/a.go README"},
		{"link becomes file", "rm link; echo file > link"},
		{"file becomes directory", "rm README; mkdir README; echo x > README/x"},
		{"directory becomes file", "rm -r src; echo x > src"},
		{"directory becomes link", "rm -r src; ln -s /etc src"},
		{"ignored", "echo x > x.log; mkdir out; echo x > out/x; echo changed > kept.log"},
		{"ignore file changed", "echo '!important.log' >> .gitignore; echo x > important.log; echo y > other.log; mkdir -p n; echo 'secret' > n/.gitignore; echo x > n/secret; echo x > n/public"},
		{"hostile names", `echo x > "a
b"; echo x > 'q"uote'; echo x > "$(printf '\377\376')"; echo x > ./--help; echo x > 'back\slash'; echo x > ' '; echo x > "ünï"; mkdir -- -d; echo x > -d/-f; echo x > 'tab	'`},
		{"names that differ in case", "echo x > readme; echo y > Readme; mkdir SRC; echo z > SRC/a.go"},
		{"binary", "head -c 100000 /dev/urandom > bin; printf 'a\\0b' > src/a.go"},
		{"no newline at the end", "printf x > new; printf 'hello' > README"},
		{"empty files", ": > empty; : > README"},
		{"committed", "echo x > new; git add -A; git commit -qm work; echo y > later"},
		{"committed and removed", "echo x > new; git add -A; git commit -qm work; rm new"},
		{"other branch", "git switch -qc other; rm README; git commit -qam x; git switch -q agent; echo y > y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			before := listing(t, repo)
			w := prepare(t, open(t, Limits{}), "job.1", repo)
			sh(t, w.Dir(), c.script)
			change := collect(t, w)
			_, got := apply(t, repo, change)
			sh(t, w.Dir(), "git add -A")
			if want := run(t, w.Dir(), "git", "write-tree"); got != want {
				t.Errorf("got tree %s, want %s\n%s\n%q", got, want, patch(t, change), change.Skipped)
			}
			if len(change.Skipped) > 0 {
				t.Errorf("skipped %q, want nothing", change.Skipped)
			}
			if again := collect(t, w); again.SHA256 != change.SHA256 || again.Files != change.Files {
				t.Errorf("a second collect gives %v, the first gave %v", again, change)
			}
			if after := listing(t, repo); after != before {
				t.Errorf("the user's repository was changed:\n%s\nwas\n%s", after, before)
			}
			if got := run(t, repo, "git", "worktree", "list"); strings.Count(got, "\n") != 0 {
				t.Errorf("git worktree list: %s", got)
			}
		})
	}
}

func TestAgentSeesAnOrdinaryClone(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	head := run(t, repo, "git", "rev-parse", "HEAD")
	w := prepare(t, open(t, Limits{}), "job.1", repo)
	for _, c := range []struct{ command, want string }{
		{"git status --porcelain", ""},
		{"git rev-parse HEAD", head},
		{"git symbolic-ref --short HEAD", "agent"},
		{"git rev-parse origin/main", head},
		{"git remote", ""},
		{"git fsck --strict", ""},
		{"git log --format=%s", "first"},
		{"git config user.email", "agent@penstock.invalid"},
		{"cat .git/objects/info/alternates 2>/dev/null || echo none", "none"},
		{"find .git -type f -links +1", ""},
		{"ls .git/hooks 2>/dev/null || echo none", "none"},
		{"git commit -q --allow-empty -m x && git gc -q && git fsck && git log --format=%an%ae -1", "Aa@example.org"},
	} {
		if got := run(t, w.Dir(), "sh", "-c", c.command); got != c.want {
			t.Errorf("%s: got %q, want %q", c.command, got, c.want)
		}
	}
	if w.Base() != head {
		t.Errorf("base: got %s, want %s", w.Base(), head)
	}
	data, err := os.ReadFile(filepath.Join(w.Dir(), ".git/config"))
	if err != nil || strings.Contains(string(data), w.Dir()) {
		t.Errorf("config names the host's directory, err %v:\n%s", err, data)
	}
}

// straighten has links that lead to themselves lead nowhere. Git cannot look below such a link and
// leaves in the index what was there; see [TestALinkThatLeadsToItself].
func straighten(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.Type()&os.ModeSymlink == 0 {
			return err
		}
		if _, err := os.Stat(name); !errors.Is(err, syscall.ELOOP) {
			return nil
		}
		return errors.Join(os.Remove(name), os.Symlink("nowhere", name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A directory that a link to itself has replaced is gone, whatever git add makes of it.
func TestALinkThatLeadsToItself(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "rm -rf many; ln -s many/f2 many")
	change := collect(t, w)
	dir, _ := apply(t, template(), change)
	if got := run(t, dir, "git", "ls-files", "-s", "many"); !strings.HasPrefix(got, "120000 ") || strings.Contains(got, "\n") {
		t.Errorf("the change has of it:\n%s", got)
	}
}

// Random edits, over and over in one workspace, give the tree that git add -A
// gives.
func TestRandomEditsAsAdd(t *testing.T) {
	t.Parallel()
	rounds := 25
	if testing.Short() {
		rounds = 4
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	name := func() string {
		p := pick("README", "link", "src", "src/a.go", "src/b.go", "many", "many/f1", "many/f2", "tools/fmt.sh", "new", "new/x", "n", "n/deep/er", "out/x", "x.log", "kept.log")
		if rng.IntN(4) == 0 {
			p = path.Join(p, pick("sub", "a b", "é", "-x"))
		}
		return p
	}
	for range rounds {
		w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
		var script strings.Builder
		for range 1 + rng.IntN(12) {
			a, b := name(), name()
			script.WriteString("{ " + pick(
				"mkdir -p '"+path.Dir(a)+"'; echo "+b+" > '"+a+"'", "echo "+b+" >> '"+a+"'", "rm -rf '"+a+"'", "mkdir -p '"+a+"'",
				"mkdir -p '"+path.Dir(b)+"'; mv '"+a+"' '"+b+"'", "cp -r '"+a+"' '"+b+"'", "chmod +x '"+a+"'", "chmod -x '"+a+"'",
				"ln -sfn '"+b+"' '"+a+"'", "echo '"+pick("*.go", "/src", "many/", "!kept.log", "*", "!*/", "new")+"' >> .gitignore",
				"mkdir -p src; echo '"+pick("*", "a.go", "!*.log")+"' > src/.gitignore", "truncate -s 0 '"+a+"'", "touch '"+a+"'",
			) + "; } 2>/dev/null || true\n")
		}
		sh(t, w.Dir(), script.String())
		straighten(t, w.Dir())
		for range 2 {
			change := collect(t, w)
			_, got := apply(t, template(), change)
			sh(t, w.Dir(), "cp -p .git/index .git/index.kept; git add -A")
			want := run(t, w.Dir(), "git", "write-tree")
			sh(t, w.Dir(), "mv .git/index.kept .git/index; echo again >> again")
			if got != want {
				t.Fatalf("seed %d: got tree %s, want %s after\n%s\n%s", seed, got, want, script.String(), patch(t, change))
			}
		}
		w.Close()
	}
}
