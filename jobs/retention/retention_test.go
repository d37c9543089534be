package retention_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/retention"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool has all that a job may leave something in.
type pool struct {
	*testing.T
	srv   *jobstest.Server
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
}

func newPool(t *testing.T) *pool {
	srv := jobstest.Start(t)
	nc := srv.Connect()
	return &pool{t, srv, jobstest.Queue(t, nc, queue.Config{}), jobstest.Log(t, nc), jobstest.Store(t, nc)}
}

// leads returns what a process that begins to lead knows, and how many jobs it removes.
func (p *pool) leads(rules ...retention.Rule) (*retention.Keeper, *int) {
	p.Helper()
	removed := new(int)
	k := retention.New(retention.Config{
		Queue: p.queue, Catalog: catalog.New(p.queue), Purger: purge.New(p.queue, p.store),
		Rules: rules, Pool: 30 * 24 * time.Hour, Logger: slog.New(slog.DiscardHandler), Removed: func(n int) { *removed += n },
	})
	p.reads(k)
	return k, removed
}

func (p *pool) reads(k *retention.Keeper) {
	p.Helper()
	for change, err := range p.queue.Changed(p.Context(), 0) {
		p.must(err)
		k.Note(change)
	}
}

// submits submits a job with an event. It runs until ends.
func (p *pool) submits(change func(*jobs.Job)) jobs.Record {
	p.Helper()
	job := jobstest.Job()
	change(&job)
	rec := jobstest.Submit(p, p.queue, job)
	_, err := p.log.Append(p.Context(), session.Source{Job: rec.ID, Session: rec.Session}, event.New(event.JobSubmitted{Queue: rec.Queue}))
	p.must(err)
	return rec
}

// ends has all jobs of a queue end that are pending.
func (p *pool) ends(recs ...jobs.Record) {
	p.Helper()
	for range recs {
		_, err := jobstest.Claim(p, p.queue, "w").Settle(p.Context(), jobs.Ended{Outcome: jobs.Success}, nil)
		p.must(err)
	}
}

func (p *pool) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// is checks which jobs are there, and that of those that are gone nothing is left.
func (p *pool) is(when string, rec jobs.Record, there bool) {
	p.Helper()
	_, err := p.queue.Get(p.Context(), rec.ID)
	events := 0
	for _, err := range p.log.Read(p.Context(), rec.Session, 1) {
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			p.Error(err)
		}
		events++
	}
	if there != (err == nil) || there != (events > 0) || !there && !errors.Is(err, jobs.ErrPurged) {
		p.Errorf("%s: job %s has %d events, and its record: %v; want it kept: %t", when, rec.ID, events, err, there)
	}
}

// What a rule is about goes when its time is over, whoever leads then; all else stays.
func TestRulesRemoveJobs(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	label := func(owner string) func(*jobs.Job) {
		return func(j *jobs.Job) { j.Labels = map[string]string{"owner": owner} }
	}
	ann, bob, plain := p.submits(label("ann")), p.submits(label("bob")), p.submits(func(*jobs.Job) {})
	p.ends(ann, bob, plain)
	runs := p.submits(label("ann"))
	rules := []retention.Rule{{Key: "label:owner=*", Keep: 48 * time.Hour}, {Key: "label:owner=ann", Keep: time.Hour}}
	now := time.Now()
	k, removed := p.leads(rules...)
	retention.Remove(k, t.Context(), now.Add(30*time.Minute))
	p.is("before", ann, true)
	for range 2 {
		retention.Remove(k, t.Context(), now.Add(2*time.Hour))
	}
	p.is("after its time", ann, false)
	p.is("another owner", bob, true)
	p.is("an open job", runs, true)
	if *removed != 1 {
		t.Errorf("%d jobs were removed", *removed)
	}
	k, removed = p.leads(rules...)
	retention.Remove(k, t.Context(), now.Add(60*time.Hour))
	p.is("after its time", bob, false)
	p.is("without a rule", plain, true)
	p.is("an open job", runs, true)
	rec, err := p.queue.Get(t.Context(), plain.ID)
	p.must(err)
	if got := k.Until(rec); !got.Equal(rec.Finished.Add(30*24*time.Hour)) || *removed != 1 {
		t.Errorf("%d jobs were removed; one without a rule is kept until %v", *removed, got)
	}
	if got := k.Until(runs); !got.IsZero() {
		t.Errorf("an open job is kept until %v", got)
	}
}

