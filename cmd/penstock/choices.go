package main

import (
	"maps"
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

// The words that flags take of which only these exist.

func words[T ~string](list ...T) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

func states() []string {
	return words(jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished)
}

func outcomes() []string {
	return words(jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip)
}

func reasons() []string { return words(slices.Sorted(maps.Keys(jobs.Reasons))...) }

func letterKinds() []string {
	return words(jobs.DeadJob, jobs.DeadSubmission, jobs.DeadMessage)
}

// choice is a flag that takes one of these words.
func choice(to *string, list []string) *input.Choice { return input.OneOf(to, list...) }

func missedWords() []string  { return words(calendar.MissedOnce, calendar.MissedSkip) }
func overlapWords() []string { return words(calendar.OverlapSkip, calendar.OverlapAllow) }
