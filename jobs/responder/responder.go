// Package responder answers the requests of a pool's operations on the bus, as a micro
// service of NATS: those about the same thing one after the other, all others concurrently.
package responder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// verbLimit bounds how long one request is answered.
	verbLimit = 15 * time.Second
	// verbsAtOnce is how many requests of one verb are answered at a time.
	verbsAtOnce = 64
	// idleAtOnce is the same for those that wait, for something to happen or for a
	// worker, which may be stopped: they cost little, and one worker has a few.
	idleAtOnce = 1024
	// orderedWaiting is how many requests about one thing may wait.
	orderedWaiting = 256
	// headRoom is left for the headers of an answer.
	headRoom = 8 << 10
)

// A Handler answers the requests of one operation: those about the same thing one
// after the other, all others concurrently. It sends what Do returns as JSON.
type Handler struct {
	operation.Row
	Do func(ctx context.Context, call Call) (any, error)
}

// A Call is one request.
type Call struct {
	Request []byte
	By      string    // the sender's name for itself; empty: unsaid
	Who     string    // the sender of a request that was passed on; empty: By
	Via     string    // the interface that has passed the request on; empty: none
	Role    jobs.Role // that the sender has proved there; empty: unsaid
	JobID   string    // that the new job is to have, as it was written; empty: any
	Trace   jobs.Trace
	Room    int // how many bytes of an answer a message holds
}

// Serve answers requests to <prefix>.api.<name> until ctx
// ends. Several may serve at the same time: a request goes to one of them.
func Serve(ctx context.Context, nc *nats.Conn, names subject.Names, handlers []Handler) error {
	service, err := micro.AddService(nc, micro.Config{
		Name: "penstock", Version: "1.0.0", Description: "jobs of a pool of coding agents",
	})
	if err != nil {
		return fmt.Errorf("serve the requests of the bus: %w", err)
	}
	var under sync.WaitGroup
	defer under.Wait()
	for _, handler := range handlers {
		a := &answerer{handler: handler, nc: nc, under: &under, slots: make(chan struct{}, verbsAtOnce), waiting: map[string][]micro.Request{}}
		if handler.About != nil || handler.Waits {
			a.slots = make(chan struct{}, idleAtOnce)
		}
		take := micro.HandlerFunc(func(r micro.Request) { a.take(ctx, r) })
		if err = service.AddEndpoint(handler.Name, take, micro.WithEndpointSubject(names.API(handler.Name))); err != nil {
			break
		}
	}
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, service.Stop())
}

// An answerer answers the requests of one operation.
type answerer struct {
	handler Handler
	nc      *nats.Conn
	under   *sync.WaitGroup
	slots   chan struct{}

	mu      sync.Mutex
	waiting map[string][]micro.Request // by what they are about, while one is answered
}

// take is called for one request after the other. While as many are answered as
// may be, the next ones wait in the connection.
func (a *answerer) take(ctx context.Context, r micro.Request) {
	about := ""
	if a.handler.About != nil {
		about = a.handler.About(r.Data())
	}
	if about != "" && a.behind(about, r) {
		return
	}
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	a.under.Go(func() {
		defer func() { <-a.slots }()
		for more := true; more; r, more = a.next(about) {
			a.reply(ctx, r)
		}
	})
}

// behind reports whether a request is left to the goroutine that answers another
// one about the same thing.
func (a *answerer) behind(about string, r micro.Request) bool {
	a.mu.Lock()
	list, busy := a.waiting[about]
	full := len(list) >= orderedWaiting
	switch {
	case !busy:
		a.waiting[about] = nil
	case !full:
		a.waiting[about] = append(list, r)
	}
	a.mu.Unlock()
	if busy && full {
		a.refuse(r, refusal(jobs.CodeBusy, "%d requests about %s wait already: ask again later", orderedWaiting, about))
	}
	return busy
}

// next returns the next request about the same thing, if one waits.
func (a *answerer) next(about string) (micro.Request, bool) {
	if about == "" {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.waiting[about]
	if len(list) == 0 {
		delete(a.waiting, about)
		return nil, false
	}
	a.waiting[about] = list[1:]
	return list[0], true
}

func (a *answerer) reply(ctx context.Context, r micro.Request) {
	ctx, cancel := context.WithTimeout(ctx, verbLimit)
	defer cancel()
	answer, err := a.handler.Do(ctx, Call{Request: r.Data(), By: caller(r), Who: word(r, operation.WhoHeader), Via: word(r, operation.ViaHeader), Role: jobs.Role(word(r, operation.RoleHeader)), JobID: r.Headers().Get(operation.JobIDHeader), Trace: jobs.TraceOf(r.Headers()), Room: a.room()})
	if err != nil {
		a.refuse(r, operation.Refuse(err))
		return
	}
	body, err := json.Marshal(answer)
	switch {
	case err != nil:
		a.refuse(r, operation.Refuse(fmt.Errorf("write the answer: %w", err)))
	case len(body) > a.room():
		a.refuse(r, refusal(jobs.CodeTooLarge,
			"the answer has %d bytes, and a message of this broker at most %d: ask for less, or raise its max_payload", len(body), a.nc.MaxPayload()))
	default:
		a.send(r, nil, body)
	}
}

func (a *answerer) room() int { return int(a.nc.MaxPayload()) - headRoom }

// refuse sends a refusal, in the form of every micro service. One that names
// more fields than a message holds is sent without.
func (a *answerer) refuse(r micro.Request, refused operation.Refusal) {
	const most = 4 << 10 // it is in the headers, too
	if len(refused.Error.Message) > most {
		refused.Error.Message = refused.Error.Message[:most] + "…"
	}
	body, _ := json.Marshal(refused) // strings only
	if len(body) > a.room() {
		refused.Error.Fields = nil
		body, _ = json.Marshal(refused)
	}
	a.send(r, nats.Header{micro.ErrorHeader: {refused.Error.Message}, micro.ErrorCodeHeader: {string(refused.Error.Code)}}, body)
}

// send answers. A requester that has gone gets no answer. send does not use the
// service's own means, which must not be used after its handler returns.
func (a *answerer) send(r micro.Request, header nats.Header, body []byte) {
	if r.Reply() != "" {
		_ = a.nc.PublishMsg(&nats.Msg{Subject: r.Reply(), Header: header, Data: body})
	}
}

func refusal(code jobs.ErrorCode, format string, args ...any) operation.Refusal {
	return operation.Refuse(&jobs.CodedError{Code: code, Message: fmt.Sprintf(format, args...)})
}

// caller returns the name that a request gives for its sender. Others will read it.
func caller(r micro.Request) string { return word(r, operation.CallerHeader) }

// word returns a header that has to be a name; anything else is none.
func word(r micro.Request, header string) string {
	text := r.Headers().Get(header)
	if jobs.CheckToken("header", text) != nil {
		return ""
	}
	return text
}
