// Package testreports reads the reports that a job's checks write about their tests, in the
// format of JUnit.
//
//	workspace ──[workspace.Workspace.Pick]──▶ files ──parse──▶ jobs.Tests ──▶ check.ended, result
//
// Whoever wrote the change can write anything into a report. So a report decides nothing, all
// that is read of it is bounded, and one that cannot be read is a note.
package testreports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/visible"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Bounds of the notes about the reports of one check.
const (
	maxNotes = 10
	maxNote  = 300 // bytes
)

// A Reader reads the reports of an attempt's checks.
type Reader struct {
	space    *workspace.Workspace
	patterns []string
	clean    func(string) string
}

// New returns the reader of the files that match patterns. clean removes the values of
// secrets.
func New(space *workspace.Workspace, patterns []string, clean func(string) string) *Reader {
	return &Reader{space, patterns, clean}
}

// Begin looks at the reports that are there before a check begins: those of the repository, of
// the agent, and of other checks. It returns a function that reads those that the check has
// written, or nil where no pattern asks for any. No program may be in the workspace during
// both. A context that has ended ends them.
func (r *Reader) Begin(ctx context.Context) (read func(context.Context) *jobs.Tests) {
	if len(r.patterns) == 0 {
		return nil
	}
	before := map[string]time.Time{}
	_, err := r.space.Pick(ctx, r.patterns, func(file workspace.Picked) error {
		before[file.Path] = file.Changed
		return nil
	})
	return func(ctx context.Context) *jobs.Tests {
		tests := &jobs.Tests{}
		if err != nil {
			r.note(tests, err.Error())
		} else {
			r.read(ctx, before, tests)
		}
		return tests
	}
}

// read adds what the reports say that have changed.
func (r *Reader) read(ctx context.Context, before map[string]time.Time, all *jobs.Tests) {
	left, read, old := newBudget(), 0, 0
	ended := func() error { return context.Cause(ctx) }
	skipped, err := r.space.Pick(ctx, r.patterns, func(file workspace.Picked) error {
		if was, there := before[file.Path]; there && was.Equal(file.Changed) {
			old++
			return nil
		}
		read++
		tests, err := parse(source{file.Content, ended}, &left, r.name)
		if ended() != nil {
			return ended()
		}
		if err != nil {
			r.note(all, file.Path+": "+err.Error())
		}
		if errors.Is(err, errFull) {
			return err
		}
		add(all, tests)
		return nil
	})
	for _, why := range skipped {
		r.note(all, why)
	}
	if err != nil && !errors.Is(err, errFull) {
		r.note(all, err.Error())
	}
	if read == 0 && old > 0 {
		r.note(all, fmt.Sprintf("the check wrote none of the %d reports that are there", old))
	}
}

// add adds the counts of a report to those of all.
func add(all *jobs.Tests, t jobs.Tests) {
	all.Passed, all.Failed, all.Errors = all.Passed+t.Passed, all.Failed+t.Failed, all.Errors+t.Errors
	all.Skipped, all.Flaky = all.Skipped+t.Skipped, all.Flaky+t.Flaky
	all.FailedCases = append(all.FailedCases, t.FailedCases[:min(len(t.FailedCases), maxNamed-len(all.FailedCases))]...)
}

func (r *Reader) note(all *jobs.Tests, text string) {
	if len(all.Notes) < maxNotes {
		all.Notes = append(all.Notes, r.text(text, maxNote))
	}
}

func (r *Reader) name(name string) string { return r.text(name, maxName) }

// text makes what strangers wrote fit for people. Secrets go first: half of one would be left
// of a text that is cut before.
func (r *Reader) text(s string, most int) string {
	s = visible.Line(r.clean(strings.ToValidUTF8(s, "\uFFFD")))
	if len(s) <= most {
		return s
	}
	cut := most - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// A source reads until the attempt has ended.
type source struct {
	io.Reader
	ended func() error
}

func (s source) Read(p []byte) (int, error) {
	if err := s.ended(); err != nil {
		return 0, err
	}
	return s.Reader.Read(p)
}
