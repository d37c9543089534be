package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// join opens another dispatcher of a pool, over a way to its server.
func join(t *testing.T, url string, caps ...schedule.Cap) pool {
	t.Helper()
	nc := jobstest.Connect(t, url)
	p := pool{queue: jobstest.Queue(t, nc, queue.Config{Lease: 30 * time.Second}), log: jobstest.Log(t, nc), nc: nc, leads: &atomic.Bool{}}
	p.Dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.queue, Log: p.log, Store: jobstest.Store(t, nc), Caps: caps, Hooks: dispatcher.Hooks{Leading: p.leads.Store},
	})
	return p
}

// run runs a dispatcher until stop is called. An error fails the test, unless the
// connection is closed.
func (p pool) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(ctx); err != nil && !p.nc.IsClosed() {
			t.Errorf("run: %v", err)
		}
	})
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

// owned is a job of an owner's batch.
func owned(owner, batch string, priority jobs.Priority) jobs.Job {
	j := job()
	j.Batch, j.Priority, j.Labels = batch, priority, map[string]string{schedule.OwnerLabel: owner}
	return j
}

func (p pool) submit(t *testing.T, j jobs.Job) string {
	t.Helper()
	answer, err := p.Submit(t.Context(), j, "test")
	if err != nil {
		t.Fatal(err)
	}
	return answer.ID
}

// led waits until a dispatcher leads.
func (p pool) led(t *testing.T) {
	t.Helper()
	eventually(t, "somebody leads", func() bool {
		m, err := p.nc.Request("$JS.API.STREAM.MSG.GET.KV_ps_leader", []byte(`{"last_by_subj":"$KV.ps_leader.dispatcher"}`), time.Second)
		return err == nil && strings.Contains(string(m.Data), `"data"`) // the mark of a pool without a leader has none
	})
}

func success(t *testing.T, c *queue.Claim) {
	t.Helper()
	if _, err := c.Settle(jobstest.Context(t), jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
		t.Fatal(err)
	}
}

