package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/why"
)

// must ends a test that could not be prepared.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// submit hands in a job with changes, and returns its record.
func (p *pool) submit(changes ...func(*jobs.Job)) jobs.Record {
	p.t.Helper()
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	for _, change := range changes {
		change(&job)
	}
	return jobstest.Submit(p.t, p.queue, job)
}

// ended hands in a job and settles it. If it succeeds, it has changed something.
func (p *pool) ended(end jobs.Ended, changes ...func(*jobs.Job)) jobs.Record {
	p.t.Helper()
	if end.Outcome == jobs.Success {
		return p.endedWith(patch, end, changes...)
	}
	return p.endedWith("", end, changes...)
}

// endedWith hands in a job and settles it, with a patch if that is not empty.
func (p *pool) endedWith(patch string, end jobs.Ended, changes ...func(*jobs.Job)) jobs.Record {
	p.t.Helper()
	p.submit(append(changes, func(job *jobs.Job) { job.Retry.MaxAttempts = 1 })...)
	claim := jobstest.Claim(p.t, p.queue, "build-7")
	claim.Spend(jobs.Spent{CostUSD: 0.37})
	if patch != "" {
		_, err := p.store.Put(jobstest.Context(p.t), claim.Record().ID, claim.Epoch(), jobs.PatchName, strings.NewReader(patch))
		must(p.t, err)
	}
	rec, err := claim.Settle(jobstest.Context(p.t), end, nil)
	must(p.t, err)
	return rec
}

// asks has the agent of a job that runs wait with a question, until the test ends.
func (p *pool) asks(claim *queue.Claim, open jobs.OpenAsk) {
	p.t.Helper()
	ctx, stop := context.WithCancel(jobstest.Context(p.t))
	kept := make(chan error, 1)
	go func() { kept <- claim.Keep(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-kept; err != nil && !errors.Is(err, context.Canceled) {
			p.t.Errorf("keep: %v", err)
		}
	})
	claim.Ask(&open)
	claim.Renew()
	for rec, err := range p.queue.Watch(ctx, record.Filter{State: jobs.Executing}) {
		must(p.t, err)
		if rec.Asks != nil {
			return
		}
	}
}

// delivers adds a webhook with attempts to deliver.
func (p *pool) delivers(name string, attempts ...operation.Delivery) {
	p.t.Helper()
	ctx := jobstest.Context(p.t)
	_, _, err := p.client.Webhooks().Add(ctx, operation.WebhookRequest{Name: name, URL: "https://ci.example/hooks/penstock?from=pool", Events: []string{"job.finished"}})
	must(p.t, err)
	hook, err := p.hooks.Hook(ctx, name)
	must(p.t, err)
	for i, d := range attempts {
		d.ID, d.Webhook, d.Event, d.Type, d.At = fmt.Sprint(i+1), name, jobs.NewID(), "job.finished", time.Now().UTC()
		must(p.t, p.hooks.Append(ctx, hook.ID, d))
	}
}

// patch is what each job changes that succeeds.
const patch = "diff --git a/go.sum b/go.sum\nindex 1..2 100644\n--- a/go.sum\n+++ b/go.sum\n@@ -7 +7,2 @@\n-old\n+new\n+and newer\n" +
	"diff --git a/Makefile b/Makefile\nnew file mode 100644\nindex 0..2\n--- /dev/null\n+++ b/Makefile\n@@ -0,0 +1 @@\n+all:\n"

func prompt(text string) func(*jobs.Job) { return func(job *jobs.Job) { job.Prompt = text } }

func inBatch(name, item string) func(*jobs.Job) {
	return func(job *jobs.Job) { job.Batch, job.Item = name, item }
}

