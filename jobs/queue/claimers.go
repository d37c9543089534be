package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/turnout"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// The lanes are served in the order of their priority, but of the claims that
// one process makes, one in NormalShare begins at the middle lane and one in
// LowShare at the last. That is the bound on how long a stream of better jobs
// can keep a job from its worker; the lanes of several classes share it.
const (
	NormalShare = 8
	LowShare    = 16
)

// pullMost is how many messages one request asks for at most, and inboxSize how many
// may wait in this process until they are read: those of some requests whose answers
// came late.
const (
	pullMost  = 128
	inboxSize = 8 * pullMost
)

// poll is how often a claimer looks without a notification: notifications are not
// stored, and a redelivery sends none.
const poll = 2 * time.Second

// handOut is for how long the broker may keep a request after it has notified of a message:
// it notifies when it has stored one, which is before it hands it out.
const handOut = 20 * time.Millisecond

// claimers are those of one process that want the same jobs. One of them at a
// time asks the broker, for as many jobs as all of them wait for, and hands the
// others theirs. What follows a delivery, each does by itself: no claimer waits
// for the writes of another one.
type claimers struct {
	q              *Queue
	queues, labels []string
	asking         chan struct{} // held by the one that asks; guards what follows
	inbox          *inbox
	classes        []string // that these claimers serve, as of listed
	listed         time.Time
	found          int            // jobs so far
	next           map[string]int // by lane: which class is asked first
	chance         turnout.Chance // that a notification is followed

	mu      sync.Mutex
	waiting []chan delivery // of the others, in the order in which they came
}

func (q *Queue) claimersOf(queues, labels []string) *claimers {
	key := strings.Join(queues, " ") + "; " + strings.Join(labels, " ")
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.claimers[key] == nil {
		q.claimers[key] = &claimers{
			q: q, queues: slices.Clone(queues), labels: slices.Clone(labels), asking: make(chan struct{}, 1), next: map[string]int{},
		}
	}
	return q.claimers[key]
}

// wait returns a message for one claimer. An error says that ctx has ended, or
// that no wait helps.
func (c *claimers) wait(ctx context.Context) (delivery, error) {
	mine := c.join()
	select {
	case d := <-mine:
		return d, nil
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		if d, handed := c.leave(mine); handed {
			// Best effort: without it, the broker offers the job again after the lease.
			_ = c.q.again(d)
		}
		return delivery{}, context.Cause(ctx)
	}
	defer func() { <-c.asking }()
	if d, handed := c.leave(mine); handed {
		return d, nil
	}
	found, err := c.ask(ctx)
	if err != nil {
		return delivery{}, err
	}
	for _, d := range found[1:] {
		if !c.hand(d) {
			_ = c.q.again(d) // as above
		}
	}
	return found[0], nil
}

// join queues one that waits for a message.
func (c *claimers) join() chan delivery {
	mine := make(chan delivery, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, mine)
	return mine
}

// leave ends the wait of one, and returns the message that it was handed meanwhile.
func (c *claimers) leave(mine chan delivery) (d delivery, handed bool) {
	if c.remove(mine) {
		return d, false
	}
	return <-mine, true
}

// remove reports whether one was still waiting.
func (c *claimers) remove(mine chan delivery) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(w chan delivery) bool { return w == mine })
	return len(c.waiting) < n
}

// hand gives a message to the one that has waited the longest, if there is one.
func (c *claimers) hand(d delivery) bool {
	first := c.first()
	if first != nil {
		first <- d // it has room for the one
	}
	return first != nil
}

// first removes the one that has waited the longest; nil: none waits. It gets a message.
func (c *claimers) first() chan delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return nil
	}
	first := c.waiting[0]
	c.waiting = c.waiting[1:]
	return first
}

// wanted is for how many the one that asks does so.
func (c *claimers) wanted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(1+len(c.waiting), pullMost)
}

// ask waits until there is at least one message. The caller holds asking.
func (c *claimers) ask(ctx context.Context) ([]delivery, error) {
	wakes := make(chan *nats.Msg, inboxSize)
	for _, name := range c.queues {
		sub, err := c.q.conn.NC.ChanSubscribe(c.q.names.WakeClass(name), wakes)
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	}
	if err := c.q.readClock(ctx); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	woken := map[string]bool{}
	for missed := 0; ; missed++ {
		found, err := c.look(ctx, woken, missed > 0)
		c.chance.Tell(len(woken) > 0, len(found) > 0)
		if len(found) > 0 || err != nil {
			return found, err
		}
		clear(woken)
		next.Reset(c.lookAgain(missed))
		if err := c.idle(ctx, wakes, next.C, woken); err != nil {
			return nil, err
		}
		if len(woken) > 0 {
			missed = -1
		}
	}
}

