package repocache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// An answer is the reply of a remote, and the time of the request.
type answer struct {
	asked time.Time
	refs  []git.Ref
	head  string
	err   error
}

// answers shares one request to a remote between all waiting callers. A caller gets an
// answer to a request that was sent after the caller came, so it sees every push that
// had ended by then.
type answers struct {
	mu     sync.Mutex
	byName map[string]*asking
}

type asking struct {
	turn    chan struct{}
	waiting int
	last    answer
}

func (a *answers) enter(name string) *asking {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName == nil {
		a.byName = map[string]*asking{}
	}
	q := a.byName[name]
	if q == nil {
		q = &asking{turn: make(chan struct{}, 1)}
		a.byName[name] = q
	}
	q.waiting++
	return q
}

func (a *answers) leave(name string, q *asking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		delete(a.byName, name)
	}
}

func (m *mirror) list(ctx context.Context, ref string) ([]git.Ref, string, error) {
	came := time.Now()
	name := m.source.Key + " " + ref
	q := m.cache.answers.enter(name)
	defer m.cache.answers.leave(name, q)
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	if q.last.asked.After(came) {
		return q.last.refs, q.last.head, q.last.err
	}
	now := answer{asked: time.Now()}
	var names []string
	if ref != "" {
		names = fullNames(ref)
	}
	now.refs, now.head, now.err = m.ask(ctx, names...)
	if ctx.Err() == nil {
		// An error is shared as well: a remote that is down costs all waiting callers
		// one time-out, not one each.
		q.last = now
	}
	return now.refs, now.head, now.err
}

func (m *mirror) ask(ctx context.Context, names ...string) ([]git.Ref, string, error) {
	if err := m.source.CheckReadable(); err != nil {
		return nil, "", err
	}
	return m.source.Remote.List(ctx, m.cache.cfg.Dir, names...)
}

// unreachable blames the remote for err, unless our own context ended or our
// own disk is full.
func (m *mirror) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read %s: %w", m.source.Name, context.Cause(ctx))
	}
	if disk.IsFull(err) {
		return err
	}
	if refused := m.refused(err); refused != nil {
		return refused
	}
	return source.Unreachable(m.source.Name, err)
}

// refused says what is wrong with a repository that other attempts could not read,
// either; nil if err means something else.
func (m *mirror) refused(err error) error {
	if already, ok := errors.AsType[*source.RefusedError](err); ok {
		return already
	}
	switch {
	case errors.Is(err, git.ErrIncomplete):
		return source.Unsupported(m.source.Name, "it is a partial clone that lacks files of the commit; name the repository that it was cloned from, or bring them there with git fetch --refetch --no-filter")
	case errors.Is(err, git.ErrCredentials):
		return source.NoCredentials(m.source.Name, err)
	case errors.Is(err, git.ErrFormat):
		return source.Unsupported(m.source.Name, "%w; a newer git on the worker's host may read it", err)
	}
	return nil
}
