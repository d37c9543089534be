package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// decideWithin bounds what follows a delivery, also when the claimer's context has ended
// meanwhile.
const decideWithin = 5 * time.Second

// beginWithin bounds the write that begins an attempt. Given up unanswered, it could still come to
// pass, and the job would wait for the end of a lease that no worker keeps; so it has a time of its
// own: half a lease, within bounds.
func beginWithin(lease time.Duration) time.Duration {
	return min(max(decideWithin, lease/2), 6*decideWithin)
}

// capAgain is when a job that found its cap full is offered again. As a rule no
// such job is offered: the leader admits only as many as the cap allows.
const capAgain = time.Second

// Claim waits for a job in one of the queues and takes its lease. Jobs that
// need labels are claimed if all of them are among those given. The lanes
// are served in the order of their priority, as far as the broker has counted
// what it has just stored, but for some claims that begin at a lower one; see
// [delivery.LowShare]. One of the claimers of a process asks for all of them, so that an idle host
// asks once however many slots it has. Claim outlasts an absence of the
// broker; it ends with ctx. A client whose role may not claim gets a
// [jobs.ForbiddenError] at once.
func (q *Queue) Claim(ctx context.Context, worker string, queues []string, labels ...string) (*Claim, error) {
	for _, name := range queues {
		if err := jobs.CheckToken("queue", name); err != nil {
			return nil, err
		}
		if _, needs := subject.SplitClass(name); len(needs) > 0 {
			return nil, fmt.Errorf("queue %q: a queue's name has no \"--\"; what jobs need is a label", name)
		}
	}
	for own := q.claimersOf(queues, labels); ; {
		d, err := own.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if c := q.take(ctx, worker, d); c != nil {
			return c, nil
		}
	}
}

// claimersOf returns the claimers of this process that want the same jobs.
func (q *Queue) claimersOf(queues, labels []string) *delivery.Claimers {
	key := strings.Join(queues, " ") + "; " + strings.Join(labels, " ")
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.claimers[key] == nil {
		q.claimers[key] = q.deliveries.Claimers(delivery.Config{
			Queues: slices.Clone(queues), Labels: slices.Clone(labels), Lanes: q.lanes, Lease: q.cfg.Lease,
			Caps: q.capsSoon, Ready: q.readClock,
		})
	}
	return q.claimers[key]
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

// capsSoon begins to read the caps. Where that fails, each that needs them tries again.
func (q *Queue) capsSoon(ctx context.Context) func() (schedule.Caps, error) {
	return soon(func() (schedule.Caps, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.Patience)
		defer cancel()
		return q.Permits().Caps(ctx)
	})
}

// An offer is a delivery of a job that this process may claim.
type offer struct {
	delivery.Delivery
	spec func() (jobs.Job, error) // which is being read
}

// take turns a delivery into a claim, or does what else its record asks for.
// If that fails, the broker delivers the message again.
func (q *Queue) take(ctx context.Context, worker string, d delivery.Delivery) *Claim {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideWithin)
	defer cancel()
	_, _, _, id, err := q.names.ParseQueue(d.Subject)
	if err != nil {
		q.refuse(ctx, d, err)
		return nil
	}
	// Most often the job is claimed, which needs both.
	o := offer{d, soon(func() (jobs.Job, error) { return q.Spec(ctx, id) })}
	read := q.handed
	for range 5 { // each conflict is another process's progress
		e, err := read(ctx, d, id)
		read = func(ctx context.Context, _ delivery.Delivery, id string) (record.Entry, error) {
			return q.Read(ctx, id)
		}
		if errors.Is(err, jobs.ErrUnavailable) {
			return nil
		}
		if errors.Is(err, record.ErrForeign) {
			// Leave the job to a worker of that release. If this is lost, it comes again.
			_ = q.deliveries.Nak(d, q.cfg.Lease)
			return nil
		}
		if err != nil {
			q.refuse(ctx, d, err)
			return nil
		}
		if d.Again {
			hook(q.cfg.Hooks.Redelivered, e.Record)
			d.Again = false
		}
		c, err := q.decide(ctx, worker, o, e)
		if !isConflict(err) {
			return c
		}
	}
	return nil
}

// handed reads the record of a job that was just handed out, most often a pending one. One
// that any server tells is enough to claim it, since the claim is a compare-and-set. What
// else a record says has the message removed or put off, for which only the leader's counts.
func (q *Queue) handed(ctx context.Context, d delivery.Delivery, id string) (record.Entry, error) {
	if e, err := q.Peek(ctx, d.Class, id); err == nil && e.State == jobs.Pending {
		return e, nil
	}
	return q.Read(ctx, id)
}

