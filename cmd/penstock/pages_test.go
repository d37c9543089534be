package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A pageBlock is a fenced block of a page of the documentation, or a comment that
// stands between blocks. Comments tell what is done with the block after them:
//
//	<!-- not run: REASON -->       nothing
//	<!-- run by TestNAME -->       another test runs it
//	<!-- until: TEXT -->           it goes on in the background, once it says TEXT
//	<!-- before: SCRIPT -->        SCRIPT runs first; readers have done something like it
//
// The comment "no block of this page is run: REASON" is about all of them. What a block
// prints is compared with the block of language text after it.
type pageBlock struct {
	language, text string
	comments       []string
}

var (
	pageParts = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$|^<!-- (.*?) ?-->$")
	wholePage = regexp.MustCompile(`(?m)^<!-- no block of this page is run: .+ -->$`)
	runBy     = regexp.MustCompile(`^run by (Test\w+)$`)
)

func pageBlocks(page string) []pageBlock {
	var blocks []pageBlock
	var comments []string
	for _, m := range pageParts.FindAllStringSubmatch(page, -1) {
		if m[3] != "" {
			comments = append(comments, m[3])
			continue
		}
		blocks = append(blocks, pageBlock{m[1], m[2], comments})
		comments = nil
	}
	return blocks
}

// directive returns what a comment before a block says after a word.
func (b pageBlock) directive(word string) (string, bool) {
	for _, comment := range b.comments {
		if after, found := strings.CutPrefix(comment, word+":"); found {
			return strings.TrimSpace(after), true
		}
	}
	return "", false
}

// leftOut says whether a block is not run here, and that another test runs it if the
// block says so.
func (b pageBlock) leftOut(t *testing.T) bool {
	t.Helper()
	for _, comment := range b.comments {
		if m := runBy.FindStringSubmatch(comment); m != nil {
			if !existingTest(t, m[1]) {
				t.Errorf("there is no test %s", m[1])
			}
			return true
		}
	}
	_, found := b.directive("not run")
	return found
}

// script returns the commands of a block for bash. They write to a file named after n.
func (b pageBlock) script(n int) string {
	var s strings.Builder
	if before, found := b.directive("before"); found {
		s.WriteString(before + "\n")
	}
	fmt.Fprintf(&s, "exec >\"$PRINTED/%d\" 2>&1\n", n)
	until, background := b.directive("until")
	if !background {
		s.WriteString(b.text)
		return s.String()
	}
	// The shell itself is replaced, so that the signal at the end reaches the program.
	fmt.Fprintf(&s, "( exec %s ) &\nwhile ! grep -q '%s' \"$PRINTED/%d\"; do kill -0 $!; sleep 0.05; done\n", strings.TrimSpace(b.text), until, n)
	return s.String()
}

// varying are the parts of a printed line that differ from run to run: ids, and numbers.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{8,}|[0-9][0-9.,:]*`)

// like returns what matches a line that a page shows.
func like(line string) *regexp.Regexp {
	var b strings.Builder
	for i, part := range strings.Split(line, "…") {
		if i > 0 {
			b.WriteString(".*")
		}
		at := 0
		for _, m := range varying.FindAllStringIndex(part, -1) {
			b.WriteString(regexp.QuoteMeta(part[at:m[0]]))
			if m[1]-m[0] > 16 {
				b.WriteString(`[0-9a-f-]+`)
			} else {
				b.WriteString(`[0-9.,:]+`)
			}
			at = m[1]
		}
		b.WriteString(regexp.QuoteMeta(part[at:]))
	}
	text := regexp.MustCompile(`\s+`).ReplaceAllString(strings.TrimSpace(b.String()), `\s+`)
	return regexp.MustCompile(`(?m)^\s*` + text + `\s*$`)
}

// pageCommands are the blocks of commands of a page that are run, each with the block of
// what it prints after it. Everything that is not run says why.
func pageCommands(t *testing.T, page string) []pageBlock {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	none := wholePage.Match(text)
	var run []pageBlock
	ran := false
	for _, b := range pageBlocks(string(text)) {
		switch {
		case b.language == "" && !none:
			t.Errorf("a block has no language: sh, text or another\n%s", b.text)
		case b.language == "text" && ran:
			run = append(run, b)
		case b.language == "sh" && !none && !b.leftOut(t):
			run, ran = append(run, b), true
			continue
		}
		ran = false
	}
	return run
}

