package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// shaped is a repository with what real ones have and tests forget.
func shaped(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "a path\nwith lines")
	inner := newRepo(tb)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	sh(tb, dir, `git init -q -b main
mkdir 'dir with spaces' "$(printf 'two\nlines')" "$(printf 'latin-\351')"
for d in */; do echo one > "$d/$(printf 'f\tx\n\377')"; echo one > "$d/plain"; done
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 0 > model.bin
echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes
git -c protocol.file.allow=always submodule --quiet add "`+inner+`" vendor/inner
git -c filter.lfs.required=false add -A
git commit -q -m shapes`)
	return dir
}

// agentRuns runs a script in a jail that sees the workspace.
func agentRuns(tb testing.TB, w *Workspace, script string) string {
	tb.Helper()
	spec := sandbox.Spec{
		Args: []string{"sh", "-ec", script}, Preset: sandbox.PresetOffline, Label: "shapes",
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C"},
	}
	w.Show(&spec)
	var out, said strings.Builder
	exit, err := sandbox.Run(tb.Context(), w.spaces.cfg.Jail, spec, sandbox.Streams{Stdout: &out, Stderr: &said})
	if err != nil || !exit.Success() {
		tb.Fatalf("%s: %v, %v\n%s%s", script, exit, err, out.String(), said.String())
	}
	return out.String()
}

func TestRealShapes(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Overlay, Clone} {
		t.Run(string(strategy), func(t *testing.T) {
			s := openAs(t, strategy, Limits{})
			if err := s.Try(t.Context(), strategy); err != nil {
				t.Skip(err)
			}
			repo := shaped(t)
			gitlink := run(t, repo, "git", "ls-files", "-s", "vendor/inner")
			w := prepare(t, s, "job.1", repo)
			if got := agentRuns(t, w, "git status --porcelain; ls vendor/inner; head -c 24 model.bin"); got != "version https://git-lfs." {
				t.Errorf("before any work: got %q", got)
			}
			if got := collect(t, w); got.PatchSize != 0 || len(got.Notes) > 0 {
				t.Errorf("before any work: got %v\n%s", got.Notes, patch(t, got))
			}
			agentRuns(t, w, `for d in */; do [ -f "$d/plain" ] && for f in "$d"/*; do echo two >> "$f"; done; done
mv 'dir with spaces' "$(printf 'moved\n\376')"; git add -A; echo inside > vendor/inner/f
git commit -q -am work; echo new > "$(printf 'new\n\375')"`)
			c := collect(t, w)
			dir, tree := apply(t, repo, c)
			if c.Commits != 2 || len(c.Notes) > 0 {
				t.Errorf("got %d commits, notes %q", c.Commits, c.Notes)
			}
			if got := run(t, dir, "git", "ls-files", "-s", "vendor/inner"); got != gitlink {
				t.Errorf("the submodule is %q, was %q", got, gitlink)
			}
			want := strings.ReplaceAll(run(t, repo, "git", "show", "main:model.bin"), "\n", " ")
			if got := strings.ReplaceAll(run(t, dir, "git", "show", ":model.bin"), "\n", " "); got != want {
				t.Errorf("the pointer is %q", got)
			}
			if got := agentRuns(t, w, `git add -A && git write-tree`); strings.TrimSpace(got) != tree {
				t.Errorf("the patch leads to %s, the agent has %s:\n%s", tree, got, patch(t, c))
			}
		})
	}
}

// large makes a repository as large as people's own: thousands of files, some
// of them pointers, in hundreds of directories, with submodules.
func large(tb testing.TB, files int) string {
	tb.Helper()
	repo := shaped(tb)
	for i := range files {
		name, content := fmt.Sprintf("pkg %d/mod%d/f%d.go", i%17, i%13, i), fmt.Sprintf("package f%d\n", i)
		if i%40 == 0 {
			name = fmt.Sprintf("assets/%d.bin", i)
			content = fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize %d\n", i, i*1000)
		}
		write(tb, repo, name, content)
	}
	sh(tb, repo, `git -c protocol.file.allow=always submodule --quiet add "$(git config -f .gitmodules submodule.vendor/inner.url)" 'third party/inner'
git -c filter.lfs.required=false add -A; git commit -q -m large`)
	return repo
}

// TestRealSize: what an agent did all over a large repository is collected as
// git itself sees it in a checkout where a person did the same.
func TestRealSize(t *testing.T) {
	t.Parallel()
	repo := large(t, 6000)
	const work = `for f in */mod7/*.go; do echo '// changed' >> "$f"; done
rm -r 'pkg 3'; mv 'pkg 4' "$(printf 'pkg\n4\377')"; mkdir -p gen; for i in $(seq 300); do echo $i > gen/$i; done
for f in assets/*00.bin; do sed s/size.*/size\ 1/ "$f" > x; cat x > "$f"; done; rm x; chmod +x 'pkg 5'/*/*.go; ln -sf README link; rm -r 'two
lines'`
	person := filepath.Join(t.TempDir(), "person")
	run(t, "/", "git", "clone", "-q", "--no-hardlinks", repo, person)
	sh(t, person, work+"\ngit add -A")
	want := run(t, person, "git", "write-tree")
	for _, strategy := range []Strategy{Overlay, Clone} {
		t.Run(string(strategy), func(t *testing.T) {
			s := openAs(t, strategy, Limits{})
			if err := s.Try(t.Context(), strategy); err != nil {
				t.Skip(err)
			}
			w := prepare(t, s, "job.1", repo)
			agentRuns(t, w, work)
			c := collect(t, w)
			if _, tree := apply(t, repo, c); tree != want || c.Files < 1000 || len(c.Notes) > 0 {
				t.Errorf("the patch of %d files leads to %s, want %s; notes %q", c.Files, tree, want, c.Notes)
			}
			agentRuns(t, w, `git add -A; git commit -q -m all; test "$(git rev-parse HEAD^{tree})" = `+want)
			if again := collect(t, w); again.Commits != 1 || again.SHA256 != c.SHA256 {
				t.Errorf("committed it is %d commits and the patch %s, was %s", again.Commits, again.SHA256, c.SHA256)
			}
		})
	}
}

func TestRepositoriesWithoutTheCommit(t *testing.T) {
	t.Parallel()
	empty, full := filepath.Join(t.TempDir(), "empty"), shaped(t)
	run(t, "/", "git", "init", "-q", "-b", "main", empty)
	for _, strategy := range []Strategy{Overlay, Clone} {
		s := openAs(t, strategy, Limits{})
		if err := s.Try(t.Context(), strategy); err != nil {
			t.Skip(err)
		}
		for _, repo := range []jobs.Repo{
			{URL: empty}, {URL: empty, Ref: "main"}, {URL: full, Ref: "nowhere"}, {URL: full, Commit: strings.Repeat("1", 40)},
		} {
			w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: repo, Isolation: jobs.IsolationWorktree})
			if _, missing := errors.AsType[*source.RefError](err); !missing {
				t.Errorf("%s, %q: got %v", strategy, repo, err)
			}
			if err == nil {
				w.Close()
			}
			nothingLeft(t, s)
		}
	}
}
