package schedule

import (
	"iter"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// A Group is the jobs that a plan cannot tell apart, but for their ids.
type Group struct {
	Sample  jobs.Record // what all have in common
	Caps    []Cap       // that bound each of them
	Pending int         // how many wait or are ready
}

// Groups yields the jobs of the plan, in groups.
func (p *Plan) Groups() iter.Seq[Group] {
	return func(yield func(Group) bool) {
		for _, g := range p.groups {
			if !yield(g.public()) {
				return
			}
		}
	}
}

func (g *group) public() Group { return Group{g.sample, g.caps, g.waiting + g.ready} }

// Find returns the group and the state of a job, if the plan has it.
func (p *Plan) Find(id string) (Group, State, bool) {
	e := p.entries[id]
	if e == nil {
		return Group{}, 0, false
	}
	return e.group.public(), e.state, true
}

// Full reports whether as many jobs as a cap allows run already.
func (p *Plan) Full(g Group) bool {
	return slices.ContainsFunc(g.Caps, func(c Cap) bool { return p.running[c.Key] >= c.Most })
}

// Waiting is how many jobs of a lane wait. Those of groups that skip names do not count.
func (p *Plan) Waiting(class, name string, skip func(Group) bool) int {
	n := 0
	for _, g := range p.groups {
		if g.key.class == class && g.key.lane == name && !skip(g.public()) {
			n += g.waiting
		}
	}
	return n
}

// Before is how many jobs become ready before one that waits, of those of its lane that wait,
// too: as [Plan.Next] would choose them if no cap held any of them back. Those of groups that
// skip names do not count. Of these, by cap, it says how many at most each cap counts.
func (p *Plan) Before(id string, skip func(Group) bool) (before int, capped map[string]int) {
	capped = map[string]int{}
	e := p.entries[id]
	if e == nil || e.state != Waiting || e.group.batch == nil {
		return 0, capped
	}
	mine := e.group.batch
	l := e.group.lane
	owner := l.owners[e.group.sample.Labels[OwnerLabel]]
	note := func(b *batch, most int) {
		for _, g := range b.groups {
			if !skip(g.public()) {
				for _, c := range g.caps {
					capped[c.Key] += min(g.waiting, most)
				}
			}
		}
	}
	older := 0 // in the job's own batch
	for _, g := range mine.groups {
		if g != e.group && skip(g.public()) {
			continue
		}
		n := 0
		for _, other := range g.line {
			if other.state == Waiting && other.id < id {
				n++
			}
		}
		for _, c := range g.caps {
			capped[c.Key] += n
		}
		older += n
	}
	// As many turns as the job's batch has had, each other batch of its owner has had, and
	// one more if it is before it in the round; likewise the owners.
	turns := older
	for b, first := range owner.turns.others(mine) {
		n := min(b.waiting(skip), older+first)
		note(b, older+first)
		turns += n
	}
	before = turns
	for o, first := range l.turns.others(owner) {
		n := 0
		for _, b := range o.turns.items {
			n += b.waiting(skip)
			note(b, turns+first)
		}
		before += min(n, turns+first)
	}
	return before, capped
}

// waiting is how many jobs of a batch wait.
func (b *batch) waiting(skip func(Group) bool) int {
	n := 0
	for _, g := range b.groups {
		if !skip(g.public()) {
			n += g.waiting
		}
	}
	return n
}

// others yields all items but one, and 1 with those whose turn in the round is before that
// one's, else 0.
func (r *roundRobin[T]) others(but T) iter.Seq2[T, int] {
	return func(yield func(T, int) bool) {
		first := 1
		for i := range r.items {
			item := r.items[(r.next+i)%len(r.items)]
			if item == but {
				first = 0
				continue
			}
			if !yield(item, first) {
				return
			}
		}
	}
}
