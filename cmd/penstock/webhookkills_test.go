package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// size is a number of the environment, or the usual one.
func size(name string, usual int) int {
	if asked, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return asked
	}
	return usual
}

// eventsPerJob is how many events a job of TestWebhooksOutliveKills has, if no kill takes one.
const eventsPerJob = 4

// Serve is killed again and again while two receivers get the events of its jobs, and each
// of them fails at first for every twentieth event: each event of the log arrives at both,
// and those of a job arrive in their order. PENSTOCK_TEST_DELIVERIES says how many
// deliveries there are, and PENSTOCK_TEST_KILLS how often serve is killed.
func TestWebhooksOutliveKills(t *testing.T) {
	t.Parallel()
	deliveries, kills := size("PENSTOCK_TEST_DELIVERIES", 200), size("PENSTOCK_TEST_KILLS", 2)
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_WEBHOOKS_ALLOW_PRIVATE=127.0.0.0/8")
	p, args := f.serve("--slots", "0", "--http", "")
	receivers := []*failingReceiver{f.receiver("first"), f.receiver("second")}
	arrived := func() int { return receivers[0].count() + receivers[1].count() }
	began := time.Now()
	var submitting sync.WaitGroup
	f.submitAndCancel(&submitting, deliveries/len(receivers)/eventsPerJob)
	for n := range kills {
		f.eventually(5*time.Minute, "a part has arrived", func() bool { return arrived() >= deliveries*(n+1)/(kills+1) })
		f.positionStored()
		p.kill()
		p = f.start("serving", args...)
	}
	submitting.Wait()
	// A cancellation that was killed behind the job's record has no event yet: the next
	// worker that claims the job writes it, and here is none. So what counts is the log.
	stored, at := f.stored()
	total := 0
	for _, seqs := range stored {
		total += len(seqs)
	}
	if !slowtest.Eventually(2*time.Minute, 50*time.Millisecond, func() bool { return arrived() >= total*len(receivers) }) {
		t.Errorf("%d of %d deliveries have arrived", arrived(), total*len(receivers))
	}
	took := time.Since(began)
	t.Logf("%d deliveries over %d kills in %v: %.0f a second", arrived(), kills, took.Round(time.Millisecond), float64(arrived())/took.Seconds())
	for _, r := range receivers {
		r.mu.Lock()
		defer r.mu.Unlock()
		for job := range stored {
			if !slices.Equal(r.order[job], stored[job]) {
				t.Errorf("%s has taken events of job %s in the order %v, the log has %v", r.name, job, r.order[job], stored[job])
			}
		}
		if len(r.failed) == 0 {
			t.Errorf("%s has not failed", r.name)
		}
		longest := time.Duration(0)
		for id, taken := range r.taken {
			longest = max(longest, taken.Sub(at[id]))
		}
		again := r.requests - len(r.failed) - len(r.taken)
		t.Logf("%s: %d events of %d jobs taken, %d failed at first, %d delivered again, the longest took %v", r.name, len(r.taken), len(r.order), len(r.failed), again, longest.Round(time.Millisecond))
	}
}

// A failingReceiver takes deliveries, and fails at first for every twentieth event.
type failingReceiver struct {
	name string

	mu       sync.Mutex
	failed   map[string]bool      // by id of the event
	taken    map[string]time.Time // by id of the event: when it came first
	order    map[string][]uint64  // of each job: its events as they came for the first time
	requests int
}

// receiver starts a receiver, and has the pool send it each event.
func (f *fixture) receiver(name string) *failingReceiver {
	f.Helper()
	r := &failingReceiver{name: name, failed: map[string]bool{}, taken: map[string]time.Time{}, order: map[string][]uint64{}}
	web := httptest.NewServer(r)
	f.Cleanup(web.Close)
	f.run("webhook", "add", name, "--url", web.URL)
	return r
}

// ServeHTTP is of http.Handler.
func (r *failingReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var e struct{ Data jobs.Event }
	if json.NewDecoder(req.Body).Decode(&e) != nil {
		return // its sender was killed
	}
	switch id := req.Header.Get("webhook-id"); r.take(id, e.Data) {
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 2:
		panic(http.ErrAbortHandler) // ends the connection
	}
}

