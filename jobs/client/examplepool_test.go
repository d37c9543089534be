package client_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// exampleJob is a job of the examples.
var exampleJob = jobs.Job{Prompt: "Paint the door", Repo: jobs.Repo{URL: "/src/app"}, Agent: jobs.Agent{Name: "claude"}}

// exampleTB is the testing.TB of an example, which gets none.
type exampleTB struct {
	testing.TB
	undo []func()
}

func (*exampleTB) Helper()                        {}
func (*exampleTB) Failed() bool                   { return false } // it panics
func (*exampleTB) Fatal(args ...any)              { panic(fmt.Sprint(args...)) }
func (*exampleTB) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (*exampleTB) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (tb *exampleTB) Cleanup(undo func())         { tb.undo = append(tb.undo, undo) }

func (tb *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (tb *exampleTB) end() {
	for _, undo := range slices.Backward(tb.undo) {
		undo()
	}
}

// examplePool returns a client of a pool of its own, with a dispatcher and a worker that
// does one job, unless it is nil.
func examplePool(do func(*exampleWorker) error) (*client.Client, func()) {
	tb := &exampleTB{}
	return open(tb, jobstest.Connect(tb, exampleURL(tb, do)), client.Config{}), tb.end
}

// exampleServer returns the address of such a pool.
func exampleServer(do func(*exampleWorker) error) (url string, stop func()) {
	tb := &exampleTB{}
	return exampleURL(tb, do), tb.end
}

func exampleURL(tb *exampleTB, do func(*exampleWorker) error) string {
	q, nc := serve(tb)
	if do == nil {
		return nc.ConnectedUrl()
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	tb.Cleanup(func() { stop(); <-done })
	w := &exampleWorker{ctx: ctx, queue: q, log: jobstest.Log(tb, nc), store: jobstest.Store(tb, nc)}
	go func() {
		defer close(done)
		// The example may have seen the end of the job before its worker has done all.
		if err := do(w); err != nil && ctx.Err() == nil {
			panic(err)
		}
	}()
	return nc.ConnectedUrl()
}

// An exampleWorker does what a worker does to the record and the log of a job, without
// an agent.
type exampleWorker struct {
	ctx   context.Context
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
}

// claim waits for a job, and begins its session.
func (w *exampleWorker) claim() (*queue.Claim, *session.Writer, error) {
	claim, err := w.queue.Claim(w.ctx, "w", []string{"default"})
	if err != nil {
		return nil, nil, err
	}
	rec := claim.Record()
	writer, err := w.log.Writer(w.ctx, session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()}, event.New(event.JobClaimed{}))
	return claim, writer, err
}

func (w *exampleWorker) finish(claim *queue.Claim) error {
	_, err := claim.Settle(w.ctx, jobs.Ended{Outcome: jobs.Success}, w.log.Finisher(w.store.Result))
	return err
}

// succeed does nothing, with success.
func succeed(w *exampleWorker) error {
	claim, _, err := w.claim()
	if err != nil {
		return err
	}
	return w.finish(claim)
}

// ask asks a question and succeeds when it is answered.
func ask(w *exampleWorker) error {
	claim, writer, err := w.claim()
	if err != nil {
		return err
	}
	rec, answered := claim.Record(), make(chan struct{})
	stop, err := w.log.Listen(rec.Session, nil, func(m control.Message) (control.Receipt, error) {
		close(answered)
		return control.Receipt{ID: m.ID, Verb: m.Verb, Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, State: control.Accepted}, nil
	})
	if err != nil {
		return err
	}
	defer stop()
	questions := []byte(`[{"question":"Which color?","options":[{"label":"Red"},{"label":"Blue"}]}]`)
	if err := writer.Append(w.ctx, event.New(event.AskOpened{Ask: "a", Type: "question", Questions: questions})); err != nil {
		return err
	}
	select {
	case <-answered:
		return w.finish(claim)
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}
