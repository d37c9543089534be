package policy

import (
	"context"
	"time"
)

// A Question is about something that is on no list.
type Question struct {
	Kind string // KindHost, KindRead or KindWrite
	What string // "registry.example:443", "/opt/node"
}

// maxQuestions bounds what one jail may ask: a program that goes through names
// must not keep a person at the keyboard.
const maxQuestions = 50

// An Asker passes questions on, one at a time, and remembers the answers. No
// answer in time is a no.
type Asker struct {
	ask   func(ctx context.Context, q Question) bool
	limit time.Duration

	turn    chan struct{} // held by the asking goroutine; guards what follows
	answers map[Question]bool
}

// NewAsker returns an Asker of one jail. The function has to return when its
// context ends; a yes after that is a no. A limit of zero is 30 seconds for
// each question.
func NewAsker(ask func(ctx context.Context, q Question) bool, limit time.Duration) *Asker {
	if limit == 0 {
		limit = 30 * time.Second
	}
	return &Asker{ask: ask, limit: limit, turn: make(chan struct{}, 1), answers: map[Question]bool{}}
}

// Allows reports whether the answer is yes. Its time counts from when it is
// this question's turn. A nil Asker allows nothing.
func (a *Asker) Allows(ctx context.Context, q Question) bool {
	if a == nil {
		return false
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return false
	}
	if yes, asked := a.answers[q]; asked || len(a.answers) >= maxQuestions || ctx.Err() != nil {
		return yes
	}
	asking, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	yes := a.ask(asking, q) && asking.Err() == nil
	a.answers[q] = yes
	return yes
}