// existingTest says whether a test of this package has the name.
func existingTest(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		return err == nil && bytes.Contains(source, []byte("\nfunc "+name+"("))
	})
}

// Whoever follows a tutorial or a guide sees what it shows. Tutorials begin with nothing;
// guides have a repository as the current directory, and a pool.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = append(f.env, fmt.Sprintf("PENSTOCK_SERVE_HTTP=127.0.0.1:%d", jobstest.FreePort(t)))
	f.serve("--slots", "3")
	for _, kind := range []string{"tutorials", "how-to", "examples"} {
		pages, err := filepath.Glob(filepath.Join("..", "..", "docs", kind, "*.md"))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%v: %d pages of %s", err, len(pages), kind)
		}
		for _, page := range pages {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
				t.Parallel()
				if blocks := pageCommands(t, page); len(blocks) > 0 {
					walk := &walk{fixture: f, T: t, dir: t.TempDir(), printed: t.TempDir()}
					if kind == "tutorials" {
						walk.Cleanup(func() { walk.removable(filepath.Join(walk.dir, ".local", "state", "penstock")) })
					}
					walk.through(blocks, kind != "tutorials")
				}
			})
		}
	}
}

// A walk follows one page.
type walk struct {
	*fixture
	*testing.T
	dir, printed string
}

const guideBegins = `
mkdir app && cd app && git init -q && printf 'Teh first line\n' >README.md && git add . && git commit -qm 'Say hello'
`

func (w *walk) through(blocks []pageBlock, guide bool) {
	w.Helper()
	// A pool that a page starts is told to end, and awaited.
	script := "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n"
	if guide {
		script += guideBegins
	}
	for i, b := range blocks {
		if b.language == "sh" {
			script += b.script(i)
		}
	}
	for _, program := range []string{"bash", "jq", "openssl"} {
		if _, err := exec.LookPath(program); err != nil && (program == "bash" || strings.Contains(script, program+" ")) {
			skip(w.T, program, "no %s in PATH", program)
		}
	}
	ctx, cancel := context.WithTimeout(w.T.Context(), slowtest.Limit(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = slowtest.Limit(20 * time.Second)
	cmd.Dir, cmd.Env = w.dir, w.environment(guide)
	w.must(os.WriteFile(filepath.Join(w.dir, ".gitconfig"), []byte("[user]\n\tname = Ann\n\temail = ann@example.com\n"), 0o600))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.T.Errorf("%v\n%s", err, out)
	}
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		printed, err := os.ReadFile(filepath.Join(w.printed, fmt.Sprint(i)))
		if err != nil {
			w.T.Fatalf("the walk did not reach\n%s", b.text)
		}
		w.T.Logf("%s\n%s", b.text, printed)
		if i+1 == len(blocks) || blocks[i+1].language != "text" {
			continue
		}
		for line := range strings.Lines(blocks[i+1].text) {
			if line := strings.TrimSpace(line); !like(line).Match(printed) {
				w.T.Errorf("it does not print %q", line)
			}
		}
	}
}

// environment is that of a person who has set nothing, with free ports and short waits.
func (w *walk) environment(guide bool) []string {
	env := slices.DeleteFunc(w.command("version").Env, func(kv string) bool {
		return strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "PENSTOCK_DATA=") ||
			strings.HasPrefix(kv, "PENSTOCK_SERVE_")
	})
	if guide {
		env = append(env, "PENSTOCK_DATA="+w.data)
	}
	free := func() string { return fmt.Sprintf("127.0.0.1:%d", jobstest.FreePort(w.T)) }
	return append(env, "HOME="+w.dir, "PRINTED="+w.printed, "ISSUES=8", "PENSTOCK_SERVE_LISTEN="+free(), "PENSTOCK_SERVE_HTTP="+free(),
		"PENSTOCK_SERVE_ADMIN="+free(), "PENSTOCK_WORKER_ADMIN=127.0.0.1:0", "PENSTOCK_WORKER_DRAIN=1s")
}
