package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

const (
	modelLease = 4 * time.Second
	modelWork  = 1510 * time.Millisecond // longer than it is to the second heartbeat
	modelJob   = "01930000-0000-7000-8000-000000000001"
)

// A mutation takes one rule out of the protocol.
type mutation int

const (
	asItIs mutation = iota
	noCompare
	ackFirst
	ackAnyway
	clockAhead
	silentBeats
	noMark
	ignoredLoss
)

func (m modelRequest) isRecord() bool { return strings.HasPrefix(m.subject, "$KV.ps_jobs.") }

func (m modelRequest) record() jobs.Record {
	var rec jobs.Record
	_ = json.Unmarshal(m.data, &rec) // the queue's own
	return rec
}

// before is what happens instead of a request when the rule is missing.
func (b mutation) before(l *modelLink, m modelRequest) []modelRequest {
	if m.isRecord() {
		switch {
		case b == noCompare:
			m.header.Del("Nats-Expected-Last-Subject-Sequence")
		case b == noMark:
			m.header.Del("Penstock-Write")
		case b == ackFirst && l.holds != "" && m.record().State == jobs.Finished:
			return []modelRequest{{subject: l.holds, data: []byte("+ACK")}, m}
		}
	}
	return []modelRequest{m}
}

// note adds what a process has asked and heard to what it knows.
func (l *modelLink) note(m modelRequest, what string) {
	h := fnv.New64a()
	fmt.Fprint(h, l.history, modelPlain(m.subject), what, time.Now().UnixNano())
	h.Write(m.data)
	l.history = h.Sum64()
}

// modelPlain leaves out of a subject what differs from run to run.
func modelPlain(subject string) string {
	if strings.HasPrefix(subject, "$JS.ACK.") {
		return strings.Join(strings.Split(subject, ".")[:6], ".")
	}
	return subject
}

// A scenario is what the processes of one exploration do.
type scenario struct {
	name   string
	first  jobs.Ended // how the first attempt ends; later ones succeed
	cancel bool
	parks  bool     // the first attempt ends with a question
	alone  bool     // no process repairs
	mortal []string // the processes that may die
	work   time.Duration
	kinds  []string // what may happen besides the processes' steps; nil: anything
	breaks mutation
	budget int // how often the schedule may differ from the simplest one
}

// A modelWorld is one run: real queues in processes of their own, whose
// requests happen in the order that is chosen.
type modelWorld struct {
	scenario
	b     *modelBroker
	procs []*modelProc
	wg    sync.WaitGroup
	trace []string

	mu        sync.Mutex
	finishes  int  // how often the record became terminal
	delayed   bool // it waited for its next attempt
	final     jobs.Record
	finalBy   *modelLink
	announced int
	wrong     string
}

// A modelProc is one process. Its connection is its only way to do anything.
type modelProc struct {
	*modelLink
	w     *modelWorld
	q     *queue.Queue
	nc    *nats.Conn
	ctx   context.Context
	kill  context.CancelFunc
	live  atomic.Bool // its agent runs
	busy  atomic.Bool // it is within an attempt
	gone  atomic.Bool // it has done what it was to do
	loops bool        // it never is
}

func (w *modelWorld) start(t *testing.T) {
	w.b = newModelBroker(modelLease)
	w.b.breaks = w.breaks
	w.b.wrote, w.b.acked = w.wrote, w.acked
	w.proc(t, "submitter", false, func(p *modelProc) {
		rec, _, err := p.q.AcceptAs(p.ctx, modelJob, jobstest.Job(), "", nil)
		if err == nil {
			_ = p.q.Enqueue(p.ctx, rec) // a failure is repaired
		}
	})
	w.proc(t, "worker 1", true, (*modelProc).work)
	w.proc(t, "worker 2", true, (*modelProc).work)
	for _, name := range []string{"due 1", "due 2"} {
		w.proc(t, name, true, func(p *modelProc) { _ = p.q.RunDue(p.ctx, nil) })
	}
	if !w.alone {
		w.proc(t, "repair", true, (*modelProc).repair)
	}
	if w.parks {
		w.proc(t, "answerer", false, (*modelProc).answer)
	}
	if w.cancel {
		w.proc(t, "canceller", false, func(p *modelProc) { _, _ = p.q.Cancel(p.ctx, modelJob, "a person") })
	}
}