// A session goes as a whole, when the last of its jobs may.
func TestRulesKeepASessionTogether(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	first := p.submits(func(j *jobs.Job) { j.Labels = map[string]string{"keep": "short"} })
	second := p.submits(func(j *jobs.Job) {
		j.Session = first.Session
		j.Labels = map[string]string{"keep": "long"}
	})
	p.ends(first)
	rules := []retention.Rule{{Key: "label:keep=short", Keep: time.Hour}, {Key: "label:keep=long", Keep: 12 * time.Hour}}
	now := time.Now()
	k, removed := p.leads(rules...)
	retention.Remove(k, t.Context(), now.Add(2*time.Hour))
	p.is("another job of the session runs", first, true)
	p.ends(second)
	p.reads(k)
	retention.Remove(k, t.Context(), now.Add(4*time.Hour))
	p.is("another job of the session is kept for longer", first, true)
	p.is("its time is not over", second, true)
	retention.Remove(k, t.Context(), now.Add(14*time.Hour))
	p.is("the time of both is over", first, false)
	p.is("the time of both is over", second, false)
	if *removed != 2 {
		t.Errorf("%d jobs were removed", *removed)
	}
}

// Whoever leads ends a purge that was interrupted, also where there are no rules.
func TestAnInterruptedPurgeEnds(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	rec, other := p.submits(func(*jobs.Job) {}), p.submits(func(*jobs.Job) {})
	p.ends(rec, other)
	js, err := p.srv.Connect().JetStream()
	p.must(err)
	kv, err := js.KeyValue("ps_jobs")
	p.must(err)
	key := rec.Class + "." + rec.ID
	entry, err := kv.Get(key)
	p.must(err)
	_, err = kv.Put(key, []byte(strings.Replace(string(entry.Value()), "{", `{"purging":true,`, 1)))
	p.must(err)
	k, removed := p.leads()
	retention.Remove(k, t.Context(), time.Now().Add(time.Second))
	p.is("it may still be under way", other, true)
	if *removed != 0 {
		t.Error("a purge that has just begun was taken over")
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	retention.Remove(k, over, time.Now().Add(time.Minute)) // this one is ended, too
	retention.Remove(k, t.Context(), time.Now().Add(time.Minute))
	p.is("interrupted", rec, false)
	p.is("not purged", other, true)
}

func TestRulesThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	most := 30 * 24 * time.Hour
	for _, r := range []retention.Rules{
		{{Key: "queue", Keep: time.Hour}}, {{Key: "colour:red", Keep: time.Hour}}, {{Key: "queue:a", Keep: most + 1}},
		{{Key: "queue:a", Keep: time.Hour}, {Key: "queue:a", Keep: 2 * time.Hour}}, make(retention.Rules, retention.MaxRules+1),
	} {
		if err := r.Check(most); err == nil {
			t.Errorf("%v was accepted", r)
		}
	}
	rules := retention.Rules{{Key: "queue:*", Keep: 3 * time.Hour}, {Key: "label:owner=ann", Keep: time.Hour}, {Key: "queue:fast", Keep: 2 * time.Hour}}
	for queueName, want := range map[string]time.Duration{"fast": time.Hour, "slow": time.Hour} {
		if got, ok := rules.Keep(jobs.Record{Queue: queueName, Labels: map[string]string{"owner": "ann"}}); !ok || got != want {
			t.Errorf("%s, ann: %v", queueName, got)
		}
	}
	if got, ok := rules.Keep(jobs.Record{Queue: "fast"}); !ok || got != 2*time.Hour {
		t.Errorf("fast: %v", got)
	}
	if _, ok := rules.Keep(jobs.Record{}); ok {
		t.Error("a rule is about a job that has nothing of it")
	}
}