// readClock makes sure that this process has read the broker's clock before it
// decides by it.
func (q *Queue) readClock(ctx context.Context) error {
	if q.clock.Known() {
		return nil
	}
	now, err := q.Now(ctx)
	if err == nil {
		q.clock.Note(now, q.cfg.Lease)
	}
	return err
}

// idle waits for a notification that this claimer follows, and notes its lanes, or until it
// is time to look without one.
func (c *claimers) idle(ctx context.Context, wakes <-chan *nats.Msg, look <-chan time.Time, woken map[string]bool) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case msg := <-wakes:
			if c.chance.Answer() {
				c.drainWakes(msg, wakes, woken)
				return nil
			}
		case <-look:
			return nil
		}
	}
}

// drainWakes notes the lanes of all notifications that have come.
func (c *claimers) drainWakes(msg *nats.Msg, wakes <-chan *nats.Msg, woken map[string]bool) {
	for {
		rest := strings.TrimPrefix(msg.Subject, strings.TrimSuffix(msg.Sub.Subject, ">"))
		lane, _, _ := strings.Cut(rest, ".")
		woken[lane] = true
		select {
		case msg = <-wakes:
		default:
			return
		}
	}
}

// lookAgain is how long a claimer sleeps that has found nothing so many times since
// the notification: the message may be of a class that it serves among others. Where many
// wait, most of them leave that to others.
func (c *claimers) lookAgain(missed int) time.Duration {
	echoes := []time.Duration{3 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}
	if missed < len(echoes) && c.chance.Answer() {
		return echoes[missed]
	}
	return min(poll, c.q.cfg.Lease)
}

// look takes the messages that are there, at most as many as are wanted. Woken are the
// lanes in which there should be one; the others were empty just now. None: look into all.
func (c *claimers) look(ctx context.Context, woken map[string]bool, idle bool) ([]delivery, error) {
	// A busy claimer need not look for new classes each time.
	if idle || time.Since(c.listed) > poll || len(c.classes) == 0 {
		classes, err := c.q.lanes.Served(ctx, c.queues, c.labels)
		if errors.Is(err, jobs.ErrForbidden) {
			return nil, fmt.Errorf("claim: %w", err)
		}
		if err != nil {
			return nil, c.closed() // looked again soon, as if nothing were there
		}
		c.classes, c.listed = classes, time.Now()
	}
	var found []delivery
	empty := map[string]bool{} // of the lanes
	for _, share := range c.shares(c.wanted()) {
		for _, lane := range share.lanes {
			if share.n == 0 || empty[lane] || len(woken) > 0 && !woken[lane] {
				continue
			}
			more, err := c.lookInto(ctx, lane, share.n, woken[lane])
			if found = append(found, more...); err != nil {
				return found, err
			}
			empty[lane] = len(more) < share.n
			share.n -= len(more)
		}
	}
	c.found += len(found)
	if len(found) == 0 {
		return nil, c.closed()
	}
	// Once for all of them, while each reads its record; where it fails, each tries again.
	caps := soon(func() (schedule.Caps, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.Patience)
		defer cancel()
		return c.q.Permits().Caps(ctx)
	})
	for i := range found {
		found[i].caps = caps
	}
	return found, nil
}

// A share is how many of the next jobs are looked for in the lanes in one order.
type share struct {
	lanes []string
	n     int
}

// shares divides the next n jobs.
func (c *claimers) shares(n int) []share {
	high, normal, low := subject.Lanes[0], subject.Lanes[1], subject.Lanes[2]
	all := []share{{lanes: []string{low, high, normal}}, {lanes: []string{normal, high, low}}, {lanes: subject.Lanes}}
	for i := range n {
		switch at := c.found + i; {
		case at%LowShare == LowShare-1:
			all[0].n++
		case at%NormalShare == NormalShare/2-1:
			all[1].n++
		default:
			all[2].n++
		}
	}
	return slices.DeleteFunc(all, func(s share) bool { return s.n == 0 })
}

