// Package goldentest compares what a program makes with a file of the repository.
package goldentest

import (
	"os"
	"strings"
	"testing"
)

// Compare fails the test unless the file at path has the content got. With update it
// writes the file first; a test declares that as its flag -update, so that "make
// generate" sets it.
func Compare(tb testing.TB, path, got string, update bool) {
	tb.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if line, is, was := difference(got, string(want)); line > 0 {
		tb.Errorf("%s is not what the program makes: run make generate, and review the difference\nline %d of the file: %q\nof the program: %q", path, line, was, is)
	}
}

// difference returns the first line in which two texts differ; 0 if they are the same.
// The line of a text that has ended is empty.
func difference(a, b string) (line int, inA, inB string) {
	for a != b {
		line++
		inA, a = cut(a)
		inB, b = cut(b)
		if inA != inB {
			return line, inA, inB
		}
	}
	return 0, "", ""
}

// cut returns the first line of a text, with its end, and the rest.
func cut(text string) (first, rest string) {
	n := strings.IndexByte(text, '\n') + 1
	if n == 0 {
		n = len(text)
	}
	return text[:n], text[n:]
}
