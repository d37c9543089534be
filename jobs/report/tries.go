package report

import (
	"cmp"
	"fmt"

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

// Try reports whether an item is one of several tries of another.
func (i Item) Try() bool { return i.Of != "" && i.Agent == "" }

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

// markBest marks the best try of each item, and returns what all of them came to; nil: no
// item was tried several times.
func markBest(rows []Item) *Tries {
	of := map[string][]int{}
	for i, row := range rows {
		if row.Try() {
			of[row.Of] = append(of[row.Of], i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	all := &Tries{Items: len(of)}
	for _, at := range of {
		var tries []Item
		ended := 0
		for _, i := range at {
			tries = append(tries, rows[i])
			all.Runs++
			if rows[i].Outcome != "" {
				ended++
			}
			switch {
			case rows[i].Outcome == jobs.Success:
				all.Succeeded++
			case rows[i].Outcome != "" && rows[i].Outcome != jobs.Skip:
				all.Failed++
			}
		}
		best := Best(tries)
		if best >= 0 {
			rows[at[best]].Best = true
		}
		switch {
		case best >= 0 && goodness(tries[best].Outcome) > 0:
			all.Solved++
		case ended == len(tries):
			all.Unsolved++
		}
	}
	return all
}

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
