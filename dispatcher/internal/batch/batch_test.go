package batch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

const line = `{"prompt":"x","isolation":"none","agent":{"command":["true"]}}` + "\n"

// A line has the defaults for what it leaves out, and a name of its own.
func TestRead(t *testing.T) {
	items, err := Read(strings.NewReader(line+strings.Replace(line, "{", `{"queue":"fast","item":"two",`, 1)), jobs.Job{Queue: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 2 || items[0].Job.Queue != "slow" || items[1].Job.Queue != "fast" || items[0].ID == "" || items[1].ID != "two" {
		t.Errorf("got %+v", items)
	}
	if _, err := Read(strings.NewReader(strings.Repeat(line, maxItems+1)), jobs.Job{}); err == nil || !strings.Contains(err.Error(), "10000") {
		t.Errorf("too many lines: %v", err)
	}
}

// Where the pool does not answer, an error says what it has taken, and no more is sent.
func TestSubmitWithoutAPool(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	jobstest.Queue(t, nc, queue.Config{})
	jobstest.Log(t, nc)
	jobstest.Store(t, nc)
	c, err := client.Open(jobstest.Context(t), nc, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	items, err := Read(strings.NewReader(line+line), jobs.Job{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(jobstest.Context(t), 200*time.Millisecond)
	defer cancel()
	_, err = Submit(ctx, c, "b", items)
	coded, ok := errors.AsType[*jobs.CodedError](err)
	if !ok || coded.Code != jobs.CodeUnavailable || !strings.Contains(coded.Message, "0 of 2 jobs") {
		t.Errorf("got %v", err)
	}
}
