package trialmerge

import (
	"cmp"
	"context"
	"path"
	"slices"

	"github.com/penstock-run/penstock/jobs/mergeorder"
	"github.com/penstock-run/penstock/worker/checkout"
)

// order merges the changes one after the other, in the order that stops the fewest.
func (t *trial) order(ctx context.Context) Found {
	found := Found{Sequence: mergeorder.Sequence{Order: []mergeorder.Turn{}}, Pairs: []Pair{}}
	place, planned := t.plan()
	found.Fewest = planned.Exact && t.all && !slices.ContainsFunc(t.meetings, func(m meeting) bool { return m.state == mergeorder.Untried })
	var before []int // that are merged
	at := ""         // the commit of all of them
	for _, i := range place {
		c := t.changes[i]
		turn := mergeorder.Turn{Item: c.ID, Job: c.Job, State: mergeorder.Untried, Why: c.why}
		if c.commit != "" {
			var next string
			if next, turn = t.turn(ctx, turn, i, at, before); turn.State == mergeorder.Merges {
				at, before = next, append(before, i)
			}
		}
		found.Add(turn)
	}
	found.Fewest = found.Fewest && found.Untried == 0 && found.Stop == len(planned.Stop)
	// Those that merge come first, and those that were not tried last.
	rank := map[mergeorder.State]int{mergeorder.Merges: 0, mergeorder.Conflict: 1, mergeorder.Untried: 2}
	slices.SortStableFunc(found.Order, func(a, b mergeorder.Turn) int { return rank[a.State] - rank[b.State] })
	t.list(&found)
	return found
}

// plan returns the order by pairs. Of those that merge, the ones that change attributes come last.
func (t *trial) plan() (place []int, planned mergeorder.Order) {
	var conflicts [][2]int
	for _, m := range t.meetings {
		if t.changes[m.a].commit != "" && t.changes[m.b].commit != "" && m.stops() {
			conflicts = append(conflicts, [2]int{m.a, m.b})
		}
	}
	planned = mergeorder.Of(len(t.changes), conflicts)
	slices.SortStableFunc(planned.Merge, func(a, b int) int { return t.attributes(a) - t.attributes(b) })
	return slices.Concat(planned.Merge, planned.Stop), planned
}

// attributes is 1 of a change that names other attributes, by which git may merge what comes after it in
// another way.
func (t *trial) attributes(i int) int {
	for _, f := range t.changes[i].stat.Files {
		if path.Base(f.Path) == ".gitattributes" {
			return 1
		}
	}
	return 0
}

// turn merges a change into those before it, unless it conflicts with one of them.
func (t *trial) turn(ctx context.Context, turn mergeorder.Turn, i int, at string, before []int) (next string, _ mergeorder.Turn) {
	var with, beside []int
	var conflicts []string
	for _, m := range t.meetings {
		other := m.a
		if m.a == i {
			other = m.b
		} else if m.b != i {
			continue
		}
		if !slices.Contains(before, other) {
			continue
		}
		beside = append(beside, other)
		if m.state == mergeorder.Conflict {
			with, conflicts = append(with, other), append(conflicts, m.merged.Conflicts...)
		}
	}
	if len(with) == 0 {
		next, merged, err := t.add(ctx, at, t.changes[i].commit)
		if err != nil {
			turn.Why = err.Error()
			return "", turn
		}
		if merged.Clean {
			turn.State = mergeorder.Merges
			return next, turn
		}
		// It conflicts with several together, or with one with which it was not tried.
		with, conflicts = beside, merged.Conflicts
	}
	turn.State = mergeorder.Conflict
	slices.Sort(with)
	for _, other := range with {
		turn.With = append(turn.With, t.changes[other].ID)
	}
	slices.Sort(conflicts)
	turn.Conflicts, turn.MoreConflicts = firstNames(slices.Compact(conflicts))
	return "", turn
}

// add merges a commit into that of those before.
func (t *trial) add(ctx context.Context, at, commit string) (string, checkout.Merged, error) {
	if at == "" {
		return commit, checkout.Merged{Clean: true}, nil
	}
	ctx, cancel := each(ctx)
	defer cancel()
	if err := context.Cause(ctx); err != nil {
		return "", checkout.Merged{}, err
	}
	return t.merges.Merge(ctx, at, commit)
}

// list lists the pairs: those with conflicts first, then those that were not tried.
func (t *trial) list(found *Found) {
	rank := map[mergeorder.State]int{mergeorder.Conflict: 0, mergeorder.Untried: 1, mergeorder.Merges: 2}
	slices.SortFunc(t.meetings, func(x, y meeting) int { return cmp.Or(rank[x.state]-rank[y.state], x.a-y.a, x.b-y.b) })
	for _, m := range t.meetings[:min(len(t.meetings), maxPairs)] {
		p := Pair{A: t.changes[m.a].ID, B: t.changes[m.b].ID, State: m.state, Why: m.why}
		p.Files, p.MoreFiles = firstNames(m.common.Files)
		p.Conflicts, p.MoreConflicts = firstNames(m.merged.Conflicts)
		found.Pairs = append(found.Pairs, p)
	}
	found.MorePairs = len(t.meetings) - len(found.Pairs)
	if !t.all {
		found.MorePairs = -1
	}
}