// decide is the only place where it is decided what a delivery means.
func (q *Queue) decide(ctx context.Context, worker string, d offer, e record.Entry) (*Claim, error) {
	switch {
	case e.State == jobs.Finished:
		return nil, q.retire(ctx, e.Record, d.Delivery, "acknowledge")
	case e.State == jobs.Delayed || e.Asking():
		if err := q.schedule(ctx, e.Record); err != nil {
			return nil, err
		}
		return nil, q.deliveries.Ack(ctx, d.Delivery)
	case e.State == jobs.Waiting:
		return nil, q.deliveries.Ack(ctx, d.Delivery)
	case e.State == jobs.Executing:
		return q.takeOver(ctx, worker, d, e)
	case e.Cancel != nil:
		return nil, q.finish(ctx, d.Delivery, e, cancelled(e.Record))
	}
	return q.claim(ctx, worker, d, e)
}

// takeOver claims a job whose worker is silent. One that is alive is left
// alone until its lease could have run out.
func (q *Queue) takeOver(ctx context.Context, worker string, d offer, e record.Entry) (*Claim, error) {
	lease, now, err := q.times(ctx, d.Delivery)
	if err != nil {
		return nil, err
	}
	// The setting may have changed since; what the holder believes counts.
	promised := time.Duration(cmp.Or(e.Lease, jobs.Duration(lease)))
	if age := q.clock.Age(e.At, now, promised); age < promised {
		return nil, q.deliveries.Nak(d.Delivery, min(promised, promised-age))
	}
	e, end := workerLost(e)
	next, finished := q.cfg.Bounds.After(e.Record, end, now)
	if finished {
		return nil, q.finish(ctx, d.Delivery, e, end)
	}
	e.Record = next
	if e.State == jobs.Delayed {
		return nil, q.postpone(ctx, d.Delivery, e)
	}
	return q.claim(ctx, worker, d, e)
}

// workerLost says how an attempt ends whose worker is silent. The entry's next write tells the hook.
func workerLost(e record.Entry) (record.Entry, jobs.Ended) {
	e.Lost = &record.Entry{Record: e.Record, At: e.At}
	if e.Cancel != nil {
		return e, cancelled(e.Record)
	}
	return e, jobs.WorkerLost.Ended("worker " + e.Worker + " stopped answering")
}

// postpone writes a record that says to wait, and what ends the wait.
func (q *Queue) postpone(ctx context.Context, d delivery.Delivery, e record.Entry) error {
	e, err := q.put(ctx, e)
	if err != nil {
		return err
	}
	if err := q.schedule(ctx, e.Record); err != nil {
		return err // the message comes again, and finds the record so
	}
	return q.deliveries.Ack(ctx, d)
}

// times returns the lease of a delivery's consumer and the broker's time, so
// that the age of a heartbeat does not depend on clocks that disagree. In a
// cluster it is the clock of the server through which records are written.
func (q *Queue) times(ctx context.Context, d delivery.Delivery) (lease time.Duration, now time.Time, err error) {
	lease, err = q.lanes.Told(ctx, d.Class, d.Lane)
	if err == nil {
		now, err = q.Now(ctx)
	}
	return lease, now, err
}

// claim begins an attempt.
func (q *Queue) claim(ctx context.Context, worker string, d offer, e record.Entry) (*Claim, error) {
	lease, err := q.lanes.Lease(ctx, d.Class, d.Lane)
	if err != nil {
		return nil, err
	}
	if held, err := q.held(ctx, d.Delivery, e); held || err != nil {
		return nil, err
	}
	job, specErr := d.spec()
	if errors.Is(specErr, jobs.ErrUnavailable) {
		return nil, specErr
	}
	permits, full, err := q.permit(ctx, d.Delivery, e)
	if err != nil {
		return nil, err
	}
	if full {
		return nil, q.deliveries.Nak(d.Delivery, capAgain)
	}
	ready, over := e.At, e.Rev
	var previous *jobs.Ended
	if e.Reason == jobs.WorkerLost { // what else ended an attempt, its worker has told
		previous = new(jobs.WorkerLost.Ended(e.Message))
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginWithin(lease))
	defer cancel()
	if e, err = q.put(ctx, begun(e, worker, lease)); err != nil {
		if isConflict(err) { // else the write may come to pass, and the permit counts until it cannot
			q.Permits().GiveBack(ctx, permits, e.ID, over)
		}
		return nil, err
	}
	c := &Claim{
		q: q, d: d.Delivery, job: job, rec: e.Record, held: e, good: sent, lease: lease, previous: previous, permits: permits, claimed: over,
		busy: make(chan struct{}, 1), ended: make(chan struct{}), renew: make(chan struct{}, 1),
	}
	if specErr != nil {
		// No worker can run it, so there is no point in another attempt.
		_, err := c.Settle(ctx, jobs.InvalidJob.Ended(specErr.Error()), nil)
		return nil, err
	}
	if q.cfg.Hooks.Claimed != nil {
		q.cfg.Hooks.Claimed(e.Record, max(0, e.At.Sub(ready)))
	}
	return c, nil
}

