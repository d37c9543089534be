package queue

import "github.com/penstock-run/penstock/jobs/internal/subject"

// The lanes are served in the order of their priority, but of the claims that
// one process makes, one in NormalShare begins at the middle lane and one in
// LowShare at the last. That is the bound on how long a stream of better jobs
// can keep a job from its worker; the lanes of several classes share it.
const (
	NormalShare = 8
	LowShare    = 16
)

// A turn is shared by the claimers of one process that want the same: which of
// them may look, and what has been found so far. The claimer whose turn it is
// owns it.
type turn struct {
	busy  chan struct{}
	found int            // claims so far
	next  map[string]int // by lane: which class is asked first
}

// lanes are those to look into, in order.
func (t *turn) lanes() []string {
	high, normal, low := subject.Lanes[0], subject.Lanes[1], subject.Lanes[2]
	switch {
	case t.found%LowShare == LowShare-1:
		return []string{low, high, normal}
	case t.found%NormalShare == NormalShare/2-1:
		return []string{normal, high, low}
	}
	return subject.Lanes
}

// claimed notes that the i-th of n classes of a lane had a job: the next one
// is asked first then, so that a full one does not starve the others.
func (t *turn) claimed(lane string, i, n int) {
	t.found++
	t.next[lane] = (i + 1) % n
}

func (q *Queue) turn(key string) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns[key] == nil {
		q.turns[key] = &turn{busy: make(chan struct{}, 1), next: map[string]int{}}
	}
	return q.turns[key]
}
