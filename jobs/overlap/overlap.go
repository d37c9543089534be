// Package overlap keeps which files the jobs of a pool have changed by now, and which of them
// change the same ones.
//
//	a worker looks at a workspace ──▶ Put ──▶ broker ──▶ Since, by the leader ──▶ Work.With ──▶ Find ──▶ Of
//
// What is kept is in the bucket of the workers, which they may write, and is forgotten a day after it
// was written last. File names are those that agents chose.
package overlap

import (
	"encoding/json"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/patchstat"
)

// Limits of what is kept of one job, so that it fits into a message.
const (
	maxFiles = 500
	maxLines = 40 // spans of lines of one file; beyond them all of it counts
	maxBytes = 48 << 10
	maxNamed = 10 // files that an overlap names
)

// A Work is what a job has changed by now of its repository's files.
type Work struct {
	Job   string `json:"job"`
	Repo  string `json:"repo"` // its address, as the job has it
	Base  string `json:"base"` // the commit that the job began from
	Files []File `json:"files"`
	// More counts the files that are not kept, and are not compared.
	More int `json:"more,omitempty"`
}

// A File is one that was changed.
type File struct {
	Path string `json:"path"`
	// Lines are those of the base that were changed, each from its first to the one after its
	// last; equal numbers are an insertion before a line. None: the file as a whole.
	Lines [][2]int `json:"lines,omitempty"`
}

// New returns what a difference from a base changes. Name makes the names of files fit for others to
// see.
func New(rec jobs.Record, base string, stat patchstat.Stat, name func(string) string) Work {
	w := Work{Job: rec.ID, Repo: rec.Repo, Base: base, More: stat.More}
	for i, f := range stat.Files {
		if i == maxFiles {
			w.More += len(stat.Files) - i
			break
		}
		w.Files = append(w.Files, File{Path: name(f.Path), Lines: lines(f)})
	}
	for size := w.size(); size > maxBytes; size = w.size() {
		if !w.shorten() {
			half := len(w.Files) / 2
			w.Files, w.More = w.Files[:half], w.More+len(w.Files)-half
		}
	}
	return w
}

func lines(f patchstat.File) (all [][2]int) {
	if f.Whole || f.Binary || f.New || f.Deleted || len(f.Spans) > maxLines {
		return nil
	}
	for _, s := range f.Spans {
		all = append(all, [2]int{s.Begin, s.End})
	}
	return all
}

func (w Work) size() int {
	text, _ := json.Marshal(w) // of strings and numbers: there is no error
	return len(text)
}

// shorten drops the lines of all files, if there are any.
func (w Work) shorten() (some bool) {
	for i := range w.Files {
		some = some || w.Files[i].Lines != nil
		w.Files[i].Lines = nil
	}
	return some
}

// With returns what another job's work has in common with it, as the first job sees it. Ok is false
// where that is nothing.
func (w Work) With(other Work) (found jobs.Overlap, ok bool) {
	if w.Repo != other.Repo || w.Job == other.Job {
		return found, false
	}
	common, ok := patchstat.Both(w.patch(), other.patch())
	if !ok {
		return found, false
	}
	found = jobs.Overlap{Job: other.Job, Files: common.Files, Apart: w.Base != other.Base}
	if !found.Apart {
		found.Lines = common.Conflicts
	}
	// Those of the same lines are named first.
	slices.SortStableFunc(found.Files, func(a, b string) int { return rank(found.Lines, a) - rank(found.Lines, b) })
	found.More = max(0, len(found.Files)-maxNamed)
	found.Files = found.Files[:len(found.Files)-found.More]
	found.Lines = found.Lines[:min(len(found.Lines), maxNamed)]
	return found, true
}

func rank(lines []string, path string) int {
	if slices.Contains(lines, path) {
		return 0
	}
	return 1
}

func (w Work) patch() patchstat.Patch {
	var stat patchstat.Stat
	for _, f := range w.Files {
		file := patchstat.File{Path: f.Path, Whole: f.Lines == nil}
		for _, s := range f.Lines {
			file.Spans = append(file.Spans, patchstat.Span{Begin: s[0], End: s[1]})
		}
		stat.Files = append(stat.Files, file)
	}
	return patchstat.Patch{Base: w.Base, Stat: stat}
}
