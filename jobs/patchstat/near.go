package patchstat

import (
	"maps"
	"path"
	"slices"
)

const (
	// maxNear bounds the comparison of those whose merges are tried.
	maxNear = 1_000_000
	// maxDepth bounds the directories that are looked at above each file.
	maxDepth = 100
)

// Near lists all pairs of patches whose merge may stop at a conflict, those with conflicts by their lines
// first: they change the same files, one has a file where the other has a directory, or one adds a file
// to a directory out of which the other moves files. All is false if there were too many to compare.
func (o *Overlaps) Near() (pairs []Pair, all bool) {
	moved := o.moved()
	var also []meeting
	for _, name := range slices.Sorted(maps.Keys(o.byPath)) {
		for _, dir := range above(name) {
			for _, b := range o.byPath[name] {
				for _, a := range o.byPath[dir] {
					also = append(also, meeting{dir, a, b, true})
				}
				if b.file.New || b.file.From != "" {
					for _, a := range moved[dir] {
						also = append(also, meeting{name, a, b, false})
					}
				}
				if len(also) > maxPairs {
					pairs, _ = o.compare(maxNear, also)
					return pairs, false
				}
			}
		}
	}
	return o.compare(maxNear, also)
}

// moved are the patches that move files out of each directory. Where a patch does not say so, a file is
// moved that is deleted and added with the same name in another directory.
func (o *Overlaps) moved() map[string][]touch {
	type added struct{ item, name string }
	in := map[added]string{}
	for name, touches := range o.byPath {
		for _, t := range touches {
			if t.file.New {
				in[added{t.item, path.Base(name)}] = path.Dir(name)
			}
		}
	}
	moved := map[string][]touch{}
	for _, name := range slices.Sorted(maps.Keys(o.byPath)) {
		dir := path.Dir(name)
		for _, t := range o.byPath[name] {
			to, again := in[added{t.item, path.Base(name)}]
			from := t.file.Whole && !t.file.Deleted // the old name of one that was renamed
			if from || t.file.Deleted && again && to != dir {
				if !slices.ContainsFunc(moved[dir], func(other touch) bool { return other.item == t.item }) {
					moved[dir] = append(moved[dir], t)
				}
			}
		}
	}
	return moved
}

// above are the directories above a file, the top first.
func above(name string) (dirs []string) {
	for i := range len(name) {
		if name[i] == '/' && len(dirs) < maxDepth {
			dirs = append(dirs, name[:i])
		}
	}
	return dirs
}
