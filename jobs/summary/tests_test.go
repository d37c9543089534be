package summary

import (
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestTestsInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tests *jobs.Tests
		line  string
		lines []string
	}{
		{nil, "", nil},
		{&jobs.Tests{}, "no tests reported", nil},
		{&jobs.Tests{Skipped: 1, Notes: []string{"a\x1b"}}, "0 tests passed, 1 skipped", []string{`note: a\u001b`}},
		{&jobs.Tests{Passed: 1}, "1 test passed", nil},
		{&jobs.Tests{Passed: 1200, Failed: 2, Errors: 1, Skipped: 3, Flaky: 4, FailedCases: []string{"x\ny"}}, "1,200 tests passed, 2 failed, 1 with errors, 3 skipped, 4 flaky", []string{"failed: x ⏎ y", "and 2 more"}},
		{&jobs.Tests{Failed: 2}, "0 tests passed, 2 failed", nil},
	} {
		if line, lines := Tests(c.tests), TestLines(c.tests); line != c.line || !slices.Equal(lines, c.lines) {
			t.Errorf("%+v: %q %q, want %q %q", c.tests, line, lines, c.line, c.lines)
		}
	}
}
