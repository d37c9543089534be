package layout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
)

// patience is more than jobstest's: servers that have lost their leader choose
// another one after four to nine seconds.
const patience = 90 * time.Second

// One cluster serves all of this: it takes seconds to begin.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := jobstest.StartCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	connect := func() *nats.Conn { return jobstest.Connect(t, cluster.URL()) }
	nc := connect()
	if _, err := queue.Open(ctx, nc, queue.Config{Lease: 4 * time.Second}); err != nil {
		t.Fatal(err)
	}
	install(t, nc, queue.Config{})
	began := time.Now()
	toThree(ctx, t, connect)
	t.Logf("three replicas after %v", time.Since(began).Round(time.Millisecond))
	p := &party{t: t, cluster: cluster, connect: connect, settled: map[string]int{}}
	p.run(ctx)
}

// toThree takes an installation with one replica of each stream to three,
// while others make lanes.
func toThree(ctx context.Context, t *testing.T, connect func() *nats.Conn) {
	var g errgroup.Group
	for i := range 3 {
		q, err := queue.Open(ctx, connect(), queue.Config{})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			job := jobstest.Job()
			job.Queue = fmt.Sprintf("fresh-%d", i)
			_, _, err := q.Accept(ctx, job)
			return err
		})
	}
	nc := connect()
	left, err := layout.Apply(ctx, nc, layout.Config{Replicas: 3}, func(layout.Difference) {})
	if err := errors.Join(err, g.Wait()); err != nil || len(left) > 0 {
		t.Fatalf("apply: %v; left %+v", err, left)
	}
	if err := layout.Await(ctx, nc, layout.Config{}, func([]layout.Group) {}); err != nil {
		t.Fatal(err)
	}
	differ, err := layout.Diff(ctx, nc, layout.Config{Replicas: 3})
	if err != nil || len(differ) > 0 {
		t.Errorf("after apply: %+v, %v", differ, err)
	}
	// A process that has never heard of three makes a lane of three.
	q, err := queue.Open(ctx, nc, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	job := jobstest.Job()
	job.Queue = "later"
	if _, _, err := q.Accept(ctx, job); err != nil {
		t.Fatal(err)
	}
	if n := stream(t, nc, "PS_Q_LATER_P1").Replicas; n != 3 {
		t.Errorf("a lane made on demand has %d replicas, want 3", n)
	}
}

// A party submits, claims and settles jobs while servers are killed.
type party struct {
	t       *testing.T
	cluster *jobstest.Cluster
	connect func() *nats.Conn

	mu      sync.Mutex
	ids     []string
	settled map[string]int // how often a claimer was told that its verdict stands
	kills   []string
}

const partyJobs = 25

func (p *party) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var claimers, others errgroup.Group
	for n := range 3 {
		claimers.Go(func() error { return p.claim(ctx, fmt.Sprintf("w%d", n)) })
	}
	others.Go(func() error { return p.submit(ctx) })
	others.Go(func() error { return p.kill(ctx, 1) })
	if err := others.Wait(); err != nil {
		p.t.Fatal(err)
	}
	q, _, err := p.open(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	began := time.Now()
	for p.unfinished(ctx, q) > 0 && time.Since(began) < patience {
		time.Sleep(200 * time.Millisecond)
	}
	cancel()
	if err := claimers.Wait(); err != nil {
		p.t.Fatal(err)
	}
	p.check()
}

// open opens a queue that repairs as a dispatcher does.
func (p *party) open(ctx context.Context) (*queue.Queue, *session.Log, error) {
	nc := p.connect()
	log, err := session.Open(ctx, nc, session.Config{})
	if err != nil {
		return nil, nil, err
	}
	q, err := queue.Open(ctx, nc, queue.Config{Finished: func(ctx context.Context, rec jobs.Record) error {
		return log.Finish(ctx, rec, rec.Result())
	}})
	return q, log, err
}

