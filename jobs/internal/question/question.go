// Package question carries questions between the processes of a pool: any of them asks, and
// the leader answers what it knows.
package question

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

const (
	// askFor is how long an asker waits. A leader that takes longer is too busy, or gone,
	// and the asker helps itself.
	askFor = 2 * wire.Patience
	// answerWithin is how long the leader takes at most.
	answerWithin = askFor - time.Second
	// answersAtOnce is how many questions of one kind the leader answers at a time.
	answersAtOnce = 64
	// headRoom is left for the headers of an answer.
	headRoom = 8 << 10
	// refusedHeader says that the leader has no answer.
	refusedHeader = "Penstock-Refused"
)

// Resolve is the kind of the question which jobs an abbreviated id means. It is the
// beginning or the end of theirs, as text; the answer is [Resolved].
const Resolve = "resolve"

// Resolved has the ids that begin or end with an abbreviated one, in their order: as many
// as a person wants to read, of so many.
type Resolved struct {
	IDs   []string `json:"ids"`
	Count int      `json:"count"`
}

// ErrUnanswered says that no leader has answered.
var ErrUnanswered = errors.New("no leader has answered")

// An Answer answers questions of one kind.
type Answer func(ctx context.Context, question []byte) (any, error)

// A Bus is where questions are asked and answered.
type Bus struct {
	Conn  *wire.Conn
	Names subject.Names
}

// Ask asks the leader, and decodes its answer. Without one the error is [ErrUnanswered].
func (b Bus) Ask(ctx context.Context, kind string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	reply, err := b.Conn.Request(ctx, &nats.Msg{Subject: b.Names.Question(kind), Data: body})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	if reply.Header.Get(refusedHeader) != "" {
		return ErrUnanswered
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return nil
}

// Serve answers questions, by their kind, until ctx ends. It is for the leader alone.
func (b Bus) Serve(ctx context.Context, answers map[string]Answer) error {
	var under sync.WaitGroup
	defer under.Wait()
	for kind, do := range answers {
		slots := make(chan struct{}, answersAtOnce)
		sub, err := b.Conn.NC.Subscribe(b.Names.Question(kind), func(m *nats.Msg) {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			under.Go(func() {
				defer func() { <-slots }()
				b.answer(ctx, m, do)
			})
		})
		if err != nil {
			return fmt.Errorf("answer questions: %w", err)
		}
		defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	}
	<-ctx.Done()
	return nil
}

// answer answers one question. An asker that has gone gets no answer.
func (b Bus) answer(ctx context.Context, m *nats.Msg, do Answer) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	reply := nats.NewMsg(m.Reply)
	answer, err := do(ctx, m.Data)
	if err == nil {
		reply.Data, err = json.Marshal(answer)
	}
	if err != nil || int64(len(reply.Data)) > b.Conn.NC.MaxPayload()-headRoom {
		reply.Data = nil
		reply.Header.Set(refusedHeader, "1")
	}
	_ = b.Conn.NC.PublishMsg(reply)
}
