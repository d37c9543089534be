package quota_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

func quotas(t *testing.T, list ...string) (all quota.Quotas) {
	t.Helper()
	for _, text := range list {
		q, err := quota.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	if err := all.Check(); err != nil {
		t.Fatal(err)
	}
	return all
}

func ofOwner(owner string) jobs.Record {
	return jobs.Record{ID: jobs.NewID(), Queue: "default", Agent: "command", State: jobs.Pending, Labels: map[string]string{"owner": owner}}
}

// Of jobs that come through several doors at the same time as many are admitted as there are places: the
// leader counts, whoever accepts. A job that ends gives its place back, and the same job again needs none.
func TestDoorsAdmitAsManyAsMayBeOpen(t *testing.T) {
	t.Parallel()
	ctx, srv := jobstest.Context(t), jobstest.Start(t)
	of := quotas(t, "label:owner=*=10", "label:owner=ann=3", "queue:default=25")
	leader := quota.New(jobstest.Queue(t, srv.Connect(), queue.Config{}), of)
	other := quota.New(jobstest.Queue(t, srv.Connect(), queue.Config{}), of)
	if err := other.Admit(ctx, ofOwner("ann")); err != nil {
		t.Errorf("nobody leads: %v", err)
	}
	leader.Lead(true)
	serving, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); leader.Run(serving) }()
	defer func() { stop(); <-ended }()
	for range 10 {
		leader.Note(record.Change{Entry: record.Entry{Record: jobs.Record{ID: jobs.NewID(), Labels: map[string]string{"owner": "full"}}}})
	}
	full := ofOwner("full")
	for jobs.Code(other.Admit(ctx, full)) != jobs.CodeQuota { // until the leader answers
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	var admitted, refused atomic.Int32
	var g errgroup.Group
	g.SetLimit(16)
	for n := range 60 {
		g.Go(func() error {
			door, owner := leader, "bob"
			if n%2 == 1 {
				door = other
			}
			if n%3 == 0 {
				owner = "ann"
			}
			rec := ofOwner(owner)
			err := door.Admit(ctx, rec)
			full, ok := errors.AsType[*jobs.QuotaError](err)
			switch {
			case err == nil:
				admitted.Add(1)
				if err := door.Admit(ctx, rec); err != nil { // asked again
					return err
				}
				leader.Note(record.Change{Entry: record.Entry{Record: rec}})
			case !ok || full.Used < full.Most || !strings.HasPrefix(full.Key, "label:owner="+owner):
				return err
			default:
				refused.Add(1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if admitted.Load() != 13 || refused.Load() != 47 {
		t.Errorf("%d were admitted and %d refused, want 10 of one owner and 3 of another", admitted.Load(), refused.Load())
	}
	carol := ofOwner("carol")
	for range 10 { // which fills the queue but for two
		carol = ofOwner("carol")
		if err := other.Admit(ctx, carol); err != nil {
			t.Error(err)
		}
	}
	if err := other.Admit(ctx, ofOwner("carol")); jobs.Code(err) != jobs.CodeQuota {
		t.Errorf("an 11th: %v", err)
	}
	carol.State = jobs.Finished
	want := []quota.Usage{
		{Key: "label:owner=*", Unit: quota.OpenJobs, Used: 10, Most: 10}, {Key: "label:owner=ann", Unit: quota.OpenJobs, Used: 3, Most: 3},
		{Key: "queue:default", Unit: quota.OpenJobs, Used: 23, Most: 25},
	}
	for _, door := range []*quota.Door{leader, other} {
		if all, err := door.Usage(ctx); err != nil || !slices.Equal(all, want) {
			t.Errorf("usage is %v, err %v, want %v", all, err, want)
		}
	}
	leader.Note(record.Change{Entry: record.Entry{Record: carol}})
	leader.Note(record.Change{Entry: record.Entry{Record: carol}})
	if err := other.Admit(ctx, ofOwner("carol")); err != nil {
		t.Errorf("one has ended: %v", err)
	}
	if err := other.Admit(ctx, ofOwner("carol")); jobs.Code(err) != jobs.CodeQuota {
		t.Errorf("an 11th: %v", err)
	}
	leader.Lead(false)
	leader.Lead(true) // and reads the records
	for range 3 {
		leader.Note(record.Change{Entry: record.Entry{Record: ofOwner("ann")}})
	}
	if err := other.Admit(ctx, ofOwner("ann")); jobs.Code(err) != jobs.CodeQuota {
		t.Errorf("after a change of the leader: %v", err)
	}
	if err := other.Admit(ctx, jobs.Record{ID: jobs.NewID(), Queue: "another"}); err != nil {
		t.Errorf("a job that no quota is about: %v", err)
	}
}

// Bytes count as long as a job is kept: also while it runs, as often as it says how many, and when it
// has finished. A quota of bytes and one of jobs with the same key do not replace each other.
func TestBytesCountUntilAJobIsGone(t *testing.T) {
	t.Parallel()
	ctx, srv := jobstest.Context(t), jobstest.Start(t)
	door := quota.New(jobstest.Queue(t, srv.Connect(), queue.Config{}), quotas(t, "label:owner=*=2", "label:owner=*=1MiB", "label:owner=bob=3MiB", "queue:default=10MiB"))
	door.Lead(true)
	note := func(rec jobs.Record, state jobs.State, stored int64) {
		rec.State, rec.Stored = state, stored
		door.Note(record.Change{Entry: record.Entry{Record: rec}})
	}
	refused := func(what, owner, want string) {
		t.Helper()
		err := door.Admit(ctx, ofOwner(owner))
		if full, ok := errors.AsType[*jobs.QuotaError](err); !ok || !strings.Contains(full.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	first := ofOwner("ann")
	if err := door.Admit(ctx, first); err != nil {
		t.Fatal(err)
	}
	note(first, jobs.Executing, 1<<20-1)
	second := ofOwner("ann")
	if err := door.Admit(ctx, second); err != nil {
		t.Errorf("one byte is left: %v", err)
	}
	refused("a third one", "ann", "2 jobs are open, of 2")
	note(second, jobs.Finished, 0)
	note(first, jobs.Executing, 1<<20)
	refused("while the first one runs", "ann", "label:owner=ann: 1MiB are stored, of 1MiB")
	note(first, jobs.Finished, 3<<20+1)
	refused("when it has finished", "ann", "label:owner=ann: 4MiB are stored, of 1MiB")
	of := ofOwner("bob")
	note(of, jobs.Finished, 2<<20)
	if err := door.Admit(ctx, ofOwner("bob")); err != nil {
		t.Errorf("a value with a quota of its own: %v", err)
	}
	want := []quota.Usage{
		{Key: "label:owner=*", Unit: quota.OpenJobs, Used: 1, Most: 2}, {Key: "label:owner=*", Unit: quota.StoredBytes, Used: 3<<20 + 1, Most: 1 << 20},
		{Key: "label:owner=bob", Unit: quota.StoredBytes, Used: 2 << 20, Most: 3 << 20}, {Key: "queue:default", Unit: quota.StoredBytes, Used: 5<<20 + 1, Most: 10 << 20},
	}
	if all, err := door.Usage(ctx); err != nil || !slices.Equal(all, want) {
		t.Errorf("usage is %v, err %v, want %v", all, err, want)
	}
	for range 2 {
		door.Note(record.Change{Entry: record.Entry{Record: first}, Gone: true})
	}
	if err := door.Admit(ctx, ofOwner("ann")); err != nil {
		t.Errorf("the job is gone: %v", err)
	}
	if all, _ := door.Usage(ctx); all[3].Used != 2<<20 {
		t.Errorf("usage is %v, want 2 MiB of the queue", all)
	}
}

func TestQuotasThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "queue:a", "queue:a=x", "queue:a=0", "queue:a=-1", "queue:a=1000001", "queue:a=0MiB", "queue:a=1.5", "queue:a=1XB", "queue:a=GiB", "queue=3", "colour:red=3", "label:team=3"} {
		if q, err := quota.Parse(text); err == nil {
			t.Errorf("%q was taken for %v", text, q)
		}
	}
	if err := (quota.Quotas{{"queue:a", quota.StoredBytes, 1}, {"queue:a", quota.StoredBytes, 2}}).Check(); err == nil {
		t.Error("two quotas of one key were accepted")
	}
	if err := make(quota.Quotas, quota.MaxQuotas+1).Check(); err == nil {
		t.Error("too many quotas were accepted")
	}
}
