package jobstest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

func TestServersKeepWhatTheyHave(t *testing.T) {
	child := jobstest.Child(t)
	q := jobstest.Queue(t, jobstest.Connect(t, child.URL()), queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	child.Kill()
	child.Up()
	// The lane may have lost it, but not the record, by which a leader enqueues it again.
	rec, err := q.Get(jobstest.Context(t), rec.ID)
	if err == nil {
		err = q.Enqueue(jobstest.Context(t), rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := jobstest.Claim(t, q, "w").Record().ID; got != rec.ID {
		t.Errorf("claimed %s, want %s", got, rec.ID)
	}
}

func TestFault(t *testing.T) {
	f := jobstest.FailNth(2)
	for i, want := range []bool{false, true, false} {
		if got := f.Check("step") != nil; got != want {
			t.Errorf("step %d failed: %v, want %v", i+1, got, want)
		}
	}
	if f.Step() != "step" || jobstest.FailNth(1).Step() != "" {
		t.Error("the step that failed is not named")
	}
}
