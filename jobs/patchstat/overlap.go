package patchstat

import (
	"cmp"
	"maps"
	"slices"
)

// Limits of the comparison: in a large batch everything may touch one file,
// and the number of pairs grows with the square.
const (
	maxPairs  = 50_000
	maxListed = 100
)

// A Pair is two items whose patches touch the same files. Conflicts are those
// files in which they change the same lines.
type Pair struct {
	A, B             string
	Files, Conflicts []string
}

// A Shared is a file that several patches touch.
type Shared struct {
	Path  string
	Items []string
}

type touch struct {
	item, base string
	file       File
}

// Overlaps compares the patches of a batch with each other. The zero value is empty.
type Overlaps struct {
	byPath map[string][]touch
}

// Add adds the patch of an item, made from a commit.
func (o *Overlaps) Add(item, base string, stat Stat) {
	if o.byPath == nil {
		o.byPath = map[string][]touch{}
	}
	for _, f := range stat.Files {
		o.byPath[f.Path] = append(o.byPath[f.Path], touch{item, base, f})
		if f.From != "" && f.From != f.Path {
			o.byPath[f.From] = append(o.byPath[f.From], touch{item, base, File{Path: f.From, Whole: true}})
		}
	}
}

// Files lists the files that more than one patch changes, those of the most patches
// first. More counts the files that are not listed.
func (o *Overlaps) Files() (files []Shared, more int) {
	for _, path := range slices.Sorted(maps.Keys(o.byPath)) {
		if touches := o.byPath[path]; len(touches) > 1 {
			s := Shared{Path: path}
			for _, t := range touches {
				s.Items = append(s.Items, t.item)
			}
			files = append(files, s)
		}
	}
	slices.SortStableFunc(files, func(a, b Shared) int { return cmp.Compare(len(b.Items), len(a.Items)) })
	more = max(len(files)-maxListed, 0)
	return files[:len(files)-more], more
}

// Pairs lists the patches that change the same files, those with conflicts first. More
// counts the pairs that are not listed, and is -1 if there were too many to compare.
func (o *Overlaps) Pairs() (pairs []Pair, more int) {
	pairs, all := o.compare(maxPairs, nil)
	if !all {
		more = -1
	}
	if len(pairs) > maxListed {
		if more == 0 {
			more = len(pairs) - maxListed
		}
		pairs = pairs[:maxListed]
	}
	return pairs, more
}

// compare lists all pairs, those with conflicts first, also of what else meets. All is false if there were
// more than most to compare.
func (o *Overlaps) compare(most int, also []meeting) (pairs []Pair, all bool) {
	found := pairsFound{}
	compared := 0
	for _, path := range slices.Sorted(maps.Keys(o.byPath)) {
		touches := o.byPath[path]
		if compared += len(touches) * (len(touches) - 1) / 2; compared > most {
			return found.list(), false
		}
		for i, a := range touches {
			for _, b := range touches[i+1:] {
				found.add(meeting{path, a, b, collide(a, b)})
			}
		}
	}
	for _, m := range also {
		found.add(m)
	}
	return found.list(), true
}

// A meeting is a path at which two patches meet, and whether a merge of both would stop there.
type meeting struct {
	path     string
	a, b     touch
	conflict bool
}

type pairsFound map[[2]string]*Pair

func (found pairsFound) add(m meeting) {
	if m.a.item == m.b.item {
		return
	}
	p := found[[2]string{m.b.item, m.a.item}]
	if p == nil {
		p = found[[2]string{m.a.item, m.b.item}]
	}
	if p == nil {
		p = &Pair{A: m.a.item, B: m.b.item}
		found[[2]string{p.A, p.B}] = p
	}
	p.Files = append(p.Files, m.path)
	if m.conflict {
		p.Conflicts = append(p.Conflicts, m.path)
	}
}

func (found pairsFound) list() (pairs []Pair) {
	for _, key := range slices.SortedFunc(maps.Keys(found), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		pairs = append(pairs, *found[key])
	}
	slices.SortStableFunc(pairs, func(a, b Pair) int { return cmp.Compare(len(b.Conflicts), len(a.Conflicts)) })
	return pairs
}

// Both compares two patches: what they have in common, and whether that is anything. Lines are compared
// where both were made from the same commit; else each file in common is a conflict.
func Both(a, b Patch) (common Pair, ok bool) {
	var both Overlaps
	both.Add("a", a.Base, a.Stat)
	both.Add("b", b.Base, b.Stat)
	pairs, _ := both.Pairs()
	if len(pairs) == 0 {
		return Pair{}, false
	}
	return pairs[0], true
}

// A Patch is what one changes, and the commit that it was made from.
type Patch struct {
	Base string
	Stat Stat
}

// collide reports whether a merge of both would stop at this file: they change the same
// lines or adjacent ones, or one of them changes the file as a whole. Lines of
// different bases cannot be compared.
func collide(a, b touch) bool {
	whole := func(f File) bool { return f.Whole || f.Binary || f.New || f.Deleted }
	if whole(a.file) || whole(b.file) || a.base != b.base {
		return true
	}
	i, j := 0, 0
	for i < len(a.file.Spans) && j < len(b.file.Spans) {
		x, y := a.file.Spans[i], b.file.Spans[j]
		switch {
		case x.End < y.Begin:
			i++
		case y.End < x.Begin:
			j++
		default:
			return true
		}
	}
	return false
}
