package deliver

import (
	"container/heap"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs/webhook"
)

// A line is the events of a job that wait, as its feed has it in memory.
type line struct {
	webhook.Line
	live   bool      // the bucket has events of it
	saveAt time.Time // when it is to be stored; zero: the bucket has it as it is
	busy   bool      // a task works on it
	due    time.Time // for the next task
	place  int       // among those that are due; -1: it is not
	// asked are the events of the line that clients want delivered now. The bucket has
	// these requests until an attempt was made.
	asked []uint64
}

// plan says when the next task is due.
func (l *line) plan() {
	l.due = l.Next
	first := len(l.Events) == 0 || l.Asked() && !l.live // nothing is tried before it is stored
	if !l.saveAt.IsZero() && (first || l.saveAt.Before(l.due)) {
		l.due = l.saveAt
	}
}

func (l *line) has(seq uint64) bool {
	return slices.ContainsFunc(l.Events, func(p webhook.Place) bool { return p.Seq == seq })
}

// dueLines are the lines on which no task works, by when the next one is due.
type dueLines []*line

// Len, Less, Swap, Push and Pop are of heap.Interface.
func (d dueLines) Len() int { return len(d) }

// Less says: see Len.
func (d dueLines) Less(i, j int) bool { return d[i].due.Before(d[j].due) }

// Swap says: see Len.
func (d dueLines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push says: see Len.
func (d *dueLines) Push(v any) {
	l, _ := v.(*line)
	l.place = len(*d)
	*d = append(*d, l)
}

// Pop says: see Len.
func (d *dueLines) Pop() any {
	last := len(*d) - 1
	l := (*d)[last]
	(*d)[last], *d, l.place = nil, (*d)[:last], -1
	return l
}

// put plans a line anew.
func (d *dueLines) put(l *line) {
	if l.plan(); l.place >= 0 {
		heap.Fix(d, l.place)
		return
	}
	heap.Push(d, l)
}

// take returns the next line that is due at a time.
func (d *dueLines) take(now time.Time) *line {
	if len(*d) == 0 || (*d)[0].due.After(now) {
		return nil
	}
	l, _ := heap.Pop(d).(*line)
	return l
}

// wait is how long it takes until a line is due.
func (d dueLines) wait(now time.Time) time.Duration {
	if len(d) == 0 {
		return time.Hour
	}
	return max(0, d[0].due.Sub(now))
}
