package git

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ask runs git check-ignore over paths, each a file or, with a slash at its
// end, a directory, and returns those that git ignores.
func ask(tb testing.TB, ignoreFiles map[string]string, paths []string) map[string]bool {
	tb.Helper()
	dir := tb.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		tb.Fatalf("git init: %v: %s", err, out)
	}
	for _, p := range paths {
		full := filepath.Join(dir, p)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if strings.HasSuffix(p, "/") {
			err = os.MkdirAll(full, 0o755)
		} else if err == nil {
			err = os.WriteFile(full, nil, 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	for name, content := range ignoreFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	var in, out bytes.Buffer
	for _, p := range paths {
		in.WriteString(strings.TrimSuffix(p, "/") + "\x00")
	}
	repo := Repo{Dir: filepath.Join(dir, ".git"), WorkTree: dir}
	err := repo.Pipe(context.Background(), &in, &out, "check-ignore", "--no-index", "-z", "--stdin")
	if err != nil && out.Len() > 0 {
		tb.Fatalf("check-ignore: %v", err)
	}
	found := map[string]bool{}
	for p := range strings.SplitSeq(out.String(), "\x00") {
		found[p] = true
	}
	return found
}

// decide is what a walker does: from the top down, entering each directory.
func decide(ignoreFiles map[string]string, path string) bool {
	isDir := strings.HasSuffix(path, "/")
	path = strings.TrimSuffix(path, "/")
	g := (*Ignore)(nil).Enter("", []byte(ignoreFiles[".gitignore"]))
	for i := 0; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if g.Match(path[:i], true) {
			return true
		}
		g = g.Enter(path[:i], []byte(ignoreFiles[path[:i]+"/.gitignore"]))
	}
	return g.Match(path, isDir)
}

func TestIgnoreAsGit(t *testing.T) {
	paths := []string{
		"a", "b", "ab", "foo", "foobar", "x.o", "x.c", "#x", "!x", "x ", `x\`, "x-", "x]", "[x]", "xbar",
		"d/a", "d/x.o", "d/e/a", "d/e/x.o", "d/e/f/a", "e/", "d/empty/", "foo.d/bar", "foo.d/x/bar",
		"build/out", "build/keep", "logs/a.log", "logs/deep/a.log", "A", "é", "tab\t", "a\nb", "0", "5", "d/0",
	}
	for _, patterns := range []string{
		"a", "/a", "a/", "d/", "/d/e", "d/e/", "d/*", "d/**", "**/a", "a/**", "**", "*", "*.o", "/*.o", "d/*.o", "d/**/a", "**/e/**",
		"!a\na", "a\n!a", "*\n!d/\n!d/e/\n!d/e/a", "build/*\n!build/keep", "build/\n!build/keep", "#x", `\#x`, `\!x`, "!x",
		"x ", `x\ `, "x  ", `x\`, `x\\`, "x\r", "\r", "", " ", "foo*", "foo**/bar", "foo**", "fo?", "?", "[a-b]", "[!a-b]", "[^a]*", "[]]", "x[]-]",
		`[\]]`, "[a", "[[:alpha:]]", "[[:digit:]]*", "[[:bogus:]]", "[[:alpha:]", "[a-]", "[-a]", "[b-a]", "[[x]*", `\[x\]`, "é", "*é", "[é]",
		"logs/**/*.log", "logs/*/*.log", "**/logs", "/**/a", "a//", "//a", "d//a", "*/a", "*/*/a", "**/*", "**/", "d/**/", "***", "d/***/a",
		"\xef\xbb\xbfa", "*\n!*/", "*\n!*/\n!*.c", "/", "!", "*a*b*", "tab\t", "d/e", "e", "[[:space:]]", "x[[:space:]]",
	} {
		files := map[string]string{".gitignore": patterns}
		want := ask(t, files, paths)
		for _, p := range paths {
			if got, want := decide(files, p), want[strings.TrimSuffix(p, "/")]; got != want {
				t.Errorf("patterns %q, path %q: got ignored=%v, want %v", patterns, p, got, want)
			}
		}
	}
}

func TestIgnoreRandomAsGit(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	for range rounds {
		var paths []string
		for range 60 {
			var parts []string
			for range 1 + rng.IntN(4) {
				parts = append(parts, pick("a", "b", "ab", "ba", "a.o", "b.c", "aab", "-", "x y"))
			}
			paths = append(paths, strings.Join(parts, "/")+"/")
		}
		files := map[string]string{}
		for _, name := range []string{".gitignore", strings.Split(paths[0], "/")[0] + "/.gitignore"} {
			var lines []string
			for range 1 + rng.IntN(6) {
				line := pick("", "", "!")
				for range 1 + rng.IntN(6) {
					line += pick("a", "b", "*", "**", "/", "/", "?", "[ab]", "[!a]", ".o", ".", "-", `\`, "[a-b-]", " ")
				}
				lines = append(lines, line)
			}
			files[name] = strings.Join(lines, "\n")
		}
		want := ask(t, files, paths)
		for _, p := range paths {
			if got, want := decide(files, p), want[strings.TrimSuffix(p, "/")]; got != want {
				t.Fatalf("seed %d: patterns %s, path %q: got ignored=%v, want %v", seed, fmt.Sprintf("%q", files), p, got, want)
			}
		}
	}
}

func TestHostilePatternIsFast(t *testing.T) {
	g := (*Ignore)(nil).Enter("", []byte(strings.Repeat("*a", 200)+"b\n"+strings.Repeat("**/a", 200)))
	if g.Match(strings.Repeat("a", 4000), false) {
		t.Error("got a match, want none")
	}
}
