package catalog

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// pruneEvery is how often an [Index] looks for jobs whose records have expired.
const pruneEvery = time.Minute

// An Index knows of each job that is kept what lists and counts are made of. A job costs it
// about 40 bytes, whatever its record holds. Its methods may be called from any goroutine.
type Index struct {
	mu     sync.Mutex
	order  order
	groups []group
	byKey  map[groupKey]uint32
	free   []uint32 // groups that no job is in
	// sessions has the jobs of sessions whose id is not the job's own, by session.
	sessions map[string][]uuid.UUID
	inOther  map[uuid.UUID]string // the sessions of these jobs
	pruned   time.Time
}

// A group is jobs that lists and counts cannot tell apart but by id and time.
type group struct {
	groupKey
	jobs int
}

type groupKey struct {
	queue, batch string
	state        jobs.State
	outcome      jobs.Outcome
	review       jobs.ReviewState
	held         jobs.Reason // why it waits for a model API or a budget; empty: it does not
}

func keyOf(rec jobs.Record) groupKey {
	key := groupKey{rec.Queue, rec.Batch, rec.State, rec.Outcome, rec.Reviewed(), ""}
	if jobs.OnBudget(rec) || rec.State == jobs.Delayed && (rec.Reason == jobs.QuotaWaiting || rec.Reason == jobs.KeyRefused) {
		key.held = rec.Reason
	}
	return key
}

// NewIndex returns an index of no jobs.
func NewIndex() *Index {
	return &Index{byKey: map[groupKey]uint32{}, sessions: map[string][]uuid.UUID{}, inOther: map[uuid.UUID]string{}}
}

// Note takes up a change of a record.
func (x *Index) Note(c record.Change) {
	if c.Gone {
		x.Remove(c.ID)
	} else {
		x.Set(c.Record, c.Expires)
	}
}

// Set says what the record of a job is now, and when the broker will remove it; the zero
// time: it will not.
func (x *Index) Set(rec jobs.Record, expires time.Time) {
	id, err := uuid.Parse(rec.ID)
	if err != nil {
		return // not one of a job: see jobs.IsID
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := item{id: id, submitted: rec.Submitted.UnixNano(), group: x.groupOf(keyOf(rec))}
	if !expires.IsZero() {
		now.expires = uint32(expires.Unix()) // until the year 2106
	}
	x.groups[now.group].jobs++
	if known := x.order.get(id); known != nil {
		x.leave(known.group)
		*known = now
		return
	}
	x.order.insert(now)
	if rec.Session != rec.ID {
		x.sessions[rec.Session] = append(x.sessions[rec.Session], id)
		x.inOther[id] = rec.Session
	}
}

// groupOf returns the number of a group, which may be new.
func (x *Index) groupOf(key groupKey) uint32 {
	if n, ok := x.byKey[key]; ok {
		return n
	}
	if last := len(x.free) - 1; last >= 0 {
		n := x.free[last]
		x.free, x.groups[n], x.byKey[key] = x.free[:last], group{groupKey: key}, n
		return n
	}
	n := uint32(len(x.groups))
	x.groups, x.byKey[key] = append(x.groups, group{groupKey: key}), n
	return n
}

// leave takes a job out of a group.
func (x *Index) leave(n uint32) {
	g := &x.groups[n]
	if g.jobs--; g.jobs == 0 {
		delete(x.byKey, g.groupKey)
		*g = group{}
		x.free = append(x.free, n)
	}
}

// Remove forgets a job, whose record is not kept any more.
func (x *Index) Remove(id string) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(parsed)
}

func (x *Index) remove(id uuid.UUID) {
	known := x.order.get(id)
	if known == nil {
		return
	}
	x.leave(known.group)
	x.order.remove(id)
	if session, ok := x.inOther[id]; ok {
		delete(x.inOther, id)
		rest := slices.DeleteFunc(x.sessions[session], func(other uuid.UUID) bool { return other == id })
		if x.sessions[session] = rest; len(rest) == 0 {
			delete(x.sessions, session)
		}
	}
}

