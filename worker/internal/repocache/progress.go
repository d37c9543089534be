package repocache

import (
	"time"

	"github.com/penstock-run/penstock/jobs/event"
)

// A Progress reports the progress of a workspace's steps to the caller that asked for
// it. It may be nil.
type Progress func(event.WorkspaceProgress)

// How long a step takes before it is reported, and how often it is. A short step is not
// worth an event, which is kept for long.
const (
	firstProgress = 2 * time.Second
	nextProgress  = 2 * time.Second
)

// Throttled drops what comes too early or too soon behind another.
func Throttled(tell Progress) Progress {
	if tell == nil {
		return nil
	}
	var last time.Time
	return func(p event.WorkspaceProgress) {
		if p.Seconds >= firstProgress.Seconds() && time.Since(last) >= nextProgress {
			last = time.Now()
			tell(p)
		}
	}
}

// Of is the progress function for git in one step, which begins now.
func (p Progress) Of(step string) func(phase string, percent int, done, total int64) {
	if p == nil {
		return nil
	}
	began := time.Now()
	return func(phase string, percent int, done, total int64) {
		p(event.WorkspaceProgress{Step: step, Phase: phase, Percent: percent, Done: done, Total: total, Seconds: time.Since(began).Seconds()})
	}
}