// fill makes the pool of a busy afternoon: something on every page.
func (p *pool) fill() {
	t, ctx := p.t, jobstest.Context(p.t)
	t.Helper()
	for i, text := range []string{"Fix the race in the upload retry", "Port the settings page to the new form components, and keep the old addresses working as redirects", "Bump the compiler"} {
		p.ended(jobs.Ended{Outcome: jobs.Success}, prompt(text), inBatch("nightly-fixes", fmt.Sprintf("item-%d", i)))
	}
	p.ended(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob, Message: "the repository has no branch maintenance-2024"}, prompt("Backport the parser fix"), inBatch("nightly-fixes", "item-3"))
	p.ended(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: "go test ./... has failed"}, prompt("Make the flaky scheduler test deterministic"), inBatch("nightly-fixes", "item-4"), func(job *jobs.Job) {
		job.Labels = map[string]string{"team": "scheduling", "ticket": "SCHED-1482"}
	})
	p.ended(jobs.Ended{Outcome: jobs.Cancellation}, prompt("Rewrite it in another language"))
	migration := p.submit(prompt("Review the migration of accounts"), inBatch("nightly-fixes", "item-5"), func(job *jobs.Job) { job.Budget.BatchUSD = 7.77 })
	must(t, overlap.Of(p.queue.Workers()).Note(ctx, migration.ID, jobs.Overlap{Job: jobs.NewID(), Files: []string{"accounts.sql"}, Lines: []string{"accounts.sql"}}))
	p.asks(jobstest.Claim(t, p.queue, "build-7"), jobs.OpenAsk{Ask: "a", Type: "question", Question: "Two callers still use the old signature. Change them as well, or keep a wrapper?", Since: time.Now().Add(-4 * time.Minute), Open: 2})
	p.submit(prompt("Choose a format for the export"))
	_, err := jobstest.Claim(t, p.queue, "build-7").Park(ctx, "CSV or Parquet?", time.Now().Add(20*time.Hour))
	must(t, err)
	p.submit(prompt("Translate the error messages of the billing service, which come from three places"))
	jobstest.Claim(t, p.queue, "a-worker-with-a-rather-long-name-in-the-second-rack")
	for range 3 {
		p.submit(prompt("Add structured logging to the importer"), func(job *jobs.Job) { job.Queue = "low-priority-maintenance" })
	}
	p.submit(prompt("Supercalifragilisticexpialidocious_and_other_identifiers_without_any_space_in_them_at_all"), inBatch("another-batch", "x"), func(job *jobs.Job) { job.Queue = "gpu" })
	for _, w := range []why.Worker{
		{Name: "build-7", Queues: []string{"default", "gpu"}, Labels: []string{"docker", "gpu"}, Slots: 4, Busy: 1, Started: time.Now().Add(-50 * time.Hour)},
		{Name: "a-worker-with-a-rather-long-name-in-the-second-rack", Queues: []string{"default"}, Slots: 2, Busy: 1, Closed: "the disk of /var/lib/penstock has 3% free, less than the reserve of 5%", Started: time.Now().Add(-3 * time.Hour)},
	} {
		must(t, p.queue.Workers().Present(ctx, w))
	}
	book := ledger.Of(p.queue.Workers())
	gpu := ledger.Budget{Key: "queue:gpu", Amount: ledger.Amount{USD: 50, Tokens: 3_000_000}, Per: "day"}
	must(t, book.SetBudgets(ctx, ledger.Budgets{gpu, {Key: "pool", Amount: ledger.Amount{USD: 900}, Per: "month"}}))
	must(t, book.Add(ctx, gpu, time.Now(), ledger.Amount{USD: 43.21, Tokens: 1_234_567}))
	must(t, p.queue.Hold(ctx, jobs.Hold{Kind: jobs.HoldQueue, Name: "low-priority-maintenance", By: "cli", At: time.Now()}))
	must(t, p.queue.Reject(ctx, queue.Submission{ID: jobs.NewID(), Tenant: "default", At: time.Now(), Data: []byte(`{"promt": "Fix the failing test"}`)}, errors.New("promt: is not a field; did you mean prompt?")))
	template := jobstest.Job()
	template.Isolation = jobs.IsolationNone
	template.Prompt = "Update the dependencies, and open one change for each"
	for _, s := range []calendar.Schedule{{Name: "dependencies", Cron: "0 4 * * 1", Timezone: "Europe/Vienna"}, {Name: "hourly-sweep", Every: jobs.Duration(time.Hour)}} {
		s.Job = template
		_, err := p.queue.Timetable().Add(ctx, s.WithDefaults(), false)
		must(t, err)
	}
	_, _, err = p.client.Tokens().Add(ctx, "ci", jobs.RoleSubmitter, 90*24*time.Hour)
	must(t, err)
	_, _, err = p.client.Tokens().Add(ctx, "screen-on-the-wall", jobs.RoleViewer, 0)
	must(t, err)
	p.delivers("ci-results", operation.Delivery{State: operation.DeliveryDone, Status: 204, Attempt: 1}, operation.Delivery{
		State: operation.DeliveryRetried, Status: 500, Attempt: 2, Error: "the receiver answers 500 Internal Server Error", Response: "upstream connect error",
	})
	_, err = p.client.Schedules().Pause(ctx, "hourly-sweep")
	must(t, err)
}
