package dashboard

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// freshFor is how long an answer serves all who look at the same page.
	freshFor = time.Second
	// idleShare is how much longer than it took an answer is kept: however many pages are
	// open, the pool works for them a tenth of the time.
	idleShare = 9
	// mostAnswers bounds how many are kept. One is as long as a message of the broker.
	mostAnswers = 64
)

// answers keeps answers to requests that change nothing, for a moment: many browsers show
// the same page, and each list of jobs reads all records. A change forgets them.
type answers struct {
	mu   sync.Mutex
	kept map[string]*sharedAnswer
}

// A sharedAnswer is asked for once. Its fields are there when done is closed.
type sharedAnswer struct {
	done  chan struct{}
	value any
	err   error
	asked time.Time // when it was asked for, so what it says is no older
	until time.Time // when it is asked for again
}

func newAnswers() *answers { return &answers{kept: map[string]*sharedAnswer{}} }

// find returns the answer under a key, and whether the caller has to ask for it.
func (a *answers) find(key string, now time.Time) (shared *sharedAnswer, asks bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kept, ok := a.kept[key]; ok && (!isDone(kept) || now.Before(kept.until)) {
		return kept, false
	}
	for other, kept := range a.kept {
		if isDone(kept) && (!now.Before(kept.until) || len(a.kept) >= mostAnswers) {
			delete(a.kept, other)
		}
	}
	a.kept[key] = &sharedAnswer{done: make(chan struct{})}
	return a.kept[key], true
}

func isDone(s *sharedAnswer) bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// forget is for after a change: whoever made it sees what came of it.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.kept)
}

// Look asks for an operation that changes nothing, or takes the answer that another visit
// has got a moment ago. That is of no other rights: each visit is permitted first.
func Look[Q, A any](v *Visit, op operation.Operation[Q, A], question Q) (A, error) {
	var none A
	if err := v.permit(op.Row); err != nil {
		return none, err
	}
	request, err := json.Marshal(question)
	if err != nil {
		return none, err
	}
	return sharing(v, op.Name+" "+string(request), func() (A, error) { return Ask(v, op, question) })
}

// sharing returns what ask returns, or what it has returned to another visit under the
// same key a moment ago. What is shared must not be changed.
func sharing[A any](v *Visit, key string, ask func() (A, error)) (A, error) {
	var none A
	shared, asks := v.s.answers.find(key, time.Now())
	if !asks {
		select {
		case <-shared.done:
		case <-v.Context().Done():
			return none, v.Context().Err()
		}
		if value, ok := shared.value.(A); ok && shared.err == nil {
			v.saw(shared)
			return value, nil
		}
		return ask() // the other browser may just have gone
	}
	shared.asked = time.Now()
	defer close(shared.done)
	value, err := ask()
	shared.value, shared.err = value, err
	shared.until = time.Now().Add(max(freshFor, idleShare*time.Since(shared.asked)))
	if err != nil {
		shared.until = shared.asked
	}
	v.saw(shared)
	return value, err
}

// saw notes how old the page is, and from when on another one would be newer.
func (v *Visit) saw(shared *sharedAnswer) {
	if v.asked.IsZero() || shared.asked.Before(v.asked) {
		v.asked = shared.asked
	}
	if shared.until.After(v.until) {
		v.until = shared.until
	}
}
