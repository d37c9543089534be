package mergeorder

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// random makes the conflicts of n changes, each with a probability.
func random(r *rand.Rand, n int, p float64) (conflicts [][2]int) {
	for i := range n {
		for j := i + 1; j < n; j++ {
			if r.Float64() < p {
				conflicts = append(conflicts, [2]int{j, i})
			}
		}
	}
	return conflicts
}

// stops counts the changes that stop in an order: they conflict with one before them.
func stops(order []int, conflicts [][2]int) (count int) {
	at := map[int]int{}
	for i, c := range order {
		at[c] = i
	}
	stopped := map[int]bool{}
	for _, c := range conflicts {
		later := c[0]
		if at[c[1]] > at[c[0]] {
			later = c[1]
		}
		stopped[later] = true
	}
	return len(stopped)
}

// fewest is how many stop in the best of all orders: it tries every set of changes that may come first.
func fewest(n int, conflicts [][2]int) int {
	best := 0
next:
	for set := range 1 << n {
		for _, c := range conflicts {
			if set>>c[0]&1 == 1 && set>>c[1]&1 == 1 {
				continue next
			}
		}
		best = max(best, bits.OnesCount(uint(set)))
	}
	return n - best
}

// permuted is how many stop in the best of all permutations.
func permuted(order []int, from int, conflicts [][2]int) int {
	if from == len(order) {
		return stops(order, conflicts)
	}
	best := len(order)
	for i := from; i < len(order); i++ {
		order[from], order[i] = order[i], order[from]
		best = min(best, permuted(order, from+1, conflicts))
		order[from], order[i] = order[i], order[from]
	}
	return best
}

// Of small graphs no order stops fewer changes.
func TestNoOrderStopsFewer(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := r.IntN(13)
		conflicts := random(r, n, r.Float64())
		o := Of(n, conflicts)
		want := fewest(n, conflicts)
		all := slices.Concat(o.Merge, o.Stop)
		if got := stops(all, conflicts); got != want || len(o.Stop) != want || !o.Exact {
			t.Fatalf("%d changes with conflicts %v: %d stop, the best order has %d: %+v", n, conflicts, got, want, o)
		}
		if n <= 6 {
			if least := permuted(slices.Clone(all), 0, conflicts); least != want {
				t.Fatalf("%d changes with conflicts %v: a permutation has %d stops, the best set leaves %d", n, conflicts, least, want)
			}
		}
		if slices.Sort(all); !slices.Equal(all, numbers(n)) {
			t.Fatalf("%+v is not an order of %d changes", o, n)
		}
	}
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// In large groups no two of the first conflict, each of the others does, and the heuristic is near the
// best in groups for which that is known.
func TestLargeGroups(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		n := Exact + 1 + r.IntN(300)
		conflicts := random(r, n, 2/float64(n)+r.Float64()/4)
		o := Of(n, conflicts)
		if got := stops(slices.Concat(o.Merge, o.Stop), conflicts); got != len(o.Stop) || len(o.Merge)+len(o.Stop) != n {
			t.Errorf("%d of %d changes stop, not %d", got, n, len(o.Stop))
		}
	}
	short := 0
	for range 300 {
		n := 2 + r.IntN(17)
		conflicts := random(r, n, r.Float64())
		g := make(graph, n)
		for i := range g {
			g[i] = map[int]bool{}
		}
		for _, c := range conflicts {
			g[c[0]][c[1]], g[c[1]][c[0]] = true, true
		}
		many := g.many(numbers(n))
		short += n - fewest(n, conflicts) - len(many)
		for _, c := range conflicts {
			if slices.Contains(many, c[0]) && slices.Contains(many, c[1]) {
				t.Fatalf("%v has both of %v", many, c)
			}
		}
	}
	if short > 30 {
		t.Errorf("of 300 groups the heuristic keeps %d changes fewer than the best", short)
	}
}

// A group of the largest size that is exact takes no time, whatever its conflicts.
func TestExactIsFast(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, p := range []float64{0.05, 0.1, 0.15, 0.2, 0.5, 1} {
		if o := Of(Exact, random(r, Exact, p)); !o.Exact {
			t.Errorf("%+v is not exact", o)
		}
	}
}
