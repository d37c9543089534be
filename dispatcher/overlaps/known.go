package overlaps

import (
	"maps"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/overlap"
)

// known is what a leader knows of the jobs of its pool.
type known struct {
	works map[string]overlap.Work
	order []string                       // of works, the one that was put last at the end
	new   map[string]bool                // those that were not compared since they were put
	files map[file]map[string]bool       // the jobs that change each
	found map[string]map[string][]string // files that a job was told of, by the other job
}

type file struct{ repo, path string }

func newKnown() *known {
	return &known{works: map[string]overlap.Work{}, new: map[string]bool{}, files: map[file]map[string]bool{}, found: map[string]map[string][]string{}}
}

// add puts a work in the place of the job's last.
func (k *known) add(work overlap.Work) {
	k.remove(work.Job)
	if len(k.order) == maxWorks {
		delete(k.found, k.order[0])
		k.remove(k.order[0])
	}
	k.works[work.Job], k.order, k.new[work.Job] = work, append(k.order, work.Job), true
	for _, f := range work.Files {
		at := file{work.Repo, f.Path}
		if k.files[at] == nil {
			k.files[at] = map[string]bool{}
		}
		k.files[at][work.Job] = true
	}
}

// due returns the works that are to be compared. None are known before leaders' notes are read.
func (k *known) due() (all []overlap.Work) {
	if k == nil {
		return nil
	}
	for _, job := range k.order {
		if k.new[job] {
			all = append(all, k.works[job])
		}
	}
	return all
}

func (k *known) done(job string) { delete(k.new, job) }

func (k *known) remove(job string) {
	work, ok := k.works[job]
	if !ok {
		return
	}
	for _, f := range work.Files {
		at := file{work.Repo, f.Path}
		if delete(k.files[at], job); len(k.files[at]) == 0 {
			delete(k.files, at)
		}
	}
	delete(k.works, job)
	delete(k.new, job)
	k.order = slices.DeleteFunc(k.order, func(id string) bool { return id == job })
}

// beside returns the jobs that change a file of a work.
func (k *known) beside(work overlap.Work) []string {
	all := map[string]bool{}
	for _, f := range work.Files {
		for id := range k.files[file{work.Repo, f.Path}] {
			all[id] = true
		}
	}
	delete(all, work.Job)
	return slices.Sorted(maps.Keys(all))
}

// told reports whether a job knows of an overlap, or of enough others.
func (k *known) told(job string, found jobs.Overlap) bool {
	was, ok := k.found[job][found.Job]
	if !ok {
		return len(k.found[job]) >= maxTold
	}
	return !slices.ContainsFunc(marks(found), func(mark string) bool { return !slices.Contains(was, mark) })
}

func (k *known) tell(job string, found jobs.Overlap) {
	if k.found[job] == nil {
		k.found[job] = map[string][]string{}
	}
	k.found[job][found.Job] = marks(found)
}

// marks are what an overlap tells that a job may not know yet: a file, and lines of one.
func marks(found jobs.Overlap) []string {
	all := slices.Clone(found.Files)
	for _, path := range found.Lines {
		all = append(all, "lines of "+path)
	}
	return all
}
