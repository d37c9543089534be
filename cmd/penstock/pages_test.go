package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A pageBlock is a fenced block of a page of the documentation. Comments before it tell
// what is done with it:
//
//	<!-- not run: REASON -->       nothing
//	<!-- run by TestNAME -->       another test runs it: TestNAME, or TestNAME of metrics
//	<!-- needs: PROGRAM -->        where there is none, the page is skipped
//	<!-- before: SCRIPT -->        SCRIPT runs first; readers have done something like it
//	<!-- for WORD: COMMAND -->     what COMMAND prints stands for WORD, from here on
//	<!-- until: TEXT -->           it goes on in the background, once it says TEXT
//	<!-- ends with: CODE -->       its last command has this exit code, and not 0
//	<!-- file: NAME -->            it is written to the file NAME, whatever its language
//
// What a block of language sh prints is compared with the block of language text after
// it. Blocks of language console have prompts, so they cannot be run and say why; those of
// language usage say what a command takes.
type pageBlock struct {
	language, text string
	comments       []string
}

var (
	pageParts = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$|^<!-- (.*?) ?-->$")
	pageFence = regexp.MustCompile("(?m)^[ \t]*(?:```|~~~)")
	runBy     = regexp.MustCompile(`^run by (Test\w+)(?: of ([\w/]+))?$`)
	standsFor = regexp.MustCompile(`(?s)^for (\S+): (.+)$`)
	// typed are lines that readers type, which belong into blocks of language sh.
	typed = regexp.MustCompile(`(?m)^(?:\$ |(?:penstock|curl|git|make|go|nats|docker|kubectl) [a-z"-]).*`)
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

func (b pageBlock) has(word string) bool {
	_, found := b.directive(word)
	return found
}

// leftOut says whether a block is not run here, and that another test runs it if the
// block says so.
func (b pageBlock) leftOut(t *testing.T) bool {
	t.Helper()
	for _, comment := range b.comments {
		if m := runBy.FindStringSubmatch(comment); m != nil {
			if !existingTest(t, m[1], m[2]) {
				t.Errorf("there is no test %s", strings.TrimPrefix(comment, "run by "))
			}
			return true
		}
	}
	return b.has("not run")
}

// existingTest says whether a test of a package of this repository has the name.
func existingTest(t *testing.T, name, pkg string) bool {
	t.Helper()
	dir := "."
	if pkg != "" {
		dir = filepath.Join("..", "..", pkg)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		return err == nil && bytes.Contains(source, []byte("\nfunc "+name+"("))
	})
}

// A pageScript writes the commands of a page, for bash.
type pageScript struct {
	strings.Builder
	words []string // what variables word0, word1 and so on stand for
}

// add adds block n, whose commands write to a file named after it.
func (s *pageScript) add(n int, b pageBlock) {
	if before, found := b.directive("before"); found {
		s.WriteString(before + "\n")
	}
	for _, comment := range b.comments {
		if m := standsFor.FindStringSubmatch(comment); m != nil {
			if !slices.Contains(s.words, m[1]) {
				s.words = append(s.words, m[1])
			}
			fmt.Fprintf(s, "word%d=$(%s)\n", slices.Index(s.words, m[1]), strings.TrimSpace(m[2]))
		}
	}
	if name, found := b.directive("file"); found {
		text := strings.NewReplacer(`\`, `\\`, "$", `\$`, "`", "\\`").Replace(b.text)
		fmt.Fprintf(s, "cat >%s <<END_OF_FILE\n%sEND_OF_FILE\n", name, s.replaced(text))
		return
	}
	text := strings.TrimSpace(s.replaced(b.text))
	fmt.Fprintf(s, "exec >\"$PRINTED/%d\" 2>&1\n", n)
	code, fails := b.directive("ends with")
	until, background := b.directive("until")
	switch {
	case background: // The shell itself is replaced, so that the signal at the end reaches the program.
		fmt.Fprintf(s, "( exec %s\n) &\nwhile ! grep -q '%s' \"$PRINTED/%d\"; do kill -0 $!; sleep 0.05; done\n", text, until, n)
	case fails:
		fmt.Fprintf(s, "code=0; ( set +e\n%s\n) || code=$?\n[ $code = %s ] || { echo \"exit code $code\"; exit 1; }\n", text, code)
	default:
		s.WriteString(text + "\n")
	}
}

// replaced puts variables in the place of the words that stand for something.
func (s *pageScript) replaced(text string) string {
	for i, word := range s.words {
		word := regexp.MustCompile(`(^|[^\w$.-])` + regexp.QuoteMeta(word) + `($|[^\w.-])`)
		for range 2 { // two of them may share the character between them
			text = word.ReplaceAllString(text, fmt.Sprintf("${1}$${word%d}${2}", i))
		}
	}
	return text
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

// pages are all pages of the repository, by their paths in it. There is no list of those
// whose commands are run: a new page is one of them.
func pages(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		hidden := strings.HasPrefix(name, ".") && path != root && name != ".github"
		switch {
		// What programs write, and what tests read.
		case d.IsDir() && (hidden || slices.Contains([]string{"bin", "demo-run", "penstock-results", "node_modules", "testdata"}, name)):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(name) == ".md":
			page, err := filepath.Rel(root, path)
			found = append(found, page)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pageCommands are the blocks of a page that are run or written to files, each with the
// block of what it prints after it. Everything that is not run says why.
func pageCommands(t *testing.T, text string) []pageBlock {
	t.Helper()
	var run []pageBlock
	all := pageBlocks(text)
	if fences := len(pageFence.FindAllString(text, -1)); fences != 2*len(all) {
		t.Errorf("it has %d fences and %d blocks: a fence begins a line, and its language is a word of small letters", fences, len(all))
	}
	command, ran := false, false // what the block before this one was
	for _, b := range all {
		file, out := b.has("file"), b.leftOut(t)
		switch {
		case b.language == "":
			t.Errorf("a block has no language: sh, text or another\n%s", b.text)
		case b.language == "console" && !out:
			t.Errorf("a block with prompts cannot be run: make it one of sh and one of text, or say why\n%s", b.text)
		case b.language == "text" && !out && !command && typed.MatchString(b.text):
			t.Errorf("a block of language text has a command, which is not run: %s", typed.FindString(b.text))
		case file, b.language == "text" && ran, b.language == "sh" && !out:
			run = append(run, b)
		}
		command, ran = b.language == "sh", b.language == "sh" && !out && !file
	}
	return run
}
