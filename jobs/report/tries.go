package report

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
)

// Tries are what several tries of each item came to, of a batch that runs items more than
// once to keep the best.
type Tries struct {
	Items     int `json:"items" jsonschema:"How many items were tried several times."`
	Runs      int `json:"runs" jsonschema:"How many tries there are."`
	Solved    int `json:"solved" jsonschema:"With how many of them at least one try ended in success or skip."`
	Unsolved  int `json:"unsolved" jsonschema:"With how many of them all tries have ended otherwise."`
	Succeeded int `json:"succeeded" jsonschema:"How many tries succeeded."`
	Failed    int `json:"failed" jsonschema:"How many tries ended otherwise, and not in skip."`
}

// Text says it in a line.
func (t Tries) Text() string {
	return fmt.Sprintf("%d of %d items have a good one; %d tries succeeded, %d did not", t.Solved, t.Items, t.Succeeded, t.Failed)
}

// Label notes what the labels of the item's job say of it.
func (i *Item) Label(labels map[string]string) {
	i.Of, i.Agent = labels[ItemLabel], labels[AgentLabel]
	if n, err := strconv.Atoi(labels[TryLabel]); err == nil && n > 0 {
		i.Try = n
	}
}

// IsTry reports whether an item is one of several tries of another, of which the best is kept.
func (i Item) IsTry() bool { return i.Of != "" && (i.Agent == "" || i.Try > 0) }

// Best returns the index of the best of several tries of one item; -1: none has ended. A
// success is better than anything else; then it counts how many of its checks passed,
// whether it changes something, how few lines it changes, and what it cost. Of equal ones
// it is the first.
func Best(tries []Item) int {
	best := -1
	for i, t := range tries {
		if t.Outcome != "" && (best < 0 || compareTries(t, tries[best]) < 0) {
			best = i
		}
	}
	return best
}

// compareTries is negative where a is better than b.
func compareTries(a, b Item) int {
	return cmp.Or(
		cmp.Compare(goodness(b.Outcome), goodness(a.Outcome)),
		cmp.Compare(b.passed(), a.passed()),
		cmp.Compare(min(b.Files, 1), min(a.Files, 1)),
		cmp.Compare(a.Added+a.Removed, b.Added+b.Removed),
		cmp.Compare(a.CostUSD, b.CostUSD),
	)
}

func goodness(o jobs.Outcome) int {
	switch o {
	case jobs.Success:
		return 2
	case jobs.Skip:
		return 1
	}
	return 0
}

// passed is the part of the checks that passed; 1 where there are none.
func (i Item) passed() float64 {
	if i.Checks == 0 {
		return 1
	}
	return float64(i.ChecksPassed) / float64(i.Checks)
}

// BestBy says of each item whether it is the best of those with the same key; those whose key is
// "" are none's best.
func BestBy(rows []Item, key func(Item) string) []bool {
	of := map[string][]int{}
	for i, row := range rows {
		if name := key(row); name != "" {
			of[name] = append(of[name], i)
		}
	}
	is := make([]bool, len(rows))
	for _, at := range of {
		tries := make([]Item, 0, len(at))
		for _, i := range at {
			tries = append(tries, rows[i])
		}
		if best := Best(tries); best >= 0 {
			is[at[best]] = true
		}
	}
	return is
}

// tryOf is the item that an item is a try of; "" if it is none.
func tryOf(i Item) string {
	if i.IsTry() {
		return i.Of
	}
	return ""
}

// markBest marks the best try of each item, and returns what all of them came to; nil: no
// item was tried several times.
func markBest(rows []Item) *Tries {
	all, of := &Tries{}, map[string]*runs{}
	for i, best := range BestBy(rows, tryOf) {
		row := &rows[i]
		row.Best = best
		if !row.IsTry() {
			continue
		}
		if of[row.Of] == nil {
			of[row.Of] = &runs{}
		}
		of[row.Of].add(row.Outcome)
		all.Runs++
		switch {
		case row.Outcome == jobs.Success:
			all.Succeeded++
		case row.Outcome != "" && row.Outcome != jobs.Skip:
			all.Failed++
		}
	}
	if len(of) == 0 {
		return nil
	}
	all.Items = len(of)
	for _, r := range of {
		switch {
		case r.succeeded+r.skipped > 0:
			all.Solved++
		case r.ended == r.all:
			all.Unsolved++
		}
	}
	return all
}

// runs count what the runs of an item came to.
type runs struct{ all, ended, judged, succeeded, skipped int }

func (r *runs) add(o jobs.Outcome) {
	r.all++
	if o == "" {
		return
	}
	r.ended++
	switch o {
	case jobs.Skip:
		r.skipped++
	case jobs.Cancellation:
	case jobs.Success:
		r.succeeded++
		r.judged++
	default:
		r.judged++
	}
}

// settled reports whether it is known if one of them succeeds, not counting those that were
// cancelled or skipped.
func (r *runs) settled() bool { return r.succeeded > 0 || r.ended == r.all && r.judged > 0 }

// Failed is how many items ended without success or skip: of several tries of one, all.
func (b *Report) Failed() int {
	failed := b.Done - b.Outcomes[jobs.Success] - b.Outcomes[jobs.Skip]
	if t := b.Tries; t != nil {
		failed += t.Unsolved - t.Failed
	}
	return failed
}

// Different is how many items there are, where several tries of one are one.
func (b *Report) Different() int {
	if t := b.Tries; t != nil {
		return b.Items - t.Runs + t.Items
	}
	return b.Items
}
