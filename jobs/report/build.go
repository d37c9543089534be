package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/patchstat"
)

// Bounds of what a report lists.
const (
	maxSlowest  = 10
	maxRunsCode = 100
	maxRunning  = 100
	maxBases    = 20
	maxAgents   = 20  // that are compared: labels of jobs name them, and each two have a row
	maxNamed    = 20  // of the items or files of one entry of a list
	maxText     = 400 // of the characters of a path or a title, which strangers write
)

// An Entry is an item with what is known of it. Item has no outcome while it has not ended.
type Entry struct {
	Item
	Usage     jobs.Usage
	Durations jobs.Durations
	Base      string // the commit that it began from
	// Patch is what its patch changes; nil: that was not read.
	Patch *patchstat.Stat
}

// Of is the entry of a result.
func Of(title string, r jobs.Result, patch *patchstat.Stat) Entry {
	e := Entry{
		Item:  Item{ID: r.ID, Title: title, Job: r.Job, Outcome: r.Outcome, Reason: r.Reason, Seconds: r.Durations.Total, CostUSD: r.CostUSD, Checks: len(r.Checks), ChecksPassed: Passed(r.Checks)},
		Usage: r.Usage, Durations: r.Durations, Base: r.BaseCommit, Patch: patch,
	}
	if patch != nil {
		e.Files, e.Added, e.Removed = len(patch.Files)+patch.More, patch.Added, patch.Removed
	}
	return e
}

// Passed is how many checks passed.
func Passed(checks []jobs.Check) (n int) {
	for _, c := range checks {
		if c.Exit == 0 {
			n++
		}
	}
	return n
}

// A Builder makes a report of entries.
type Builder struct {
	batch     Report
	reasons   map[jobs.Reason]*Reason
	durations []jobs.Durations
	overlaps  patchstat.Overlaps
	commits   map[string]bool // that items began from
	compared  agentTally
	merging   []Item // that are merged
}

// New returns a builder of a report that begins with what a caller knows of the batch as a
// whole.
func New(known Report) *Builder {
	known.Outcomes = map[jobs.Outcome]int{}
	// In JSON an empty list is a list.
	known.Reasons, known.Stages, known.Slowest, known.Rows = []Reason{}, []Stage{}, []Item{}, []Item{}
	known.Files, known.Pairs, known.RunsCode = []File{}, []Pair{}, []Risky{}
	return &Builder{batch: known, reasons: map[jobs.Reason]*Reason{}, commits: map[string]bool{}}
}

// Add adds an item, in the order in which the report lists them.
func (b *Builder) Add(e Entry) {
	r := &b.batch
	r.Items++
	e.Title = cut(e.Title)
	if e.Outcome == "" {
		r.Missing++
		b.compared.add(e)
		r.Rows = append(r.Rows, e.Item)
		return
	}
	r.Done++
	r.Outcomes[e.Outcome]++
	if e.Review != "" {
		if r.Reviews == nil {
			r.Reviews = map[jobs.ReviewState]int{}
		}
		r.Reviews[e.Review]++
	}
	r.CostUSD = jobs.AddUSD(r.CostUSD, e.CostUSD)
	r.Usage = r.Usage.Add(e.Usage)
	b.addReason(e.Item)
	if e.Patch == nil {
		r.Unread++
	} else {
		b.durations = append(b.durations, e.Durations)
		if e.Base != "" {
			b.commits[e.Base] = true
		}
		b.addPatch(&e)
	}
	b.compared.add(e)
	r.Rows = append(r.Rows, e.Item)
}

func (b *Builder) addReason(item Item) {
	if item.Reason == "" {
		return
	}
	r := b.reasons[item.Reason]
	if r == nil {
		r = &Reason{Reason: item.Reason, Advice: jobs.Reasons[item.Reason].Advice}
		b.reasons[item.Reason] = r
	}
	r.Items++
	r.CostUSD = jobs.AddUSD(r.CostUSD, item.CostUSD)
	if len(r.IDs) < maxNamed {
		r.IDs = append(r.IDs, item.ID)
	}
}

// addPatch counts what the patch of an item changes.
func (b *Builder) addPatch(e *Entry) {
	r, p := &b.batch, e.Patch
	r.Added += p.Added
	r.Removed += p.Removed
	if len(p.Files) == 0 {
		r.Unchanged++
	}
	for _, f := range p.Files {
		why := patchstat.RunsCode(f)
		switch {
		case why == "":
		case len(r.RunsCode) == maxRunsCode:
			r.MoreRunsCode++
		default:
			r.RunsCode = append(r.RunsCode, Risky{e.ID, cut(f.Path), why})
		}
	}
	if e.Of == "" { // else those of one item meet by nature
		b.overlaps.Add(e.ID, e.Base, *p)
	}
	if e.merges() {
		b.merging = append(b.merging, e.Item)
	}
}

