// Package mergeorder finds an order in which the fewest of many changes stop at a conflict when they are
// merged one after the other.
//
//	pairs that conflict ──▶ groups that are connected ──▶ of each the most without a conflict ──▶ Order
//
// A change stops if it conflicts with one that was merged before it. Those that do not stop have no
// conflict with each other, whatever the order: so the best order begins with as many changes as possible
// of which no two conflict. In groups of up to [Exact] changes that number is the largest there is; in
// larger ones, where that could take years, it is one that no exchange of one change for two makes larger.
// The package holds values only.
package mergeorder

import (
	"cmp"
	"math/bits"
	"slices"
)

// Exact is the size of the largest group of connected changes for which no better order exists.
const Exact = 40

// An Order is one of changes, which are numbered from 0.
type Order struct {
	Merge []int // of these no two conflict, in the order of their numbers
	Stop  []int // each conflicts with one of Merge; those with the fewest conflicts first
	Exact bool  // no order stops fewer
}

// Of returns the order of n changes, given the pairs of them that conflict.
func Of(n int, conflicts [][2]int) Order {
	g := make(graph, n)
	for i := range g {
		g[i] = map[int]bool{}
	}
	for _, c := range conflicts {
		if a, b := c[0], c[1]; a != b {
			g[a][b], g[b][a] = true, true
		}
	}
	o := Order{Exact: true}
	for _, group := range g.groups() {
		if len(group) <= Exact {
			o.Merge = append(o.Merge, g.most(group)...)
		} else {
			o.Merge = append(o.Merge, g.many(group)...)
			o.Exact = false
		}
	}
	slices.Sort(o.Merge)
	for i := range n {
		if _, in := slices.BinarySearch(o.Merge, i); !in {
			o.Stop = append(o.Stop, i)
		}
	}
	slices.SortStableFunc(o.Stop, func(a, b int) int { return cmp.Compare(len(g[a]), len(g[b])) })
	return o
}

// A graph has of each change those that it conflicts with.
type graph []map[int]bool

// groups are the connected ones, each in the order of its numbers.
func (g graph) groups() (all [][]int) {
	seen := make([]bool, len(g))
	for i := range g {
		if seen[i] {
			continue
		}
		seen[i] = true
		group := []int{i}
		for at := 0; at < len(group); at++ {
			for j := range g[group[at]] {
				if !seen[j] {
					seen[j] = true
					group = append(group, j)
				}
			}
		}
		slices.Sort(group)
		all = append(all, group)
	}
	return all
}

// most returns the most changes of a small group of which no two conflict.
func (g graph) most(group []int) (best []int) {
	near := make([]uint64, len(group))
	for i, a := range group {
		for j, b := range group {
			if g[a][b] {
				near[i] |= 1 << j
			}
		}
	}
	for _, i := range set(largest(near, 1<<len(group)-1)) {
		best = append(best, group[i])
	}
	return best
}

// largest returns the largest part of a set of which no two are near each other.
func largest(near []uint64, of uint64) uint64 {
	if of == 0 {
		return 0
	}
	widest, most := 0, -1
	for _, i := range set(of) {
		d := bits.OnesCount64(near[i] & of)
		if d <= 1 { // whatever else is in it, this one can be
			return 1<<i | largest(near, of&^near[i]&^(1<<i))
		}
		if d > most {
			widest, most = i, d
		}
	}
	with := 1<<widest | largest(near, of&^near[widest]&^(1<<widest))
	// Without it, more than one near it must be in.
	without := largest(near, of&^(1<<widest))
	if bits.OnesCount64(without) > bits.OnesCount64(with) {
		return without
	}
	return with
}

func set(of uint64) (members []int) {
	for ; of != 0; of &= of - 1 {
		members = append(members, bits.TrailingZeros64(of))
	}
	return members
}

// many returns many changes of a large group of which no two conflict: it takes the one with the fewest
// conflicts left, again and again, and then exchanges one for two as long as it can.
func (g graph) many(group []int) []int {
	in, left := map[int]bool{}, map[int]int{}
	for _, i := range group {
		left[i] = len(g[i])
	}
	for len(left) > 0 {
		next := -1
		for _, i := range group {
			if d, ok := left[i]; ok && (next < 0 || d < left[next]) {
				next = i
			}
		}
		in[next] = true
		g.drop(left, next)
		for j := range g[next] {
			g.drop(left, j)
		}
	}
	for g.exchange(in, group) {
	}
	return slices.DeleteFunc(slices.Clone(group), func(i int) bool { return !in[i] })
}

// drop takes one out of those that are left, with how many conflicts each has with the others.
func (g graph) drop(left map[int]int, i int) {
	if _, ok := left[i]; !ok {
		return
	}
	delete(left, i)
	for j := range g[i] {
		if _, ok := left[j]; ok {
			left[j]--
		}
	}
}

// exchange puts two in for one, and reports whether there are such.
func (g graph) exchange(in map[int]bool, group []int) bool {
	only := map[int][]int{} // of each in it, those that conflict with that one alone
	for _, i := range group {
		if in[i] {
			continue
		}
		of, count := -1, 0
		for j := range g[i] {
			if in[j] {
				of = j
				count++
			}
		}
		if count == 1 {
			only[of] = append(only[of], i)
		}
	}
	for _, one := range group {
		for n, a := range only[one] {
			for _, b := range only[one][n+1:] {
				if !g[a][b] {
					delete(in, one)
					in[a], in[b] = true, true
					return true
				}
			}
		}
	}
	return false
}