// prune forgets the jobs whose records the broker has removed.
func (x *Index) prune(now time.Time) {
	if now.Sub(x.pruned) < pruneEvery {
		return
	}
	x.pruned = now
	var gone []uuid.UUID
	for i := range x.order.from(uuid.Nil, false) {
		if i.expires != 0 && int64(i.expires) < now.Unix() {
			gone = append(gone, i.id)
		}
	}
	for _, id := range gone {
		x.remove(id)
	}
}

// Len is how many jobs are known.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.order.items
}

// list returns the ids of the jobs that a selection may mean, in order, and whether there
// are more.
func (x *Index) list(s Selection) (ids []string, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prune(time.Now())
	after, err := uuid.Parse(s.After)
	if err != nil {
		after = uuid.Nil
	}
	selected := make([]bool, len(x.groups))
	for n, g := range x.groups {
		selected[n] = g.jobs > 0 && s.matchGroup(g.groupKey)
	}
	since := int64(math.MinInt64)
	if !s.Since.IsZero() {
		since = s.Since.UnixNano()
	}
	for i := range x.candidates(s, after) {
		if !selected[i.group] || i.submitted < since {
			continue
		}
		if len(ids) == s.Limit {
			return ids, true
		}
		ids = append(ids, i.id.String())
	}
	return ids, false
}

// candidates yields the items behind an id, or only those of a session where one is asked
// for.
func (x *Index) candidates(s Selection, after uuid.UUID) func(func(item) bool) {
	if s.Session == "" {
		return x.order.from(after, s.Newest)
	}
	var few order
	add := func(id uuid.UUID) {
		if i := x.order.get(id); i != nil {
			few.insert(*i)
		}
	}
	if own, err := uuid.Parse(s.Session); err == nil && x.inOther[own] == "" {
		add(own)
	}
	for _, id := range x.sessions[s.Session] {
		add(id)
	}
	return few.from(after, s.Newest)
}

// resolve returns the first ids, as many as most, that begin or end with a text, and how
// many there are.
func (x *Index) resolve(text string, most int) (ids []string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prune(time.Now())
	var whole [36]byte
	for i := range x.order.from(uuid.Nil, false) {
		spell(&whole, i.id)
		if !bytes.HasPrefix(whole[:], []byte(text)) && !bytes.HasSuffix(whole[:], []byte(text)) {
			continue
		}
		if n++; n <= most {
			ids = append(ids, string(whole[:]))
		}
	}
	return ids, n
}

// spell writes an id as text, which [uuid.UUID.String] would make anew for each.
func spell(to *[36]byte, id uuid.UUID) {
	hex.Encode(to[:8], id[:4])
	for at, from := 8, 4; from < 10; at, from = at+5, from+2 {
		to[at] = '-'
		hex.Encode(to[at+1:at+5], id[from:from+2])
	}
	to[23] = '-'
	hex.Encode(to[24:], id[10:])
}

// oldest returns when the oldest job of each group was submitted, in nanoseconds.
func (x *Index) oldest() []int64 {
	oldest := make([]int64, len(x.groups))
	for i := range x.order.from(uuid.Nil, false) {
		if oldest[i.group] == 0 || i.submitted < oldest[i.group] {
			oldest[i.group] = i.submitted
		}
	}
	return oldest
}

// queues returns the counts of the queues behind a name, at most [pageNames] of them.
func (x *Index) queues(after string) []operation.Queue {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prune(time.Now())
	t := tally{queues: map[string]*operation.Queue{}}
	for n, at := range x.oldest() {
		if g := x.groups[n]; g.jobs > 0 && g.queue > after {
			t.addQueue(g.groupKey, g.jobs, at)
		}
	}
	list := t.byQueue()
	return list[:min(len(list), pageNames)]
}

// batches returns the counts of the batches behind a name, or of one: at most [pageNames]
// of them.
func (x *Index) batches(one, after string) []operation.Batch {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prune(time.Now())
	t := tally{batches: map[string]*operation.Batch{}}
	for n, at := range x.oldest() {
		if g := x.groups[n]; g.jobs > 0 && g.batch > after && (one == "" || g.batch == one) {
			t.addBatch(g.groupKey, g.jobs, at)
		}
	}
	list := t.byBatch()
	return list[:min(len(list), pageNames)]
}