// Report returns the report of what was added.
func (b *Builder) Report() *Report {
	r := &b.batch
	for _, reason := range b.reasons {
		r.Reasons = append(r.Reasons, *reason)
	}
	slices.SortFunc(r.Reasons, func(x, y Reason) int {
		return cmp.Or(cmp.Compare(y.Items, x.Items), cmp.Compare(x.Reason, y.Reason))
	})
	r.Stages = stages(b.durations)
	r.Tries = markBest(r.Rows)
	r.Slowest = slices.DeleteFunc(slices.Clone(r.Rows), func(item Item) bool { return item.Outcome == "" })
	slices.SortStableFunc(r.Slowest, func(x, y Item) int { return cmp.Compare(y.Seconds, x.Seconds) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), maxSlowest)]
	b.addOverlaps()
	r.MergeOrder = b.mergeOrder()
	r.Agents, r.Comparisons = b.compared.result(r.Rows)
	if r.Bases == nil {
		r.Bases = slices.Sorted(maps.Keys(b.commits))
		if more := len(r.Bases) - maxBases; more > 0 {
			r.Bases = append(r.Bases[:maxBases:maxBases], fmt.Sprintf("and %d more", more))
		}
	}
	return r
}

func (b *Builder) addOverlaps() {
	r := &b.batch
	files, more := b.overlaps.Files()
	for _, f := range files {
		r.Files = append(r.Files, File{Path: cut(f.Path), Patches: len(f.Items), IDs: first(f.Items)})
	}
	r.MoreFiles = more
	pairs, more := b.overlaps.Pairs()
	for _, p := range pairs {
		r.Pairs = append(r.Pairs, Pair{
			A: p.A, B: p.B, Files: paths(p.Files), MoreFiles: max(0, len(p.Files)-maxNamed),
			Conflicts: paths(p.Conflicts), MoreConflicts: max(0, len(p.Conflicts)-maxNamed),
		})
	}
	r.MorePairs = more
}

// AddRunning adds what an item that runs has in common with another, as the pool has noted.
func (b *Builder) AddRunning(item, other string, o jobs.Overlap) {
	r := &b.batch
	if len(r.Running) == maxRunning {
		r.MoreRunning++
		return
	}
	r.Running = append(r.Running, Pair{
		A: item, B: other, Files: paths(o.Files), MoreFiles: max(0, len(o.Files)-maxNamed) + o.More,
		Conflicts: paths(o.Lines), MoreConflicts: max(0, len(o.Lines)-maxNamed),
	})
}

func first(names []string) []string { return names[:min(len(names), maxNamed)] }

func paths(all []string) []string {
	short := make([]string, 0, min(len(all), maxNamed))
	for _, path := range first(all) {
		short = append(short, cut(path))
	}
	return short
}

// cut shortens what strangers write.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	runes := []rune(text)
	if len(runes) <= maxText {
		return text
	}
	return string(runes[:maxText-1]) + "…"
}

func known(o jobs.Outcome) bool { return slices.Contains(outcomeOrder, o) }

func stages(all []jobs.Durations) (out []Stage) {
	parts := []struct {
		name string
		of   func(jobs.Durations) float64
	}{
		{"queue", func(d jobs.Durations) float64 { return d.Queue }},
		{"provision", func(d jobs.Durations) float64 { return d.Provision }},
		{"jail", func(d jobs.Durations) float64 { return d.Jail }},
		{"agent", func(d jobs.Durations) float64 { return d.Agent }},
		{"check", func(d jobs.Durations) float64 { return d.Check }},
		{"collect", func(d jobs.Durations) float64 { return d.Collect }},
		{"total", func(d jobs.Durations) float64 { return d.Total }},
	}
	for _, part := range parts {
		var took []float64
		for _, d := range all {
			if v := part.of(d); v > 0 {
				took = append(took, v)
			}
		}
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		at := func(q float64) float64 { return took[min(int(q*float64(len(took))), len(took)-1)] }
		out = append(out, Stage{part.name, at(0.5), at(0.9), took[len(took)-1]})
	}
	return out
}

// Fit shortens the lists of a report until its JSON has at most so many bytes, and returns
// false if nothing is left to shorten.
func (b *Report) Fit(room int) bool {
	for {
		body, err := json.Marshal(b)
		if err != nil {
			return false
		}
		if len(body) <= room {
			return true
		}
		half := func(n int) int { return n - n/2 }
		turns := 0
		if b.MergeOrder != nil {
			turns = len(b.MergeOrder.Order)
		}
		switch n := max(len(b.Rows), turns, len(b.Pairs), len(b.Files), len(b.RunsCode), len(b.Running)); {
		case n < 2:
			return false
		case n == len(b.Rows):
			b.MoreRows += half(n)
			b.Rows = b.Rows[:n/2]
		case n == turns:
			b.MoreOrder += half(n)
			b.MergeOrder.Order = b.MergeOrder.Order[:n/2]
		case n == len(b.Pairs):
			if b.MorePairs >= 0 {
				b.MorePairs += half(n)
			}
			b.Pairs = b.Pairs[:n/2]
		case n == len(b.Running):
			b.MoreRunning += half(n)
			b.Running = b.Running[:n/2]
		case n == len(b.Files):
			b.MoreFiles += half(n)
			b.Files = b.Files[:n/2]
		default:
			b.MoreRunsCode += half(n)
			b.RunsCode = b.RunsCode[:n/2]
		}
	}
}