// take notes a delivery, and returns in which way it fails; zero: it does not.
func (r *failingReceiver) take(id string, e jobs.Event) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(r.name + id)) // a hash takes everything
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	_, again := r.taken[id]
	if n := int(sum.Sum32() % 40); n < 2 && !r.failed[id] && !again {
		r.failed[id] = true
		return n + 1
	}
	if !again {
		r.taken[id] = time.Now()
		r.order[e.Job] = append(r.order[e.Job], e.Seq)
	}
	return 0
}

func (r *failingReceiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken)
}

// submitAndCancel makes jobs that end without a worker, and all of their events: each is
// cancelled, retried, and cancelled again, however often serve is killed meanwhile.
func (f *fixture) submitAndCancel(submitting *sync.WaitGroup, n int) {
	f.Helper()
	c, err := client.Open(f.Context(), f.lastingBus(), client.Config{By: "test"})
	f.must(err)
	job := jobs.Job{Queue: "unserved", Agent: jobs.Agent{Name: "command", Command: []string{"true"}}, Isolation: jobs.IsolationNone}
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	const atOnce = 12
	for range atOnce {
		submitting.Go(func() {
			for range work {
				id := jobs.NewID()
				submit := func(ctx context.Context) error { _, err := c.WithJobID(id).Submit(ctx, job); return err }
				cancel := func(ctx context.Context) error { _, err := c.Cancel(ctx, id); return err }
				retry := func(ctx context.Context) error { _, err := c.Retry(ctx, id, false); return err }
				f.untilDone("", submit)
				f.untilDone(jobs.CodeFinished, cancel)
				f.untilDone(jobs.CodeNotRetryable, retry)
				f.untilDone(jobs.CodeFinished, cancel)
			}
		})
	}
}

// lastingBus connects to the pool for as long as the test lasts: it finds serve again soon
// when that was killed.
func (f *fixture) lastingBus() *nats.Conn {
	f.Helper()
	at, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	nc, err := nats.Connect(at.URL, append(at.Options(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))...)
	f.must(err)
	f.Cleanup(nc.Close)
	return nc
}

// untilDone asks until the pool has done what it is asked for, or refuses with a code that
// says that it has: the answer to an earlier request may have been lost.
func (f *fixture) untilDone(already jobs.ErrorCode, ask func(context.Context) error) {
	for f.Context().Err() == nil {
		ctx, done := context.WithTimeout(f.Context(), 2*time.Second)
		err := ask(ctx)
		done()
		if err == nil || jobs.Code(err) == already {
			return
		}
		time.Sleep(50 * time.Millisecond) // serve is not there
	}
}

// positionStored waits until a webhook has stored how far it has come: what it has read before
// and not delivered is lost from then on, if it is not stored, too.
func (f *fixture) positionStored() {
	f.Helper()
	js, err := f.bus().JetStream()
	f.must(err)
	kv, err := js.KeyValue("ps_webhooks")
	f.must(err)
	states, err := kv.Watch("state.>", nats.UpdatesOnly())
	f.must(err)
	select {
	case <-states.Updates():
	case <-time.After(slowtest.Limit(time.Minute)):
		f.Fatal("no webhook has stored its position")
	}
	f.must(states.Stop())
}

// stored reads from the log the numbers of all events by job, and when each was stored by id.
func (f *fixture) stored() (all map[string][]uint64, at map[string]time.Time) {
	f.Helper()
	js, err := f.bus().JetStream()
	f.must(err)
	info, err := js.StreamInfo("PS_EVENTS")
	f.must(err)
	sub, err := js.SubscribeSync("", nats.BindStream("PS_EVENTS"), nats.OrderedConsumer())
	f.must(err)
	all, at = map[string][]uint64{}, map[string]time.Time{}
	for range info.State.Msgs {
		m, err := sub.NextMsg(slowtest.Limit(10 * time.Second))
		f.must(err)
		var e jobs.Event
		f.must(json.Unmarshal(m.Data, &e))
		all[e.Job] = append(all[e.Job], e.Seq)
		meta, err := m.Metadata()
		f.must(err)
		at[m.Header.Get("ce-id")] = meta.Timestamp
	}
	f.must(sub.Unsubscribe())
	return all, at
}
