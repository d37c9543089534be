package patchstat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// threeFiles is a change, a new file, and a new mode of one with an odd name.
const threeFiles = `diff --git a/go.sum b/go.sum
index 1111111..2222222 100644
--- a/go.sum
+++ b/go.sum
@@ -10,7 +10,7 @@
 a
 b
 c
-old
+new
 d
 e
 f
diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/.github/workflows/ci.yml
@@ -0,0 +1,2 @@
+on: push
+jobs: {}
diff --git "a/docs/\303\251t\303\251 <img src=x>.md" "b/docs/\303\251t\303\251 <img src=x>.md"
old mode 100644
new mode 100755
`

func stat(t testing.TB, text string) Stat {
	t.Helper()
	s, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRead(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"empty", "", "+0 -0"},
		{"two files", threeFiles, `+3 -1 [go.sum +1 -1 [{13 14}]] [.github/workflows/ci.yml +2 -0 [{1 1}] new 100644] [docs/été <img src=x>.md +0 -0 [] 100755]`},
		{"looks like headers", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n--- a/y\n+++ b/y\n+diff --git a/z b/z\n c\n-@@ -1 +1 @@\n", "+2 -2 [x +2 -2 [{1 2} {3 4}]]"},
		{"rename", "diff --git a/old name b/new name\nsimilarity index 90%\nrename from old name\nrename to new name\n", "+0 -0 [new name +0 -0 [] from old name]"},
		{"deleted", "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n", "+0 -1 [x +0 -1 [{1 2}] deleted]"},
		{"binary", "diff --git a/x b/x\nGIT binary patch\nliteral 3\nKcmZQz\n--- a/y\n\ndiff --git a/z b/z\nBinary files a/z and b/z differ\n", "+0 -0 [x +0 -0 [] binary] [z +0 -0 [] binary]"},
		{"insertion", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,0 +4,2 @@\n+a\n+b\n", "+2 -0 [x +2 -0 [{4 4}]]"},
		{"stripped blanks", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n a\n\n+b\n c\n", "+1 -0 [x +1 -0 [{3 3}]]"},
		{"lying counts", "diff --git a/x b/x\n@@ -1,900 +1,900 @@\n+a\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "+2 -1 [x +1 -0 [{1 1}]] [y +1 -1 [{1 2}]]"},
		{"huge counts", "diff --git a/x b/x\n@@ -1,99999999999999999999 +1 @@\n+a\n", "+0 -0 [x +0 -0 []]"},
		{"prose", "no patch at all\n+x\n", "+0 -0"},
	}
	for _, c := range cases {
		if got := show(stat(t, c.text)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	long := "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+" + strings.Repeat("y", 1<<20) + "\n+z\n"
	if got := show(stat(t, long)); got != "+2 -0 [x +2 -0 [{1 1}]]" {
		t.Errorf("a long line: %s", got)
	}
}

func show(s Stat) string {
	var b strings.Builder
	fmt.Fprintf(&b, "+%d -%d", s.Added, s.Removed)
	for _, f := range s.Files {
		fmt.Fprintf(&b, " [%s +%d -%d %v", f.Path, f.Added, f.Removed, f.Spans)
		for _, part := range []struct {
			is   bool
			word string
		}{{f.New, "new"}, {f.Deleted, "deleted"}, {f.Binary, "binary"}, {f.Mode != "", f.Mode}, {f.From != "", "from " + f.From}} {
			if part.is {
				b.WriteString(" " + part.word)
			}
		}
		b.WriteString("]")
	}
	return b.String()
}

// TestAgainstGit counts real patches, with names and changes of all kinds,
// and asks git for the same numbers.
func TestAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if strings.Contains(os.Getenv("PENSTOCK_TEST_REQUIRE"), "git") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	run := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Repeat("a\nb\nc\nd\ne\n", 20)
	run("", "init", "-q")
	for _, name := range []string{"plain", "with space", "é\"quote", "tab\tname", "moved", "gone", "dir b/x", "-- dashes"} {
		write(name, lines)
	}
	write("binary", "\x00\x01\x02")
	run("", "add", "-A")
	run("", "commit", "-qm", "base")
	for _, name := range []string{"plain", "with space", "é\"quote", "tab\tname", "dir b/x", "-- dashes"} {
		write(name, "-- first\n"+strings.Replace(lines, "c\n", "++ changed\n", 3)+"no end")
	}
	write("binary", "\x00\x01\x03")
	write("new/file", "x\n")
	write("empty", "")
	run("", "mv", "moved", "moved to")
	run("", "rm", "-q", "gone")
	run("", "add", "-A")
	patch := run("", "diff", "--cached", "--binary", "-M", "HEAD")
	want := map[string]string{}
	for _, record := range strings.Split(strings.TrimRight(run(patch, "apply", "--numstat", "-z", "-"), "\x00"), "\x00") {
		fields := strings.SplitN(record, "\t", 3)
		want[fields[2]] = strings.ReplaceAll(fields[0]+" "+fields[1], "-", "0")
	}
	got := map[string]string{}
	for _, f := range stat(t, patch).Files {
		got[f.Path] = fmt.Sprint(f.Added, " ", f.Removed)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted\n%v\ngit says\n%v", got, want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(threeFiles)
	f.Add("diff --git \"a/\\303\" \"b\n@@ -1 +1 @@\n-a\n+b\nrename from x\nGIT binary patch\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := stat(t, text)
		added, removed := 0, 0
		for _, file := range s.Files {
			added += file.Added
			removed += file.Removed
			for i, span := range file.Spans {
				if span.End < span.Begin || i > 0 && span.Begin < 0 {
					t.Fatalf("span %v of %q", span, text)
				}
			}
		}
		if s.More == 0 && (added != s.Added || removed != s.Removed) {
			t.Fatalf("sums %d %d, totals %d %d", added, removed, s.Added, s.Removed)
		}
		if most := strings.Count(text, "\n") + 1; s.Added+s.Removed > most {
			t.Fatalf("%d changes in %d lines", s.Added+s.Removed, most)
		}
	})
}
