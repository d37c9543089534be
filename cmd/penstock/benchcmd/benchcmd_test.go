package benchcmd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Times are those of the nearest rank: each was really taken.
func TestSpread(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Second)
	}
	for _, test := range []struct {
		times []time.Duration
		want  Times
	}{
		{nil, Times{}},
		{[]time.Duration{time.Second}, Times{1, 1, 1, 1, 1}},
		{[]time.Duration{3 * time.Second, time.Second, 2 * time.Second}, Times{3, 2, 3, 3, 3}},
		{hundred, Times{100, 50, 95, 99, 100}},
	} {
		if got := spread(test.times); got != test.want {
			t.Errorf("of %d times: %+v, want %+v", len(test.times), got, test.want)
		}
	}
}

// No more jobs become due in a second than the rate allows, also after clients were busy,
// and none does when the load has ended.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := newRun(cli.Shell{}, nil, load{jobs: 100, rate: 10})
		due, began := make(chan int), time.Now()
		go r.pace(ctx, due)
		for i := range 20 {
			if got := <-due; got != i {
				t.Errorf("job %d is due, want %d", got, i)
			}
			if i == 5 {
				time.Sleep(time.Second) // the clients are busy: one job waits for them, and a tick for the next
			}
		}
		if took := time.Since(began); took < 2700*time.Millisecond || took > 2900*time.Millisecond {
			t.Errorf("20 jobs were due within %v", took)
		}
		stop()
		for range due {
			t.Error("a job is due after the end")
		}
	})
}

// The answer to a submission under way is awaited for a while after the end of a load.
func TestLingering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithCancel(t.Context())
		late, cancel := lingering(parent, time.Minute)
		stop()
		time.Sleep(59 * time.Second)
		if late.Err() != nil {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Second)
		if !errors.Is(late.Err(), context.Canceled) {
			t.Error("it has not ended")
		}
		cancel()
		answered, cancel := lingering(parent, time.Minute)
		cancel()
		if answered.Err() == nil {
			t.Error("it goes on although there is an answer")
		}
	})
}

// A load without words is one of jobs that need nothing, all in one batch.
func TestComplete(t *testing.T) {
	t.Parallel()
	l := load{jobs: 1, clients: 1, timeout: time.Second, job: jobs.Job{Queue: "bench"}}
	if err := l.complete(nil, false); err != nil {
		t.Fatal(err)
	}
	if l.job.Isolation != jobs.IsolationNone || l.job.Agent.Command[0] != "true" || l.job.Retry.MaxAttempts != 1 || l.job.Batch == "" {
		t.Errorf("the job is %+v", l.job)
	}
}
