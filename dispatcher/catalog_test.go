package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/why"
)

// kept is the record of the job number i of a pool with a history: one in ten is pending.
func kept(i int) jobs.Record {
	j := job().WithDefaults()
	j.Batch, j.Priority = fmt.Sprint("b", i%3), []jobs.Priority{jobs.High, jobs.Normal, jobs.Low}[i%3]
	j.Labels = map[string]string{"owner": fmt.Sprint("o", i%2)}
	rec := jobs.NewRecord(jobs.NewID(), "default", j, time.Now())
	if i%10 > 0 {
		at := time.Now().UTC()
		rec.State, rec.Outcome, rec.Attempt, rec.Finished, rec.Started, rec.Claimed = jobs.Finished, jobs.Success, 1, &at, &at, &at
	}
	return rec
}

// fill writes records, without all that comes before and behind them.
func fill(t testing.TB, nc *nats.Conn, records ...jobs.Record) {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		body, err := json.Marshal(rec)
		if err == nil {
			_, err = js.PublishMsgAsync(&nats.Msg{Subject: "$KV.ps_jobs." + rec.Class + "." + rec.ID, Data: body}, jetstream.WithStallWait(jobstest.Patience))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(4 * jobstest.Patience):
		t.Fatal("the records are not stored")
	}
}

func history(n int) []jobs.Record {
	records := make([]jobs.Record, n)
	for i := range records {
		records[i] = kept(i)
	}
	return records
}

// answered waits until a leader answers questions.
func (p pool) answered(t testing.TB) {
	t.Helper()
	eventually(t, "a leader that answers", func() bool {
		var any json.RawMessage
		return p.queue.Questions().Ask(t.Context(), "queues", struct{}{}, &any) == nil
	})
}

// asks are the questions that a catalog is asked in the tests, of a job that is pending.
func asks(t testing.TB, c *catalog.Catalog, id string) map[string]any {
	t.Helper()
	answers := map[string]any{}
	note := func(name string, answer any, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		answers[name] = answer
	}
	page, more, err := c.List(t.Context(), catalog.Selection{Newest: true, Limit: 20})
	note("page", page, err)
	note("more", more, nil)
	page, _, err = c.List(t.Context(), catalog.Selection{Filter: record.Filter{State: jobs.Finished, Batch: "b1"}, After: id, Limit: 7})
	note("finished", page, err)
	all, err := c.All(t.Context(), record.Filter{Unfinished: true})
	note("unfinished", all, err)
	queues, err := c.Queues(t.Context())
	note("queues", queues, err)
	batches, err := c.Batches(t.Context(), "")
	note("batches", batches, err)
	standing, err := c.Why(t.Context(), id)
	note("why", standing, err)
	return answers
}

// abbreviated says which jobs the ends of an id mean, and an end that many ids have.
func abbreviated(t testing.TB, q *queue.Queue, id string) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for _, short := range []string{id[:4], id[:len(id)-1], id[23:], id[24:], "ffffffff", "00-0"} {
		whole, err := q.Resolve(t.Context(), short)
		answers[short] = fmt.Sprint(whole, " ", err)
	}
	if whole := answers[id[24:]]; whole != id+" <nil>" {
		t.Errorf("%s is resolved as %s", id[24:], whole)
	}
	return answers
}

