// Package schedule says which jobs of a backlog are next.
//
//	waiting ──Next──▶ ready ──(claimed)──▶ running ──Remove──▶
//	   ▲                │                     │
//	   └─────── Set ────┴─────────────────────┘
//
// A job is ready when a worker may claim it, which is in the order in which
// jobs became ready; so only as many are made ready as may soon be claimed,
// and the order is that of [Plan.Next]. It promises, among the jobs of one
// lane that no cap holds back: the owners have their turns one after the
// other, and so have the batches of an owner, however many jobs each has;
// within a batch the job that was submitted first is first. A job's owner is
// its label "owner".
//
// The package holds values only: no I/O, no clock, nothing random.
package schedule

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// OwnerLabel is the label that says whose job it is.
const OwnerLabel = "owner"

// State is where a job stands for a [Plan].
type State uint8

// The states: only waiting jobs are picked, the others count.
const (
	Waiting State = iota
	Ready
	Running
)

// A Plan knows the unfinished jobs of a pool. It keeps few bytes of each: what
// jobs have in common is kept once. Not for use by several goroutines.
type Plan struct {
	caps    Caps
	entries map[string]*entry
	groups  map[kind]*group
	lanes   map[string]*lane
	running map[string]int // by cap
}

// An entry is one job.
type entry struct {
	id    string
	group *group
	state State
}

// A kind is all that a plan sees of a job.
type kind struct{ class, lane, tenant, owner, batch, caps string }

// A group is the jobs that a plan cannot tell apart, but for their ids.
type group struct {
	key     kind
	sample  jobs.Record // what all have in common
	caps    []Cap
	lane    *lane
	jobs    int    // in any state
	waiting int    // of these
	ready   int    // of these, too
	line    line   // these, and some that have left: see Plan.head
	batch   *batch // nil: none waits
}

// New returns an empty plan under some caps.
func New(caps Caps) *Plan {
	return &Plan{
		caps: caps, entries: map[string]*entry{}, groups: map[kind]*group{},
		lanes: map[string]*lane{}, running: map[string]int{},
	}
}

// Set says where a job stands.
func (p *Plan) Set(rec jobs.Record, state State) {
	e := p.entries[rec.ID]
	if e == nil {
		g := p.groupOf(rec)
		e = &entry{id: rec.ID, group: g, state: state}
		p.entries[rec.ID] = e
		g.jobs++
		p.count(e, 1)
		p.enter(e)
		return
	}
	if e.state == state {
		return
	}
	p.count(e, -1)
	e.state = state
	p.count(e, 1)
	p.enter(e)
}

// Remove forgets a job.
func (p *Plan) Remove(id string) {
	e := p.entries[id]
	if e == nil {
		return
	}
	p.count(e, -1)
	delete(p.entries, id)
	// A line that still holds it sees by this that it has left.
	e.state = Running
	if e.group.jobs--; e.group.jobs == 0 {
		delete(p.groups, e.group.key)
	}
}

// Len is how many jobs are in a state.
func (p *Plan) Len(state State) int {
	n := 0
	for _, l := range p.lanes {
		n += l.jobs[state]
	}
	return n
}

// Next makes jobs ready until each lane has as many as depth says or none
// can be, and returns those, in order. What it returns of a job is its id and
// what decides where it waits. Lanes of a higher priority are filled first.
func (p *Plan) Next(depth func(jobs.Record) int) []jobs.Record {
	lanes := slices.SortedFunc(maps.Values(p.lanes), func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.class, b.class))
	})
	var list []jobs.Record
	for _, l := range lanes {
		if l.jobs[Waiting] == 0 {
			if l.jobs[Ready]+l.jobs[Running] == 0 {
				delete(p.lanes, l.class+"."+l.name)
			}
			continue
		}
		for most := depth(l.sample); l.jobs[Ready] < most; {
			e := p.pick(l)
			if e == nil {
				break
			}
			p.count(e, -1)
			e.state = Ready
			p.count(e, 1)
			rec := e.group.sample
			rec.ID = e.id
			list = append(list, rec)
		}
	}
	return list
}

// Running is how many jobs run under a key of a cap.
func (p *Plan) Running(key string) int { return p.running[key] }

// groupOf returns the group of a job, which may be new.
func (p *Plan) groupOf(rec jobs.Record) *group {
	caps := p.caps.Of(rec)
	key := kind{class: rec.Class, lane: rec.Lane, tenant: rec.Tenant, owner: rec.Labels[OwnerLabel], batch: rec.Batch}
	for _, c := range caps {
		key.caps += c.Key + "\x00"
	}
	if g := p.groups[key]; g != nil {
		return g
	}
	sample := jobs.Record{
		Class: rec.Class, Lane: rec.Lane, Tenant: rec.Tenant, Queue: rec.Queue, Needs: rec.Needs, Batch: rec.Batch,
		State: jobs.Pending, Labels: map[string]string{OwnerLabel: rec.Labels[OwnerLabel]},
	}
	place := rec.Class + "." + rec.Lane
	if p.lanes[place] == nil {
		p.lanes[place] = &lane{class: rec.Class, name: rec.Lane, sample: sample, ready: map[string]int{}, owners: map[string]*owner{}}
	}
	g := &group{key: key, sample: sample, caps: caps, lane: p.lanes[place]}
	p.groups[key] = g
	return g
}

// count adds n times a job to all that counts it.
func (p *Plan) count(e *entry, n int) {
	g := e.group
	g.lane.jobs[e.state] += n
	switch e.state {
	case Waiting:
		g.waiting += n
	case Ready:
		g.ready += n
		for _, c := range g.caps {
			add(g.lane.ready, c.Key, n)
		}
	case Running:
		for _, c := range g.caps {
			add(p.running, c.Key, n)
		}
	}
}

func add(m map[string]int, key string, n int) {
	if m[key] += n; m[key] == 0 {
		delete(m, key)
	}
}
