package wire

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/penstock-run/penstock/jobs"

	"github.com/nats-io/nats.go"
)

// refusedPublish finds the subject in the broker's refusal.
var refusedPublish = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Publish to "([^"]+)"`) })

// refusals tells the callers whose requests the broker refuses. The broker does
// not answer such a request; it reports an error of the connection instead.
type refusals struct {
	role jobs.Role

	mu      sync.Mutex
	next    int
	waiting map[string]map[int]context.CancelCauseFunc // by subject
}

// listening guards the handlers of all connections while one is replaced: the
// parts of an installation are opened at once, over one connection, and one that
// took the handler from another would keep it from hearing any refusal.
var listening sync.Mutex

// listen hears the connection's errors, and hands them on.
func (r *refusals) listen(nc *nats.Conn) {
	listening.Lock()
	defer listening.Unlock()
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		r.hear(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
}

func (r *refusals) hear(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	found := refusedPublish().FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.waiting[found[1]] {
		end(&jobs.ForbiddenError{Role: r.role, Subject: found[1]})
	}
}

// watch returns a context that ends when a publish to the subject is refused.
func (r *refusals) watch(ctx context.Context, subject string) (watched context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[subject] == nil {
		r.waiting[subject] = map[int]context.CancelCauseFunc{}
	}
	r.next++
	id := r.next
	r.waiting[subject][id] = end
	return ctx, func() {
		end(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.waiting[subject], id); len(r.waiting[subject]) == 0 {
			delete(r.waiting, subject)
		}
	}
}

// refusal returns why ctx ended, where that is a refusal or a lost connection, else err.
func refusal(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, jobs.ErrForbidden) || errors.Is(cause, nats.ErrDisconnected)) {
		return cause
	}
	return err
}
