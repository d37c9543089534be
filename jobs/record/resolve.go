package record

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// An AmbiguousError reports an abbreviated id that several jobs begin or end with: so many,
// of which IDs are the first.
type AmbiguousError struct {
	Prefix string
	IDs    []string
	Count  int
}

// AmbiguousShown is how many ids an [AmbiguousError] has at most.
const AmbiguousShown = 8

// ErrorCode implements what [jobs.Code] asks for.
func (e *AmbiguousError) ErrorCode() jobs.ErrorCode { return jobs.CodeAmbiguous }

func (e *AmbiguousError) Error() string {
	more := ""
	if e.Count > len(e.IDs) {
		more = fmt.Sprintf(" and %d more", e.Count-len(e.IDs))
	}
	return fmt.Sprintf("%d jobs begin or end with %q: use more characters of the id: %s%s", e.Count, e.Prefix, strings.Join(e.IDs, ", "), more)
}

// Resolve turns an abbreviated id into a whole one.
func (s Store) Resolve(ctx context.Context, id string) (string, error) {
	if err := jobs.CheckToken("id", id); err != nil {
		return "", fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
	}
	if len(id) == 36 {
		return id, nil
	}
	if len(id) < 4 {
		return "", fmt.Errorf("job %q: %w: give at least 4 characters of the beginning or the end of its id", id, jobs.ErrNotFound)
	}
	found, err := s.matching(ctx, id)
	if err != nil {
		return "", err
	}
	switch found.Count {
	case 0:
		return "", fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
	case 1:
		return found.IDs[0], nil
	}
	return "", &AmbiguousError{id, found.IDs, found.Count}
}

// matching finds the ids that begin or end with a text.
func (s Store) matching(ctx context.Context, text string) (found question.Resolved, err error) {
	if s.Questions().Ask(ctx, question.Resolve, text, &found) == nil {
		return found, nil
	}
	subjects, err := s.conn.Subjects(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, "*.*"))
	for s := range subjects {
		if whole := s[strings.LastIndexByte(s, '.')+1:]; strings.HasPrefix(whole, text) || strings.HasSuffix(whole, text) {
			found.IDs = append(found.IDs, whole)
		}
	}
	slices.Sort(found.IDs)
	found.Count = len(found.IDs)
	found.IDs = found.IDs[:min(found.Count, AmbiguousShown)]
	return found, err
}
