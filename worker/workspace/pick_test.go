package workspace

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// picks returns what Pick hands out, and what it says of the rest.
func picks(tb testing.TB, w *Workspace, patterns ...string) (got map[string]string, left string) {
	tb.Helper()
	got = map[string]string{}
	lines, err := w.Pick(tb.Context(), patterns, func(picked Picked) error {
		data, err := io.ReadAll(picked.Content)
		if _, twice := got[picked.Path]; twice {
			tb.Errorf("%s was handed out twice", picked.Path)
		}
		got[picked.Path] = string(data)
		return err
	})
	if err != nil {
		tb.Fatalf("pick: %v", err)
	}
	return got, strings.Join(lines, "\n")
}

func TestPick(t *testing.T) {
	t.Parallel()
	const none = ": there is no such file; links are not followed"
	for _, c := range []struct {
		name, script, patterns, want, left string
	}{
		{"of the base", "true", "README src/*.go", "README src/a.go src/b.go", ""},
		{"written and ignored", "mkdir -p out/x; echo 1 > out/x/r.xml; echo 2 > out/r.txt; echo 3 > a.log", "out/**/*.xml *.log", "out/x/r.xml a.log kept.log", ""},
		{"a directory", "mkdir -p out/x/y; touch out/a out/x/y/b", "out/ many", "out/a out/x/y/b many/f0 many/f1 many/f2 many/f3 many/f4 many/f5 many/f6 many/f7 many/f8 many/f9", ""},
		{"any depth", "mkdir -p d/e/f; touch x.xml d/x.xml d/e/f/x.xml d/e/f/y", "**/*.xml", "x.xml d/x.xml d/e/f/x.xml", ""},
		{"depth in between", "mkdir -p d/e/f/g; touch d/x d/e/x d/e/f/x d/e/f/g/y", "d/**/f/**/y d/**/x", "d/x d/e/x d/e/f/x d/e/f/g/y", ""},
		{"twice asked for", "true", "README ** README", "README .gitignore kept.log many/f0 many/f1 many/f2 many/f3 many/f4 many/f5 many/f6 many/f7 many/f8 many/f9 src/a.go src/b.go tools/fmt.sh", "link: is a link, and those are not followed"},
		{"not there", "rm src/b.go; rm -r many; mkdir many", "src/b.go many many/* nowhere src/*/x", "", "src/b.go" + none + "\nmany" + none + "\nmany/*" + none + "\nnowhere" + none + "\nsrc/*/x" + none},
		{"removed and made again", "rm -r many; mkdir many; echo x > many/f1; rm README; mkdir README; echo y > README/z", "many README", "many/f1 README/z", ""},
		{"renamed", "mv many lots; echo x > lots/f3; rm lots/f4; mkdir -p a/b; mv src a/b/c; echo y > a/b/c/n", "lots many a/**", "lots/f0 lots/f1 lots/f2 lots/f3 lots/f5 lots/f6 lots/f7 lots/f8 lots/f9 a/b/c/a.go a/b/c/b.go a/b/c/n", "many" + none},
		{"swapped", "mv many x; mv src many; mv x src; rm src/f0", "many src/f[0-1]", "many/a.go many/b.go src/f1", ""},
		{"links", "ln -s README l; ln -s /etc d; ln -s /etc/passwd p; rm -r src; ln -s /etc src", "l d d/passwd p src/passwd src", "", "d: is a link, and those are not followed\nl: is a link, and those are not followed\np: is a link, and those are not followed\nsrc: is a link, and those are not followed\nd/passwd" + none + "\nsrc/passwd" + none},
		{"hard links", "echo x > a; ln a b; cp a c", "a b c", "c", "a: has 2 names (hard links): a copy would be kept\nb: has 2 names (hard links): a copy would be kept"},
		{"what is no file", "mkfifo f; rm README; mkfifo README; perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) && bind(S, sockaddr_un(\"s\")) || exit 1'", "f s README", "", "README: is no regular file\nf: is no regular file\ns: is no regular file"},
		{"git directories", "git init -q sub; echo x > sub/x; mkdir -p o/.GIT; echo y > o/.GIT/y", "* sub/** .g*/config **/config **/y", ".gitignore README kept.log many/f0 many/f1 many/f2 many/f3 many/f4 many/f5 many/f6 many/f7 many/f8 many/f9 src/a.go src/b.go tools/fmt.sh sub/x", "link: is a link, and those are not followed\n.g*/config" + none + "\n**/config" + none + "\n**/y" + none},
		{"odd names", `mkdir o; echo x > $'o/a\nb'; echo y > $'o/\xff'; echo z > 'o/[x]'; echo q > 'o/"q"'`, `o/a* o/\[x\] o/`, `"o/a\nb" "o/\xff" o/[x] "o/\"q\""`, ""},
		{"no rights", "mkdir h; echo x > h/x; chmod 000 h/x h; chmod 000 README", "h README", "h/x README", ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			for strategy, w := range both(t, newRepo(t)) {
				act(t, w, c.script)
				got, left := picks(t, w, strings.Fields(c.patterns)...)
				want := strings.Fields(c.want)
				if slices.Sort(want); !slices.Equal(slices.Sorted(maps.Keys(got)), want) || left != c.left {
					t.Errorf("%s: got %q\nwant %q\nleft out are\n%s\nwant\n%s", strategy, slices.Sorted(maps.Keys(got)), want, left, c.left)
				}
				agrees(t, w, got)
			}
		})
	}
}

