package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// A submission is what Submit has returned.
type submission struct {
	operation.Submitted
	err error
}

// submitting calls Submit of a client that soon submits again.
func submitting(ctx context.Context, c *client.Client, job jobs.Job) <-chan submission {
	client.SubmitAgainAfter(c, 100*time.Millisecond)
	done := make(chan submission, 1)
	go func() {
		made, err := c.Submit(ctx, job)
		done <- submission{made, err}
	}()
	return done
}

// unansweringPool is a pool that hears a client, whose answers get lost on the way.
func unansweringPool(t *testing.T) (*queue.Queue, *flaky.Proxy, *client.Client) {
	t.Helper()
	server := jobstest.Start(t)
	q := serveOn(t, server.Connect())
	proxy := server.Proxy()
	c := open(t, jobstest.Connect(t, proxy.URL()), client.Config{})
	if _, err := c.Get(jobstest.Context(t), jobs.NewID()); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("the pool answers %v", err)
	}
	proxy.Blackhole()
	return q, proxy, c
}

// stored waits until a pool has stored a job.
func stored(t *testing.T, q *queue.Queue) {
	t.Helper()
	for ctx := jobstest.Context(t); ; time.Sleep(5 * time.Millisecond) {
		list, err := q.List(ctx, record.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			return
		}
	}
}

// onlyJob checks that one job came of a submission.
func onlyJob(t *testing.T, q *queue.Queue, got submission) {
	t.Helper()
	if got.err != nil || got.Duplicate {
		t.Errorf("submitted: %+v, %v", got.Submitted, got.err)
	}
	list, err := q.List(jobstest.Context(t), record.Filter{})
	if err != nil || len(list) != 1 || list[0].ID != got.ID {
		t.Errorf("%d jobs, %v, want the one of the answer", len(list), err)
	}
	if claim := jobstest.Claim(t, q, "w"); claim.Record().ID != got.ID {
		t.Errorf("claimed %s", claim.Record().ID)
	}
}

// A job without a key is one job, though the answer to its submitter got lost.
func TestALostAnswerIsOneJob(t *testing.T) {
	t.Parallel()
	q, proxy, c := unansweringPool(t)
	done := submitting(jobstest.Context(t), c, plain())
	stored(t, q)
	proxy.Heal()
	onlyJob(t, q, <-done)
}

// A job without a key is one job, though the dispatcher that stored it died before it
// could answer, and another one takes its place.
func TestADispatcherDiesBeforeItAnswers(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	nc, requests := server.Connect(), server.Connect()
	q, log, store := jobstest.Queue(t, nc, queue.Config{}), jobstest.Log(t, nc), jobstest.Store(t, nc)
	// The first dispatcher loses the connection of its requests while it looks at the
	// job: what it stores goes another way, and its answer nowhere.
	d := dispatcher.New(dispatcher.Config{Queue: q, Log: log, Store: store, Able: func(jobs.Job) error {
		requests.Close()
		return nil
	}})
	first := api.New(api.Config{Dispatcher: d, Queue: jobstest.Queue(t, requests, queue.Config{}), Log: log, Store: store, Audit: jobstest.Audit(t, requests)})
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dead := make(chan error, 1)
	go func() { dead <- first.Serve(ctx) }()

	done := submitting(jobstest.Context(t), open(t, server.Connect(), client.Config{}), plain())
	stored(t, q)
	kill()
	t.Logf("the first dispatcher: %v", <-dead)
	serveOn(t, server.Connect())
	onlyJob(t, q, <-done)
}

// Where the pool does not answer at all, the error comes with the id that the job has
// if it was stored.
func TestASubmissionThatIsGivenUp(t *testing.T) {
	t.Parallel()
	q, _, c := unansweringPool(t)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := submitting(ctx, c, plain())
	stored(t, q)
	giveUp()
	got := <-done
	if _, err := q.Get(jobstest.Context(t), got.ID); got.err == nil || err != nil {
		t.Errorf("submitted: %+v, %v; job: %v", got.Submitted, got.err, err)
	}
}