func (w *modelWorld) proc(t *testing.T, name string, loops bool, do func(*modelProc)) {
	link, dial := w.b.link(name, &w.wg)
	nc, err := nats.Connect("nats://127.0.0.1:4222", dial, nats.NoReconnect(), nats.SyncQueueLen(64))
	if err != nil {
		t.Fatal(err)
	}
	p := &modelProc{modelLink: link, w: w, nc: nc, loops: loops}
	p.ctx, p.kill = context.WithCancel(context.Background())
	p.q, err = queue.Bind(nc, queue.Config{Lease: modelLease, Finished: func(context.Context, jobs.Record) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !link.dead.Load() {
			w.announced++
		}
		return nil
	}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	w.procs = append(w.procs, p)
	w.wg.Go(func() {
		defer p.gone.Store(true)
		do(p)
	})
}

// die ends a process as kill -9 does: nothing that it does from now on is seen.
func (p *modelProc) die() {
	p.w.b.mu.Lock()
	p.dead.Store(true)
	p.waiting = nil
	p.w.b.mu.Unlock()
	p.live.Store(false)
	p.busy.Store(false)
	p.kill()
	p.nc.Close()
}

func (p *modelProc) work() {
	for p.ctx.Err() == nil {
		c, err := p.q.Claim(p.ctx, p.name, []string{"default"})
		if err != nil {
			return
		}
		p.attempt(c)
	}
}

// attempt is a worker that hears of everything and, worse than any real one,
// tries to settle even after it has heard that it must not.
func (p *modelProc) attempt(c *queue.Claim) {
	p.busy.Store(true)
	p.live.Store(true)
	defer p.busy.Store(false)
	ctx, stop := context.WithCancel(p.ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for {
			if err := c.Keep(ctx); !errors.Is(err, jobs.ErrCancelled) {
				if p.w.breaks != ignoredLoss {
					p.live.Store(false)
				}
				return
			}
		}
	}()
	select {
	case <-time.After(max(modelWork, p.w.work)):
	case <-p.ctx.Done():
	}
	p.live.Store(false) // what is left is one write, which counts or does not
	end := jobs.Ended{Outcome: jobs.Success}
	if c.Record().Attempt == 1 && p.w.first != (jobs.Ended{}) {
		end = p.w.first
	}
	var err error
	if c.Record().Attempt == 1 && p.w.parks {
		_, err = c.Park(p.ctx, "a question", time.Now().Add(2*modelLease))
	}
	if c.Record().Attempt > 1 || !p.w.parks || errors.Is(err, jobs.ErrCancelled) {
		_, err = c.Settle(p.ctx, end, nil)
	}
	stop()
	<-kept
	p.w.settled(p, c, err)
}

// answer wakes the job once it is parked. If that comes to nothing, its time does.
func (p *modelProc) answer() {
	for p.ctx.Err() == nil {
		rec, err := p.q.Get(p.ctx, modelJob)
		if err == nil && rec.Asking() {
			_, _ = p.q.Wake(p.ctx, rec)
			return
		}
		if err == nil && (rec.State == jobs.Finished || rec.Attempt > 1) {
			return
		}
		select {
		case <-time.After(730 * time.Millisecond):
		case <-p.ctx.Done():
		}
	}
}

func (p *modelProc) repair() {
	for {
		select {
		case <-time.After(3700 * time.Millisecond):
		case <-p.ctx.Done():
			return
		}
		stranded, _ := p.q.Stranded(p.ctx) // looked for again
		for _, rec := range stranded {
			_ = p.q.Enqueue(p.ctx, rec)
		}
	}
}

// wrote watches the job's record.
func (w *modelWorld) wrote(l *modelLink, before, after *modelMsg) {
	m := modelRequest{subject: after.subject, data: after.data}
	if !m.isRecord() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rec := m.record()
	if before != nil && (modelRequest{data: before.data}).record().State == jobs.Finished {
		w.violate("%s changed a record that was final", l.name)
	}
	w.delayed = w.delayed || rec.State == jobs.Delayed || rec.Asking()
	if rec.State == jobs.Finished {
		w.finishes++
		w.final, w.finalBy = rec, l
	}
}

// acked watches the job's message. It goes when the job has ended or waits for
// its next attempt. Where that wait may be over already, it is left to repair.
func (w *modelWorld) acked(l *modelLink, s *modelStream) {
	last := w.b.stream("KV_ps_jobs").lastOf("$KV.ps_jobs.>")
	if !s.queue || last == nil || w.delayed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if state := (modelRequest{data: last.data}).record().State; state != jobs.Finished {
		w.violate("%s acknowledged the message of a job that is %s", l.name, state)
	}
}

// settled looks at what Settle returned to a worker about its attempt.
func (w *modelWorld) settled(p *modelProc, c *queue.Claim, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, jobs.ErrFenced) && w.finalBy == p.modelLink && w.final.Attempt == c.Record().Attempt && w.final.Epoch == c.Epoch() {
		w.violate("%s was told that its attempt was fenced, and its verdict stands", p.name)
	}
}

func (w *modelWorld) violate(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// check looks at what must hold at any time.
func (w *modelWorld) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var live []string
	for _, p := range w.procs {
		if p.live.Load() {
			live = append(live, p.name)
		}
	}
	if len(live) > 1 {
		w.violate("two attempts are alive: %s", strings.Join(live, ", "))
	}
	if w.finishes > 1 {
		w.violate("the job ended %d times", w.finishes)
	}
}

// over reports whether nothing is left to do.
func (w *modelWorld) over() bool {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	rec := w.b.stream("KV_ps_jobs").lastOf("$KV.ps_jobs.>")
	if rec != nil && (modelRequest{data: rec.data}).record().State != jobs.Finished {
		return false
	}
	if len(w.b.stream("PS_Q_DEFAULT_P1").msgs)+len(w.b.stream("PS_SCHED").msgs) > 0 {
		return false
	}
	for _, p := range w.procs {
		if !p.dead.Load() && (len(p.waiting) > 0 || p.busy.Load() || !p.loops && !p.gone.Load()) {
			return false
		}
	}
	return true
}

// ended looks at what must hold when nothing happens any more.
func (w *modelWorld) ended() {
	over := w.over()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !over {
		w.violate("nothing happens any more, and the job has not ended")
	}
	if w.finishes == 1 && w.announced == 0 {
		w.violate("the job ended and nobody was told")
	}
}

func (w *modelWorld) close() {
	w.b.mu.Lock()
	for _, p := range w.procs {
		p.dead.Store(true)
	}
	w.b.mu.Unlock()
	for _, p := range w.procs {
		p.kill()
		p.nc.Close()
		_ = p.conn.Close() // a pipe
	}
	w.wg.Wait()
	synctest.Wait()
}