// What the leader answers is what all records say.
func TestTheLeaderAnswersAsTheRecords(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	records := history(300)
	fill(t, p.nc, records...)
	if err := p.queue.Workers().Present(t.Context(), why.Worker{Name: "w", Queues: []string{"default"}, Slots: 3, Started: time.Now()}); err != nil {
		t.Fatal(err)
	}
	stop := p.run(t)
	p.answered(t)
	c := catalog.New(p.queue)
	// All of the jobs that are pending become ready, since there are few in each lane.
	eventually(t, "messages", func() bool {
		n := 0
		for _, lane := range []string{"p0", "p1", "p2"} {
			ids, err := p.queue.Admitted(t.Context(), "default", lane)
			if err != nil {
				t.Fatal(err)
			}
			n += len(ids)
		}
		return n == 30
	})
	led, short := asks(t, c, records[200].ID), abbreviated(t, p.queue, records[200].ID)
	stop()
	if now := abbreviated(t, p.queue, records[200].ID); !maps.Equal(short, now) {
		t.Errorf("abbreviated ids: the leader says\n%v, the records\n%v", short, now)
	}
	for name, want := range asks(t, c, records[200].ID) {
		if got := led[name]; name != "why" && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the leader says\n%v, the records\n%v", name, got, want)
		}
	}
	// Without a leader it says the same of a job with a message.
	if now, was := led["why"].(why.Standing), asks(t, c, records[200].ID)["why"].(why.Standing); !reflect.DeepEqual(now, was) || now.Position < 2 {
		t.Errorf("why: the leader says\n%+v, the records\n%+v", now, was)
	}
}

// Without a leader each answer has what was stored before it, too, though not all is read for
// each, and however many ask at once.
func TestAnswersWithoutALeader(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	records := history(40)
	c := catalog.New(p.queue)
	counted := func() (pending, finished int) {
		queues, err := c.Queues(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, q := range queues {
			pending, finished = pending+q.Pending, finished+q.Finished
		}
		return pending, finished
	}
	fill(t, p.nc, records[:20]...)
	if pending, finished := counted(); pending != 2 || finished != 18 {
		t.Errorf("%d jobs are pending and %d finished, want 2 and 18", pending, finished)
	}
	ended := records[0]
	ended.State, ended.Outcome = jobs.Finished, jobs.Failure
	fill(t, p.nc, append(records[20:], ended)...)
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if pending, finished := counted(); pending != 3 || finished != 37 {
				t.Errorf("%d jobs are pending and %d finished, want 3 and 37", pending, finished)
			}
		})
	}
	asking.Wait()
	list, more, err := c.List(t.Context(), catalog.Selection{Filter: record.Filter{Outcome: jobs.Failure}, Limit: 10})
	if err != nil || more || len(list) != 1 || list[0].ID != ended.ID {
		t.Errorf("jobs %+v, more %v, %v", list, more, err)
	}
}

// What is stored is in the next answer, and in the first one of another leader.
func TestAnswersHaveWhatIsStored(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	first, second := join(t, s.URL()), join(t, s.URL())
	stop := first.run(t)
	first.answered(t)
	second.run(t)
	c := catalog.New(second.queue)
	for i := range 100 {
		if i == 50 {
			stop() // nobody answers for a moment
		}
		rec := kept(0)
		fill(t, second.nc, rec)
		page, _, err := c.List(t.Context(), catalog.Selection{Newest: true, Limit: 1})
		if err != nil || len(page) != 1 || page[0].ID != rec.ID {
			t.Fatalf("the newest of %d jobs is %v (%v), want %s", i+1, page, err, rec.ID)
		}
		queues, err := c.Queues(t.Context())
		if err != nil || len(queues) != 1 || queues[0].Pending != i+1 {
			t.Fatalf("queues %+v (%v), want %d pending", queues, err, i+1)
		}
	}
	second.answered(t)
}

// A leader that is there and does not answer keeps its askers only for a while.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	fill(t, p.nc, history(10)...)
	var asked atomic.Int32
	if _, err := p.nc.Subscribe("penstock.v1.question.*", func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	queues, err := catalog.New(p.queue).Queues(t.Context())
	if err != nil || len(queues) != 1 || queues[0].Finished != 9 || asked.Load() == 0 {
		t.Errorf("queues %+v (%v), asked %d times", queues, err, asked.Load())
	}
}