// permit takes the permits that a claim of e needs, and returns the keys of
// their caps. Full says that one of the caps has none left; then none is kept.
func (q *Queue) permit(ctx context.Context, d delivery.Delivery, e record.Entry) (keys []string, full bool, err error) {
	var caps schedule.Caps
	read := d.Caps != nil
	if read {
		caps, err = d.Caps()
	}
	if !read || err != nil {
		if caps, err = q.Permits().Caps(ctx); err != nil {
			return nil, false, err
		}
	}
	return q.Permits().Take(ctx, caps.Of(e.Record), e, time.Now())
}

// begun is the entry of a job whose attempt a worker begins.
func begun(e record.Entry, worker string, lease time.Duration) record.Entry {
	now := time.Now().UTC()
	e.State, e.Worker, e.Beat, e.Lease, e.Epoch = jobs.Executing, worker, 1, jobs.Duration(lease), 0
	e.Attempt++
	e.SpentBefore, e.LastAttempt = e.SpentBefore.Add(e.LastAttempt), jobs.Spent{}
	e.Outcome, e.Reason, e.Message, e.NotBefore = "", "", "", nil
	e.Claimed, e.Started = &now, cmp.Or(e.Started, &now)
	return e
}

func cancelled(rec jobs.Record) jobs.Ended {
	who := "cancelled"
	if rec.Cancel != nil && rec.Cancel.By != "" {
		who += " by " + rec.Cancel.By
	}
	return jobs.Cancelled.Ended(who)
}

// finish makes the record of a job terminal that no worker holds.
func (q *Queue) finish(ctx context.Context, d delivery.Delivery, e record.Entry, end jobs.Ended) error {
	e.Record, _ = e.After(end, time.Now())
	e, err := q.put(ctx, e)
	if err != nil {
		return err
	}
	hook(q.cfg.Hooks.Settled, e.Record)
	return q.retire(ctx, e.Record, d, "")
}

// retire does the remaining steps for a terminal record. It may be repeated.
func (q *Queue) retire(ctx context.Context, rec jobs.Record, d delivery.Delivery, repaired string) error {
	if err := q.conclude(ctx, rec); err != nil {
		return err
	}
	if repaired != "" && q.cfg.Hooks.Repaired != nil {
		q.cfg.Hooks.Repaired(rec, repaired)
	}
	return q.deliveries.Ack(ctx, d)
}

// refuse removes a message that is not one of a job, and files it.
func (q *Queue) refuse(ctx context.Context, d delivery.Delivery, why error) {
	if q.cfg.Hooks.Refused != nil {
		q.cfg.Hooks.Refused(d.Subject, why.Error())
	}
	if err := q.file(ctx, d, why); err != nil {
		return // delivered again, and tried again
	}
	q.deliveries.Term(d, why)
}

// file keeps a message that is removed from its queue.
func (q *Queue) file(ctx context.Context, d delivery.Delivery, why error) error {
	name := "unknown"
	if meta, err := (&nats.Msg{Reply: d.Reply, Sub: &nats.Subscription{}}).Metadata(); err == nil {
		name = "message-" + d.Lane + "-" + strconv.FormatUint(meta.Sequence.Stream, 10)
	}
	return q.DeadLetters().Keep(ctx, jobs.DeadLetter{
		ID: name, Kind: jobs.DeadMessage, At: time.Now().UTC(), Reason: why.Error(), Subject: d.Subject,
		StoredAt: q.names.DeadLetter(d.Class, q.cfg.Tenant, name),
	})
}
