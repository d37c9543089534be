package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// askEvery is how often the record of a job is read at most, for all that follow the job
// through one Log: events that come say that it goes on.
const askEvery = time.Second

// questions are whether jobs go on, which their followers share. What one follower has
// learned spares the others the same question, but no follower ends by it: each reads the
// record itself first, since a job may be brought back meanwhile.
type questions struct {
	mu   sync.Mutex
	jobs map[string]*question
}

// A question is whether one job goes on.
type question struct {
	followers int
	asked     time.Time // when it was asked last; zero: without an answer
	over      bool      // the last answer is that it does not
}

// join adds a follower of a job, until it leaves.
func (q *questions) join(job string) (leave func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.jobs == nil {
		q.jobs = map[string]*question{}
	}
	if q.jobs[job] == nil {
		q.jobs[job] = &question{}
	}
	q.jobs[job].followers++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.jobs[job].followers--; q.jobs[job].followers == 0 {
			delete(q.jobs, job)
		}
	}
}

// open reports whether a follower that has joined has to ask, and takes it that it does.
func (q *questions) open(job string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	about := q.jobs[job]
	if !about.over && time.Since(about.asked) < askEvery {
		return false
	}
	about.asked = time.Now()
	return true
}

// answered keeps what a follower was told. An error leaves the question open.
func (q *questions) answered(job string, over bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	about := q.jobs[job]
	if about.over = over; err != nil {
		about.asked = time.Time{}
	}
}

// A silentEnd is the end of a job whose terminal event is not in the log. The
// event is written after the record, so it is given a moment to arrive.
type silentEnd struct {
	job    string
	record func(context.Context) (jobs.Record, error) // nil: it is not looked for
	shared *questions
	asked  time.Time // when the record was last read
	at     time.Time // when the job finished, as the record said last
	seen   time.Time // when the record was first seen to say so
}

const (
	arrives = 10 * time.Second // how long the terminal event may take behind the record
	settled = 30 * time.Second // a record that finished so long ago has no event on its way
)

// reached reports whether the job has finished and no event will say so. An error
// that is not a missing record means that the broker is away: then the following
// goes on.
func (s *silentEnd) reached(ctx context.Context) bool {
	if s.record == nil || time.Since(s.asked) < askEvery || !s.shared.open(s.job) {
		return false
	}
	rec, err := s.record(ctx)
	s.asked = time.Now()
	if errors.Is(err, jobs.ErrNotFound) {
		s.shared.answered(s.job, true, nil)
		return true
	}
	s.shared.answered(s.job, err == nil && rec.State == jobs.Finished, err)
	if err != nil || rec.State != jobs.Finished {
		s.seen = time.Time{}
		return false
	}
	at := time.Time{}
	if rec.Finished != nil {
		at = *rec.Finished
	}
	// It may have been brought back and have finished again while others asked.
	if s.seen.IsZero() || !at.Equal(s.at) {
		s.at, s.seen = at, time.Now()
	}
	// Hosts disagree about the time, so a job that seems to have finished in the
	// future is judged by this process's clock alone.
	return !at.IsZero() && time.Since(at) > settled || time.Since(s.seen) >= arrives
}