// lookInto takes up to n messages of a lane from the classes, by turns: the one after
// the last that had a job is asked first, so that a full one does not starve the others.
// Of a lane that was woken it takes one.
func (c *claimers) lookInto(ctx context.Context, lane string, n int, woken bool) ([]delivery, error) {
	var found []delivery
	first, count := c.next[lane], len(c.classes)
	if woken = woken && count == 1; woken { // else it may be any of them
		n = 1 // the broker keeps a request until it has as many
	}
	for i := range count {
		at, left := (first+i)%count, count-i
		got, err := c.pull(ctx, request{c.classes[at], lane, (n - len(found) + left - 1) / left, woken})
		if len(got) > 0 {
			c.next[lane] = (at + 1) % count
		}
		if found = append(found, got...); err != nil || len(found) == n {
			return found, err
		}
	}
	return found, nil
}

func (c *claimers) closed() error {
	if c.q.conn.NC.IsClosed() {
		return fmt.Errorf("claim: %w", c.q.conn.Closed())
	}
	return nil
}

// A delivery is a queue message that the broker has handed to this process.
type delivery struct {
	class, lane string
	subject     string
	reply       string
	again       bool                          // it was handed out before
	caps        func() (schedule.Caps, error) // as they were since; nil: unknown
	spec        func() (jobs.Job, error)      // of the job, which take begins to read
}

// soon begins to read, and returns what waits for that.
func soon[T any](read func() (T, error)) func() (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = read()
	}()
	return func() (T, error) {
		<-done
		return value, err
	}
}

// A request asks for up to n messages of a lane. Woken says that there should be one.
type request struct {
	class, lane string
	n           int
	woken       bool
}

// pull asks for the messages that are there; none where the lane is empty.
// That the lane does not exist yet, or that the broker is away, is the same as that it is
// empty. An error says that this client's role may not claim, and no wait helps.
func (c *claimers) pull(ctx context.Context, r request) ([]delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	// A request to a consumer that does not exist is never answered, so the
	// lanes of a queue without jobs would cost a claimer its whole patience.
	if _, err := c.q.lanes.Lease(ctx, r.class, r.lane); errors.Is(err, jobs.ErrForbidden) {
		return nil, fmt.Errorf("claim: %w", err)
	} else if err != nil {
		return nil, nil
	}
	if c.inbox == nil {
		inbox, err := c.openInbox()
		if err != nil {
			return nil, nil
		}
		c.inbox = inbox
	}
	next := map[string]any{"batch": r.n, "no_wait": true}
	if r.woken {
		next["expires"] = handOut
	}
	body, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	verb := c.q.conn.API("CONSUMER.MSG.NEXT." + subject.QueueStream(r.class, r.lane) + "." + subject.Consumer)
	reply := c.inbox.reply()
	if err := c.q.conn.NC.PublishRequest(verb, reply, body); err != nil {
		return nil, nil
	}
	var found []delivery
	for len(found) < r.n {
		select {
		case <-ctx.Done():
			return found, nil
		case msg := <-c.inbox.messages:
			if d, ok := c.received(msg, r); ok {
				found = append(found, d)
			} else if msg.Subject == reply {
				return found, nil // there are no more
			}
		}
	}
	return found, nil
}

// An inbox is where the broker sends the messages that these claimers ask for. It stays
// open: a message that comes after its request was given up is taken by the next one.
type inbox struct {
	subject  string
	messages chan *nats.Msg
	requests int
}

func (c *claimers) openInbox() (*inbox, error) {
	in := &inbox{subject: c.q.conn.NC.NewInbox(), messages: make(chan *nats.Msg, inboxSize)}
	_, err := c.q.conn.NC.ChanSubscribe(in.subject+".*", in.messages)
	return in, err
}

// reply is where the next request is answered. A message comes with the subject that it
// was published to, but what the broker says about a request comes with this one.
func (in *inbox) reply() string {
	in.requests++
	return in.subject + "." + strconv.Itoa(in.requests)
}

// received returns the delivery that a message of an inbox is, if it is one. It may be of
// another lane than the one that was asked last. One whose subject is not a job's is
// refused by what decides about it.
func (c *claimers) received(msg *nats.Msg, r request) (delivery, bool) {
	if msg.Header.Get("Status") != "" || msg.Reply == "" {
		return delivery{}, false
	}
	d := delivery{class: r.class, lane: r.lane, subject: msg.Subject, reply: msg.Reply}
	if class, lane, _, _, err := c.q.names.ParseQueue(msg.Subject); err == nil {
		d.class, d.lane = class, lane
	}
	if meta, err := msg.Metadata(); err == nil {
		d.again = meta.NumDelivered > 1
	}
	return d, true
}
