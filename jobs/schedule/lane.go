package schedule

import (
	"container/heap"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// A lane is where jobs become ready one behind the other: the jobs of one
// class and one priority.
type lane struct {
	class, name string
	sample      jobs.Record
	jobs        [3]int         // by state
	ready       map[string]int // by cap
	owners      map[string]*owner
	turns       roundRobin[*owner]
}

// An owner has jobs that wait.
type owner struct {
	name    string
	batches map[string]*batch
	turns   roundRobin[*batch]
}

// A batch is an owner's jobs of one batch that wait, in groups. Those that are
// of none are one, too.
type batch struct {
	name   string
	groups []*group
}

// enter puts a waiting job into its line.
func (p *Plan) enter(e *entry) {
	if e.state != Waiting {
		return
	}
	g := e.group
	heap.Push(&g.line, e)
	if g.batch != nil {
		return
	}
	l, whose := g.lane, g.sample.Labels[OwnerLabel]
	o := l.owners[whose]
	if o == nil {
		o = &owner{name: whose, batches: map[string]*batch{}}
		l.owners[whose] = o
		l.turns.add(o)
	}
	b := o.batches[g.sample.Batch]
	if b == nil {
		b = &batch{name: g.sample.Batch}
		o.batches[b.name] = b
		o.turns.add(b)
	}
	b.groups = append(b.groups, g)
	g.batch = b
}

// pick takes the next job of a lane out of its line; nil if none can be ready.
func (p *Plan) pick(l *lane) *entry {
	var found *entry
	l.turns.serve(func(o *owner) (took, empty bool) {
		o.turns.serve(func(b *batch) (took, empty bool) {
			found = p.take(b)
			if len(b.groups) == 0 {
				delete(o.batches, b.name)
			}
			return found != nil, len(b.groups) == 0
		})
		if len(o.batches) == 0 {
			delete(l.owners, o.name)
		}
		return found != nil, len(o.batches) == 0
	})
	return found
}

// take takes the oldest job of a batch that no cap holds back.
func (p *Plan) take(b *batch) *entry {
	var from *group
	for _, g := range b.groups {
		if g.waiting > 0 && !p.full(g) && (from == nil || g.head().id < from.head().id) {
			from = g
		}
	}
	var e *entry
	if from != nil {
		e = from.head()
		heap.Pop(&from.line)
	}
	b.groups = slices.DeleteFunc(b.groups, func(g *group) bool {
		rest := g.waiting
		if g == from {
			rest-- // it is counted until the caller has it
		}
		if rest > 0 {
			return false
		}
		g.line, g.batch = nil, nil
		return true
	})
	return e
}

// full reports whether a cap lets no other job of a group be ready. Jobs that
// are ready in other lanes do not count, because they may never be claimed. If too
// many are ready, the claim decides and sends the rest back.
func (p *Plan) full(g *group) bool {
	return slices.ContainsFunc(g.caps, func(c Cap) bool { return p.running[c.Key]+g.lane.ready[c.Key] >= c.Most })
}

// head is the first in line that is still waiting. There must be one.
func (g *group) head() *entry {
	for g.line[0].state != Waiting {
		heap.Pop(&g.line)
	}
	return g.line[0]
}

// A line is a heap of jobs, the one that was submitted first on top: ids sort
// by the time that they were made.
type line []*entry

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].id < l[j].id }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *line) Push(e any)        { *l = append(*l, e.(*entry)) }
func (l *line) Pop() any {
	last := len(*l) - 1
	e := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return e
}

// A roundRobin is served in turns.
type roundRobin[T comparable] struct {
	items []T
	next  int
}

// add inserts an item, whose turn comes after those of all others.
func (r *roundRobin[T]) add(item T) {
	r.items = slices.Insert(r.items, r.next, item)
	r.next++
}

// serve offers a turn to one item after the other, until one takes it or all
// have declined. An empty item leaves the ring.
func (r *roundRobin[T]) serve(offer func(T) (took, empty bool)) {
	for range len(r.items) {
		if r.next >= len(r.items) {
			r.next = 0
		}
		took, empty := offer(r.items[r.next])
		if empty {
			r.items = slices.Delete(r.items, r.next, r.next+1)
		} else {
			r.next++
		}
		if took {
			return
		}
	}
}
