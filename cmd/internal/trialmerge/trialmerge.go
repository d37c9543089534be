// Package trialmerge tries which results of a batch merge with each other, and finds an order in which most
// of them can be merged.
//
//	patches ─▶ commits on their bases ─▶ pairs that meet, merged ─▶ jobs/mergeorder ─▶ merged one after the other ─▶ Found
//
// Git makes real three-way merges, in a directory of its own: neither the user's work tree nor the
// repository changes. All of it is bounded, and what was not tried is said.
package trialmerge

import (
	"time"

	"github.com/penstock-run/penstock/cmd/internal/series"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/worker/checkout"
)

// Limits bound a trial.
type Limits struct {
	Pairs int           // that are merged
	Time  time.Duration // of the whole trial; a quarter of it is for merging one after the other
}

const (
	// maxPatch bounds a patch that is merged.
	maxPatch = 64 << 20
	// maxEach is how long git may take for one result or one pair.
	maxEach = time.Minute
	// maxPairs bounds the pairs that are listed, maxNames the files of each.
	maxPairs = 5000
	maxNames = 20
)

// A Found is what a trial has found. Its JSON is documented.
type Found struct {
	Batch string `json:"batch"`
	mergeorder.Sequence
	Pairs []Pair `json:"pairs"`
	// MorePairs counts the pairs that are not listed; -1: there were too many to find them all.
	MorePairs int `json:"more_pairs,omitempty"`
}

// A Pair is two results that meet: they change the same files, or a directory of which one moves or
// replaces the files.
type Pair struct {
	A             string           `json:"a"`
	B             string           `json:"b"`
	State         mergeorder.State `json:"state"`
	Files         []string         `json:"files"`
	MoreFiles     int              `json:"more_files,omitempty"`
	Conflicts     []string         `json:"conflicts,omitempty"`
	MoreConflicts int              `json:"more_conflicts,omitempty"`
	Why           string           `json:"why,omitempty"`
}

// A Batch is the results that are merged, and where their patches are from.
type Batch struct {
	ID      string
	Results []jobs.Result
	Source  series.Source
}

// A change is a result with the commit that was made of it; "": why there is none.
type change struct {
	jobs.Result
	stat   patchstat.Stat
	commit string
	why    string
}

// A meeting is two changes that meet, by their numbers.
type meeting struct {
	a, b   int
	common patchstat.Pair
	state  mergeorder.State
	merged checkout.Merged
	why    string
}

// stops reports whether one of both is taken to stop a merge of the other: where that was not tried, by
// their lines.
func (m meeting) stops() bool {
	return m.state == mergeorder.Conflict || m.state == mergeorder.Untried && len(m.common.Conflicts) > 0
}

// firstNames are those of a list that are shown, and how many more there are.
func firstNames(names []string) ([]string, int) {
	n := min(len(names), maxNames)
	return names[:n], len(names) - n
}
