package report

import (
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
)

// maxStops bounds the results that conflict which a table for people lists.
const maxStops = 100

// merges reports whether a result is one that is merged: it succeeded, changes something, and
// is not one of several tries, of which one alone is kept.
func (e *Entry) merges() bool {
	return e.Of == "" && e.Outcome == jobs.Success && e.Patch != nil && len(e.Patch.Files) > 0
}

// mergeOrder is the order in which the fewest of the results stop at a conflict, by the lines
// that they change; nil: there are fewer than two, or too many to compare.
func (b *Builder) mergeOrder() *mergeorder.Sequence {
	near, all := b.overlaps.Near()
	if !all || len(b.merging) < 2 {
		return nil
	}
	number := map[string]int{}
	for i, item := range b.merging {
		number[item.ID] = i
	}
	var conflicts [][2]int
	stops := map[[2]int][]string{} // the files, by both results
	for _, p := range near {
		x, isOne := number[p.A]
		y, isOther := number[p.B]
		if isOne && isOther && len(p.Conflicts) > 0 {
			conflicts = append(conflicts, [2]int{x, y})
			stops[[2]int{x, y}], stops[[2]int{y, x}] = p.Conflicts, p.Conflicts
		}
	}
	order := mergeorder.Of(len(b.merging), conflicts)
	found := &mergeorder.Sequence{Fewest: order.Exact, Order: []mergeorder.Turn{}}
	for _, i := range order.Merge {
		found.Add(mergeorder.Turn{Item: b.merging[i].ID, Job: b.merging[i].Job, State: mergeorder.Merges})
	}
	for _, i := range order.Stop {
		turn := mergeorder.Turn{Item: b.merging[i].ID, Job: b.merging[i].Job, State: mergeorder.Conflict}
		var files []string
		for _, j := range order.Merge {
			if at := stops[[2]int{i, j}]; len(at) > 0 {
				turn.With, files = append(turn.With, b.merging[j].ID), append(files, at...)
			}
		}
		slices.Sort(files)
		files = slices.Compact(files)
		turn.Conflicts, turn.MoreConflicts = paths(files), max(0, len(files)-maxNamed)
		found.Add(turn)
	}
	return found
}

// A MergePlan is the order of the results as people read it.
type MergePlan struct {
	Counts    string            // how many merge
	Merging   string            // the first items that merge, in their order
	Stopping  []mergeorder.Turn // the first results that conflict
	MoreStops int
}

// Plan is the order of the results for people; nil: no two of them meet.
func (b *Report) Plan() *MergePlan {
	if b.MergeOrder == nil || len(b.Pairs) == 0 {
		return nil
	}
	plan := &MergePlan{Counts: b.MergeOrder.Counts()}
	var merging []string
	for _, turn := range b.MergeOrder.Order {
		if turn.State == mergeorder.Merges {
			merging = append(merging, turn.Item)
		} else if len(plan.Stopping) < maxStops {
			plan.Stopping = append(plan.Stopping, turn)
		}
	}
	plan.Merging = some(merging, 100, b.MergeOrder.Merge)
	plan.MoreStops = b.MergeOrder.Stop - len(plan.Stopping)
	return plan
}

func (b *Report) markdownMergeOrder(p printer) {
	plan := b.Plan()
	if plan == nil {
		return
	}
	p("\n## Merge order\n\n%s, by the lines that they change. `penstock batch overlaps` makes the merges.\n\nMerge in this order: %s.\n", plan.Counts, Cell(plan.Merging, 8000))
	if len(plan.Stopping) == 0 {
		return
	}
	p("\n| then | conflicts with | in files |\n|---|---|---|\n")
	for _, turn := range plan.Stopping {
		p("| %s | %s | %s |\n", Cell(turn.Item, 128), Cell(turn.Others(), 600), Cell(turn.Stops(), 600))
	}
	if plan.MoreStops > 0 {
		p("\n%d more are not listed.\n", plan.MoreStops)
	}
}