// Jobs that change between two pages are in none of them twice, and none that was there all
// the time is left out.
func TestPagesOfWhatChanges(t *testing.T) {
	t.Parallel()
	for _, newest := range []bool{false, true} {
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprintf("newest %v, leader %v", newest, leads), func(t *testing.T) {
				t.Parallel()
				p := open(t, dispatcher.Hooks{})
				records := history(120)
				fill(t, p.nc, records...)
				if leads {
					p.run(t)
					p.answered(t)
				}
				c := catalog.New(p.queue)
				met := map[string]int{}
				for s := (catalog.Selection{Newest: newest, Limit: 25}); ; {
					page, more, err := c.List(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					for _, rec := range page {
						met[rec.ID]++
					}
					if !more {
						break
					}
					s.After = page[len(page)-1].ID
					for i := 5; i < len(records); i += 7 { // of pages before and behind
						records[i].Title += "x"
						fill(t, p.nc, records[i])
					}
					fill(t, p.nc, kept(1))
				}
				for _, rec := range records {
					if met[rec.ID] != 1 {
						t.Errorf("job %s is there %d times", rec.ID, met[rec.ID])
					}
					delete(met, rec.ID)
				}
				for id, n := range met {
					if n > 1 {
						t.Errorf("the new job %s is there %d times", id, n)
					}
				}
			})
		}
	}
}

// How many messages an answer takes does not depend on how many jobs are kept.
func TestAnswersDoNotGrow(t *testing.T) {
	t.Parallel()
	few := messages(t, 100)
	for try := 1; ; try++ {
		many, grown := messages(t, 3000), []string(nil)
		for name, n := range few {
			if many[name] > n {
				grown = append(grown, fmt.Sprintf("%s: %d messages with 3,000 jobs, %d with 100", name, many[name], n))
			}
		}
		if len(grown) == 0 {
			return
		}
		// On a busy machine the leader is not done with its start while it is counted.
		if try == 3 {
			t.Fatal(strings.Join(grown, "; "))
		}
	}
}

// queued waits until so many jobs of the queue default are in the broker's lanes.
func (p pool) queued(t *testing.T, want int) {
	t.Helper()
	js, err := jetstream.New(p.nc)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "every job in its lane", func() bool {
		there := 0
		for stream := range js.ListStreams(t.Context()).Info() {
			if strings.HasPrefix(stream.Config.Name, "PS_Q_DEFAULT_") {
				there += int(stream.State.Msgs)
			}
		}
		return there == want
	})
}

// messages is how many messages each read takes, in and out of the only connection of a
// pool with so many jobs.
func messages(t *testing.T, n int) map[string]uint64 {
	p := open(t, dispatcher.Hooks{})
	records := history(50) // as many are pending, and in the same lanes, however many there are
	for range n - len(records) {
		records = append(records, kept(1))
	}
	fill(t, p.nc, records...)
	p.run(t)
	p.answered(t)
	queued := 0
	var pending string
	for _, rec := range records {
		if rec.State == jobs.Pending {
			queued++
			if rec.Priority == jobs.Low {
				pending = rec.ID // its answer reads all lanes
			}
		}
	}
	p.queued(t, queued)
	c := catalog.New(p.queue)
	counts := map[string]uint64{}
	for name, read := range map[string]func() error{
		"page": func() error { _, _, err := c.List(t.Context(), catalog.Selection{Newest: true, Limit: 20}); return err },
		"rare": func() error {
			_, _, err := c.List(t.Context(), catalog.Selection{Filter: record.Filter{Outcome: jobs.Error}, Limit: 20})
			return err
		},
		"queues":  func() error { _, err := c.Queues(t.Context()); return err },
		"batches": func() error { _, err := c.Batches(t.Context(), ""); return err },
		"dead":    func() error { _, err := p.queue.DeadLetters().List(t.Context()); return err },
		"why":     func() error { _, err := c.Why(t.Context(), pending); return err },
	} {
		// The least of several: what the leader does besides is counted, too.
		for range 40 {
			before := p.nc.Stats()
			if err := read(); err != nil {
				t.Fatal(err)
			}
			after := p.nc.Stats()
			took := after.InMsgs - before.InMsgs + after.OutMsgs - before.OutMsgs
			if least, ok := counts[name]; !ok || took < least {
				counts[name] = took
			}
		}
	}
	return counts
}
