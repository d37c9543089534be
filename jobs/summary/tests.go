package summary

import (
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Tests says in a line what the reports of a check count: "12 tests passed, 1 failed". It is
// "" where none were asked for.
func Tests(t *jobs.Tests) string {
	if t == nil {
		return ""
	}
	if t.Passed+t.Failed+t.Errors+t.Skipped == 0 {
		return "no tests reported"
	}
	line := Count(int64(t.Passed), "test") + " passed"
	for _, one := range []struct {
		n    int
		what string
	}{{t.Failed, "failed"}, {t.Errors, "with errors"}, {t.Skipped, "skipped"}, {t.Flaky, "flaky"}} {
		if one.n > 0 {
			line += fmt.Sprintf(", %d %s", one.n, one.what)
		}
	}
	return line
}

// TestLines are the names of failed tests, and notes about reports that could not be read, each
// a line of visible text.
func TestLines(t *jobs.Tests) []string {
	if t == nil {
		return nil
	}
	var lines []string
	for _, name := range t.FailedCases {
		lines = append(lines, "failed: "+visible.Line(name))
	}
	if more := t.Failed + t.Errors - len(t.FailedCases); more > 0 && len(t.FailedCases) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	for _, note := range t.Notes {
		lines = append(lines, "note: "+visible.Line(note))
	}
	return lines
}