func (p *party) submit(ctx context.Context) error {
	q, _, err := p.open(ctx)
	if err != nil {
		return err
	}
	for n := range partyJobs {
		job := jobstest.Job()
		job.Key = fmt.Sprintf("party-%d", n)
		for {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			rec, _, err := q.Accept(try, job)
			if err == nil {
				err = q.Enqueue(try, rec)
			}
			cancel()
			if err == nil {
				p.mu.Lock()
				p.ids = append(p.ids, rec.ID)
				p.mu.Unlock()
				break
			}
			if !errors.Is(err, jobs.ErrUnavailable) {
				return fmt.Errorf("submit: %w", err)
			}
		}
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
	return nil
}

// kill kills the leader of some stream, again and again.
func (p *party) kill(ctx context.Context, times int) error {
	nc := p.connect()
	for range times {
		groups, err := layout.Groups(ctx, nc, layout.Config{})
		if err != nil {
			return err
		}
		g := groups[rand.IntN(len(groups))]
		if len(p.kills) == 0 { // at least once the one that has the records
			g = groups[0]
		}
		if g.Leader == "" {
			continue
		}
		p.kills = append(p.kills, g.Stream)
		node := p.cluster.Node(g.Leader)
		node.Kill()
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		node.Up()
		time.Sleep(2 * time.Second)
	}
	return nil
}

// claim works until ctx ends. It fails where a worker fails: another worker claims
// the job later.
func (p *party) claim(ctx context.Context, worker string) error {
	q, log, err := p.open(ctx)
	if ctx.Err() != nil {
		return nil // the others were done before this one had found a leader
	}
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		c, err := q.Claim(ctx, worker, []string{"default"})
		if err != nil {
			continue
		}
		if err := p.attempt(ctx, c, log); err == nil {
			p.mu.Lock()
			p.settled[c.Record().ID]++
			p.mu.Unlock()
		}
		// What a dispatcher does every few seconds.
		stranded, err := q.Stranded(ctx)
		for _, rec := range stranded {
			err = errors.Join(err, q.Enqueue(ctx, rec))
		}
		if err != nil && !errors.Is(err, jobs.ErrUnavailable) && ctx.Err() == nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	return nil
}

func (p *party) attempt(ctx context.Context, c *queue.Claim, log *session.Log) error {
	ctx, cancel := context.WithTimeout(ctx, patience/3)
	defer cancel()
	kept, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(c.Keep(kept)) }()
	rec := c.Record()
	src := session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Epoch: rec.Epoch}
	w, err := log.Writer(kept, src, event.New(event.JobClaimed{}))
	if err != nil {
		return err
	}
	for n := range 5 {
		if err := w.Append(kept, event.New(event.OutputLine{Text: fmt.Sprint(n)})); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	// Not under kept: that ends as soon as the record says how it ended.
	_, err = c.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
	return err
}

// unfinished counts the jobs, and the messages that are left when a worker died
// or was cut off between a verdict and what follows it.
func (p *party) unfinished(ctx context.Context, q *queue.Queue) int {
	ended, err := q.List(ctx, record.Filter{Queue: "default", State: jobs.Finished})
	left := partyJobs + 1 - len(ended) // one was there before
	for _, lane := range []string{"p0", "p1", "p2"} {
		ids, failed := q.Admitted(ctx, "default", lane)
		left, err = left+len(ids), errors.Join(err, failed)
	}
	if err != nil {
		return partyJobs
	}
	return left
}

func (p *party) check() {
	t := p.t
	q, log, err := p.open(jobstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	for _, id := range p.ids {
		rec, err := q.Get(jobstest.Context(t), id)
		if err != nil || rec.Outcome != jobs.Success {
			t.Errorf("job %s: %s %s %s, %v", id, rec.State, rec.Outcome, rec.Message, err)
			continue
		}
		attempts += rec.Attempt
		if p.settled[id] > 1 {
			t.Errorf("job %s was settled %d times", id, p.settled[id])
		}
		p.checkEvents(log, rec)
	}
	t.Logf("%d jobs, %d attempts, leaders of %s killed", len(p.ids), attempts, strings.Join(p.kills, ", "))
}

// checkEvents looks for gaps and doubles, and for lines of attempts that had
// lost their lease.
func (p *party) checkEvents(log *session.Log, rec jobs.Record) {
	t := p.t
	next, attempt, lines, ends := uint64(1), 0, 0, 0
	for e, err := range log.Read(jobstest.Context(t), rec.Session, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != next {
			t.Errorf("session %s: event %d where %d was due", rec.Session, e.Seq, next)
		}
		next = e.Seq + 1
		switch e.Kind {
		case jobs.JobClaimed:
			attempt, lines = e.Attempt, 0
		case jobs.OutputLine:
			if lines++; e.Attempt != attempt {
				t.Errorf("session %s: event %d is of attempt %d, after attempt %d had begun", rec.Session, e.Seq, e.Attempt, attempt)
			}
		case jobs.JobFinished:
			ends++
		}
	}
	if attempt != rec.Attempt || lines != 5 || ends != 1 {
		t.Errorf("job %s: %d attempts, the last one %d with %d of 5 lines, %d ends", rec.ID, rec.Attempt, attempt, lines, ends)
	}
}