// agrees fails unless the agent sees in the files that are named plainly what
// was handed out.
func agrees(t *testing.T, w *Workspace, got map[string]string) {
	t.Helper()
	script, want := "chmod -f 755 h || true; [ -d README ] || chmod -f 644 h/x README || true\n", ""
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !strings.HasPrefix(name, `"`) {
			script += "cat '" + name + "'\n"
			want += got[name]
		}
	}
	if seen := act(t, w, script); seen != want {
		t.Errorf("%q was handed out, the agent sees %q", want, seen)
	}
}

func TestPickIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script, want, left string
		limits                   Limits
	}{
		{"files", "touch 1 2 3 4 5", "1 2 3", "4: is beyond the limit of 3 files\n5: is beyond the limit of 3 files", Limits{Artifacts: 3}},
		{"bytes of one", "truncate -s 10G 1; echo x > 2", "2", "1: has 10737418240 bytes, and all files together may have 268435456", Limits{}},
		{"bytes of all", "for i in 1 2 3; do head -c 40 /dev/zero > $i; done; echo x > 4", "1 2 4", "3: has 40 bytes, and all files together may have 100", Limits{ArtifactBytes: 100}},
		{"entries", "seq 1 100 | xargs touch", "", "the search was given up: ", Limits{Entries: 30}},
		{"depth", "mkdir -p $(seq -s/ 1 20)", "", "the search was given up: ", Limits{Depth: 10}},
		{"a long path", "d=$(printf %0200d 0); mkdir -p $d/$d; touch $d/$d/$d x", "x", "characters", Limits{}},
		{"many reasons", "for i in $(seq 1 150); do mkfifo p$i; done", "", "and 50 more", Limits{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := prepareAs(t, open(t, c.limits), "job.1", jobs.Repo{}, jobs.IsolationNone)
			sh(t, w.Dir(), c.script)
			got, left := picks(t, w, "**")
			if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != c.want || !strings.Contains(left, c.left) {
				t.Errorf("got %q, want %q; left out are\n%s\nwant\n%s", names, c.want, left, c.left)
			}
		})
	}
}

// With isolation none the directory is the user's own, with what the user has.
func TestPickFromTheUsersDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "out/report", "x")
	write(t, dir, "closed", "y")
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	w := prepareAs(t, open(t, Limits{}), "job.1", jobs.Repo{URL: dir}, jobs.IsolationNone)
	got, left := picks(t, w, "out", "closed")
	if os.Geteuid() != 0 {
		if left != "closed: cannot be read: permission denied" {
			t.Errorf("left out are %q", left)
		}
		delete(got, "closed")
		got["closed"] = "y"
	}
	if !maps.Equal(got, map[string]string{"out/report": "x", "closed": "y"}) {
		t.Errorf("got %q", got)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the directory is now\n%s\nwas\n%s", after, before)
	}
}

// The function that takes a file decides whether to continue.
func TestPickEndsWithItsTaker(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	full := errors.New("full")
	taken := 0
	_, err := w.Pick(t.Context(), []string{"many"}, func(Picked) error { taken++; return full })
	if !errors.Is(err, full) || taken != 1 {
		t.Errorf("took %d files, err %v", taken, err)
	}
}

// A process that outlived the agent swaps what is asked for with what lies
// outside, and with what would hang or flood a reader.
func TestPickNeverLeavesTheWorkspace(t *testing.T) {
	t.Parallel()
	const secret = "S3CRET-outside"
	outside := t.TempDir()
	write(t, outside, "file", secret)
	write(t, outside, "dir/report", secret)
	write(t, outside, "linked", secret)
	for _, strategy := range []Strategy{Clone, Overlay} {
		t.Run(string(strategy), func(t *testing.T) {
			w := prepareAs(t, openAs(t, strategy, Limits{}), "job.1", jobs.Repo{URL: newRepo(t)}, jobs.IsolationWorktree)
			act(t, w, "mkdir -p out/dir; echo mine > out/dir/report; echo mine > out/report; echo mine > twice")
			at := func(name string) string { return filepath.Join(w.Dir(), name) }
			symlink(t, filepath.Join(outside, "file"), at("link-file"))
			symlink(t, filepath.Join(outside, "dir"), at("link-dir"))
			if err := os.Link(filepath.Join(outside, "linked"), at("hard")); err != nil {
				t.Fatal(err)
			}
			special(t, w.Dir())
			stop := swapping(t, w.Dir(), [][2]string{{"out/report", "link-file"}, {"out/dir", "link-dir"}, {"out/report", "fifo"}, {"out/report", "socket"},
				{"out/report", "device"}, {"out/report", "hard"}, {"out", "link-dir"}, {"out/dir", "fifo"}, {"out/dir/report", "hard"}})
			rounds, mine := 0, 0
			for begun := time.Now(); time.Since(begun) < 2*time.Second || (rounds < 200 && time.Since(begun) < time.Minute); rounds++ {
				got, _ := picks(t, w, "out/**", "*/report", "out/dir/report", "report")
				for name, content := range got {
					if mine++; content != "mine\n" {
						t.Fatalf("%s: %q was handed out", name, content)
					}
				}
			}
			if swaps := stop(); rounds < 200 || swaps < 1000 || mine < 100 {
				t.Errorf("only %d rounds with %d files against %d swaps: that proves little", rounds, mine, swaps)
			}
		})
	}
}
