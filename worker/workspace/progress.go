package workspace

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A progress tells whoever asked for a workspace how far its steps have come.
// It may be nil.
type progress func(jobs.ProgressData)

// How long a step takes before it is told of, and how often it is. What is
// over in a moment is not worth an event, and an event is kept for long.
const (
	firstProgress = 2 * time.Second
	nextProgress  = 2 * time.Second
)

// throttled drops what comes too early or too soon behind another.
func throttled(tell progress) progress {
	if tell == nil {
		return nil
	}
	var last time.Time
	return func(p jobs.ProgressData) {
		if p.Seconds >= firstProgress.Seconds() && time.Since(last) >= nextProgress {
			last = time.Now()
			tell(p)
		}
	}
}

// of is what git tells its progress in one step, which begins now.
func (p progress) of(step string) func(git.Progress) {
	if p == nil {
		return nil
	}
	began := time.Now()
	return func(at git.Progress) {
		p(jobs.ProgressData{Step: step, Phase: at.Phase, Percent: at.Percent, Done: at.Done, Total: at.Total, Seconds: time.Since(began).Seconds()})
	}
}