// withCapsule returns a finished job that can be forked.
func withCapsule(t *testing.T, server *jobstest.Server, q *queue.Queue) string {
	t.Helper()
	ctx := jobstest.Context(t)
	job := jobstest.Job()
	job.Isolation, job.Repo.URL = jobs.IsolationWorktree, "/src/app"
	rec := jobstest.Submit(t, q, job)
	claim := jobstest.Claim(t, q, "w")
	c := jobs.Capsule{
		Format: artifact.CapsuleFormat, Job: rec.ID, Epoch: claim.Epoch(), Agent: rec.Agent, Conversation: "x", Turn: 1,
		Work: &jobs.Salvage{Job: rec.ID, Epoch: claim.Epoch()},
	}
	store := jobstest.Store(t, server.Connect())
	var err error
	c.Home, err = store.PutPart(ctx, rec.ID, claim.Epoch(), strings.NewReader("talk"))
	if err = errors.Join(err, store.PutCapsule(ctx, c, jobs.Capsule{})); err != nil {
		t.Fatal(err)
	}
	if _, err := claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
		t.Fatal(err)
	}
	return rec.ID
}

func list(t *testing.T, q *queue.Queue) []jobs.Record {
	t.Helper()
	found, err := q.List(jobstest.Context(t), record.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What makes a job in other ways than by Submit makes one, though the answer got lost.
func TestALostAnswerToForkAndRun(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	q := serveOn(t, server.Connect())
	ctx := jobstest.Context(t)
	direct := open(t, server.Connect(), client.Config{})
	if _, err := direct.Schedules().Add(ctx, calendar.Schedule{Name: "s", Every: jobs.Duration(24 * time.Hour), Job: plain()}); err != nil {
		t.Fatal(err)
	}
	origin := withCapsule(t, server, q)
	for what, ask := range map[string]func(c *client.Client) (string, error){
		"schedule-run": func(c *client.Client) (string, error) {
			rec, err := c.Schedules().Run(ctx, "s")
			return rec.LastJob, err
		},
		"fork": func(c *client.Client) (string, error) {
			forks, err := c.Fork(ctx, origin, "another way", 1)
			if err != nil || len(forks) != 1 || forks[0].Duplicate {
				return "", fmt.Errorf("%+v: %w", forks, err)
			}
			return forks[0].ID, nil
		},
	} {
		before := list(t, q)
		proxy := server.Proxy()
		c := open(t, jobstest.Connect(t, proxy.URL()), client.Config{})
		client.SubmitAgainAfter(c, 100*time.Millisecond)
		proxy.Blackhole()
		made, done := "", make(chan error, 1)
		go func() {
			var err error
			made, err = ask(c)
			done <- err
		}()
		for len(list(t, q)) == len(before) && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		proxy.Heal()
		if err := errors.Join(<-done, ctx.Err()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		after := list(t, q)
		if len(after) != len(before)+1 || !slices.ContainsFunc(after, func(rec jobs.Record) bool { return rec.ID == made }) {
			t.Errorf("%s: %d jobs more, want the one of the answer, %s", what, len(after)-len(before), made)
		}
	}
}

// A patient client waits for a dispatcher, and another one says that there is none.
func TestAPatientClientWaitsForADispatcher(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	q := jobstest.Queue(t, server.Connect(), queue.Config{})
	rec := jobstest.Submit(t, q, plain())
	ctx := jobstest.Context(t)
	c := open(t, server.Connect(), client.Config{})
	waits := make(chan error, 1000)
	patient := c.Patient(func(why error) { waits <- why })

	done := make(chan error, 3)
	go func() { _, err := patient.Get(ctx, rec.ID); done <- err }()
	go func() { _, err := patient.Cancel(ctx, rec.ID); done <- err }()
	go func() { _, err := patient.Submit(ctx, plain()); done <- err }()
	if _, err := c.Get(ctx, rec.ID); !errors.Is(err, client.ErrNoDispatcher) {
		t.Errorf("without a dispatcher: %v", err)
	}
	if why := <-waits; !errors.Is(why, client.ErrNoDispatcher) {
		t.Errorf("it waits because of %v", why)
	}
	serveOn(t, server.Connect())
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