// In a pool with one slot: many jobs of one owner hold up neither the few of
// another nor what has a higher priority.
func TestManyJobsHoldUpNobody(t *testing.T) {
	t.Parallel()
	const many, few, high = 800, 10, 5
	s := jobstest.Start(t)
	p := join(t, s.URL())
	p.run(t)
	p.led(t)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range many / 8 {
				rec, _, err := p.queue.Accept(context.Background(), owned("ann", "big", jobs.Low))
				if err == nil {
					err = p.queue.Enqueue(context.Background(), rec)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	for range few {
		p.submit(t, owned("bob", "small", jobs.Low))
	}
	for range high {
		p.submit(t, owned("ann", "", jobs.High))
	}
	last := ""
	eventually(t, "the first of what came last is admitted", func() bool {
		ids, err := p.queue.Admitted(t.Context(), "default", "p0")
		return err == nil && len(ids) == high
	})
	var order []string
	for bobs := 0; bobs < few; {
		c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
		last = c.Record().Labels[schedule.OwnerLabel]
		if c.Record().Priority == jobs.High {
			last = "high"
		}
		if last == "bob" {
			bobs++
		}
		order = append(order, last)
		success(t, c)
	}
	t.Logf("of %d jobs, these began first: %v", many+few+high, order)
	// One claim in LowShare, and one in NormalShare where there are such, is
	// for a lower lane.
	if n := slices.Index(order, "high"); n > 1 {
		t.Errorf("the first of high priority began as number %d", n+1)
	}
	if n := lastOf(order, "high"); n >= high+2 {
		t.Errorf("the last of high priority began as number %d", n+1)
	}
	// What was ready is before them, then they have every second turn.
	const ready = 16
	for i, n := range all(order, "bob") {
		if most := high + ready + 2*(i+1); n >= most {
			t.Errorf("number %d of the few began as number %d, want at most %d", i+1, n+1, most)
		}
	}
}

func all(list []string, what string) (at []int) {
	for i, s := range list {
		if s == what {
			at = append(at, i)
		}
	}
	return at
}

func lastOf(list []string, what string) int {
	at := all(list, what)
	return at[len(at)-1]
}

// A job waits for the others that it depends on, whatever becomes of the
// dispatcher meanwhile, and is skipped where one does not succeed.
func TestDependencies(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := join(t, s.URL())
	stop := p.run(t)
	p.led(t)
	after := func(ids ...string) string {
		j := job()
		j.DependsOn = ids
		return p.submit(t, j)
	}
	first := p.submit(t, job())
	second := after(first)
	third := after(first, second)
	for _, id := range []string{first, second, third} {
		c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
		if c.Record().ID != id {
			t.Fatalf("claimed %s, want %s", c.Record().ID, id)
		}
		if id == second {
			stop() // no dispatcher sees how it ends
		}
		success(t, c)
		if id == second {
			rec, err := p.queue.Get(t.Context(), third)
			if err != nil || !rec.Dependent() {
				t.Fatalf("%+v, %v; want it to wait, as nobody is there", rec, err)
			}
			p.run(t)
		}
	}
	p.led(t)
	fails := p.submit(t, job())
	skipped := after(fails)
	behind := after(skipped)
	c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
	if _, err := c.Settle(t.Context(), jobs.AgentFailed.Ended("it gave up"), nil); err != nil {
		t.Fatal(err)
	}
	late := after(fails) // that one has failed already
	for _, id := range []string{skipped, behind, late} {
		eventually(t, "the dependent is skipped", func() bool {
			rec, err := p.queue.Get(t.Context(), id)
			return err == nil && rec.Outcome == jobs.Skip && rec.Reason == jobs.DependencyFailed
		})
	}
}

// A leader that dies, and one that is silent, is replaced; what it had not
// admitted is, and what it had is not doubled.
func TestALeaderIsReplaced(t *testing.T) {
	t.Parallel()
	const n = 60
	s := jobstest.Start(t)
	proxy := s.Proxy()
	p, silent, dies := join(t, s.URL()), join(t, proxy.URL()), join(t, s.URL())
	dies.run(t)
	p.led(t)
	for range n {
		p.submit(t, owned("ann", "b", jobs.Normal))
	}
	seen := map[string]bool{}
	claim := func(times int) {
		t.Helper()
		for range times {
			c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
			if seen[c.Record().ID] {
				t.Fatalf("job %s began twice", c.Record().ID)
			}
			seen[c.Record().ID] = true
			success(t, c)
		}
	}
	claim(5)
	silent.run(t)
	dies.nc.Close() // as the kernel does for a process that is killed
	claim(25)
	p.run(t)
	eventually(t, "the second leads alone", func() bool {
		return silent.leads.Load() && !dies.leads.Load() && !p.leads.Load()
	})
	proxy.Blackhole()
	claim(n - 30)
	eventually(t, "the third leads instead", func() bool { return !silent.leads.Load() && p.leads.Load() })
	proxy.Heal()
}

// A message that was removed is sent again.
func TestAnAdmittedJobWithoutMessageIsRepaired(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc := s.Connect()
	repaired := make(chan jobs.Record, 10)
	p := pool{queue: jobstest.Queue(t, nc, queue.Config{Lease: 2 * time.Second}), log: jobstest.Log(t, nc), nc: nc}
	p.Dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.queue, Log: p.log, Store: jobstest.Store(t, nc), Hooks: dispatcher.Hooks{Repaired: func(rec jobs.Record) { repaired <- rec }},
	})
	p.run(t)
	p.led(t)
	id := p.submit(t, job())
	eventually(t, "it is admitted", func() bool {
		ids, err := p.queue.Admitted(t.Context(), "default", "p1")
		return err == nil && slices.Contains(ids, id)
	})
	if _, err := nc.Request("$JS.API.STREAM.PURGE.PS_Q_DEFAULT_P1", nil, jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
	select { // it is told once it is done, and a worker may be quicker
	case rec := <-repaired:
		if c.Record().ID != id || rec.ID != id || len(repaired) > 0 {
			t.Errorf("claimed %s after a repair of %s and %d more, want %s and one", c.Record().ID, rec.ID, len(repaired), id)
		}
	case <-time.After(jobstest.Patience):
		t.Error("no repair is told of")
	}
}

// Caps hold over 64 slots of 8 processes while leaders die; and the leader
// admits only jobs that their caps let begin, so that none blocks another.
func TestCapsHoldWhileLeadersDie(t *testing.T) {
	t.Parallel()
	const n, most = 80, 3
	s := jobstest.Start(t)
	limit := schedule.Cap{Key: "label:owner=*", Most: most}
	p := join(t, s.URL(), limit)
	for range 3 { // each leads once
		d := join(t, s.URL(), limit)
		d.run(t)
		t.Cleanup(d.nc.Close)
		time.AfterFunc(time.Second/2, d.nc.Close)
	}
	p.run(t)
	p.led(t)
	for i := range n {
		p.submit(t, owned([]string{"ann", "bob"}[i%2], "", jobs.Priority([]jobs.Priority{jobs.High, jobs.Low}[i/2%2])))
	}
	running := map[string]*atomic.Int64{"ann": new(atomic.Int64), "bob": new(atomic.Int64)}
	var left atomic.Int64
	left.Store(n)
	ctx, cancel := context.WithTimeout(context.Background(), 2*jobstest.Patience)
	defer cancel()
	var g sync.WaitGroup
	for range 8 {
		q := join(t, s.URL()).queue
		for range 8 {
			g.Go(func() {
				for left.Load() > 0 {
					c, err := q.Claim(ctx, "w", []string{"default"})
					if err != nil {
						if left.Load() > 0 {
							t.Error(err)
						}
						return
					}
					now := running[c.Record().Labels[schedule.OwnerLabel]]
					if now.Add(1) > most {
						t.Errorf("%d jobs of %s run, want at most %d", now.Load(), c.Record().Labels[schedule.OwnerLabel], most)
					}
					time.Sleep(5 * time.Millisecond)
					now.Add(-1)
					success(t, c)
					if left.Add(-1) == 0 {
						cancel()
					}
				}
			})
		}
	}
	g.Wait()
}

// What keeps a job that the leader has not admitted is said truly.
func TestWhyInABacklog(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := join(t, s.URL(), schedule.Cap{Key: "batch:few", Most: 1})
	stop := p.run(t)
	p.led(t)
	if err := p.queue.Workers().Present(t.Context(), why.Worker{Name: "w", Queues: []string{"default"}, Slots: 2, Busy: 2}); err != nil {
		t.Fatal(err)
	}
	is := func(id string, want why.Constraint) why.Standing {
		t.Helper()
		got, err := p.queue.Standings().Why(t.Context(), id, nil)
		if err != nil || got.Constraint != want {
			t.Errorf("got %+v, %v; want %s", got, err, want)
		}
		return got
	}
	var last string
	for range 40 {
		last = p.submit(t, owned("ann", "many", jobs.Normal))
	}
	other := p.submit(t, owned("bob", "", jobs.Normal))
	if got := is(last, why.KeptSlots); got.Position < 40 {
		t.Errorf("%+v, want it behind all others", got)
	}
	if got := is(other, why.KeptSlots); got.Position > 16+2 {
		t.Errorf("%+v, want it behind what is ready only", got)
	}
	first := p.submit(t, owned("bob", "few", jobs.High))
	capped := p.submit(t, owned("bob", "few", jobs.Low))
	is(capped, why.KeptCap)
	eventually(t, "the urgent one is before all that are ready", func() bool {
		ids, err := p.queue.Admitted(t.Context(), "default", "p0")
		return err == nil && slices.Contains(ids, first)
	})
	c := jobstestClaimWithin(t, p.queue, jobstest.Patience)
	if got := is(capped, why.KeptCap); c.Record().Batch != "few" || !strings.Contains(got.Message, "cap batch:few lets 1 run") {
		t.Errorf("%+v, and %s runs", got, fmt.Sprint(c.Record().Batch))
	}
	stop()
	is(last, why.KeptDue) // no dispatcher is there to admit it
}

// A time that was written by a broker whose clock was ahead does not keep the
// dispatcher from a job whose back-off is over; it waits for one that a submitter
// named.
func TestABackOffIsDueThoughTheClockWasAhead(t *testing.T) {
	far := time.Now().Add(time.Hour)
	rec := jobs.Record{State: jobs.Delayed, NotBefore: &far, Submitted: time.Now()}
	if got := dispatcher.Due(rec); time.Until(got) < 50*time.Minute {
		t.Errorf("a job for later is due in %v, want an hour", time.Until(got))
	}
	rec.Attempt, rec.Lost, rec.Reason = 1, 1, jobs.ModelUnavailable
	if got := dispatcher.Due(rec); time.Until(got) > rec.Backoff() {
		t.Errorf("a job that is tried again is due in %v, want %v", time.Until(got), rec.Backoff())
	}
	rec.Reason = jobs.QuotaWaiting
	if got := dispatcher.Due(rec); time.Until(got) < 50*time.Minute {
		t.Errorf("a job whose provider has named a time is due in %v, want an hour", time.Until(got))
	}
}

// A broker that dies may lose the last messages of a lane. The leader makes them again as
// soon as the broker is back, long before a job counts as stranded.
func TestMessagesThatABrokerLostAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := join(t, s.URL())
	p.Dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.queue, Log: p.log, Store: jobstest.Store(t, p.nc),
		Hooks: dispatcher.Hooks{Repaired: func(rec jobs.Record) { t.Errorf("job %s was repaired as a stranded one", rec.ID) }},
	})
	p.run(t)
	p.led(t)
	id := p.submit(t, job())
	admitted := func() bool {
		ids, err := p.queue.Admitted(t.Context(), "default", "p1")
		return err == nil && slices.Contains(ids, id)
	}
	eventually(t, "the job is admitted", admitted)
	if _, err := p.nc.Request("$JS.API.STREAM.PURGE.PS_Q_DEFAULT_P1", nil, jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	if admitted() {
		t.Fatal("the lane still has the job")
	}
	s.Restart()
	eventually(t, "the job is admitted again", admitted)
}
