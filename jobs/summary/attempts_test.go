package summary

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// An attempt that was lost has no event of its own end: the next one tells of it.
func TestALostAttempt(t *testing.T) {
	t.Parallel()
	var found Attempts
	for n, payload := range []event.Payload{
		event.JobClaimed{Worker: "w1", Epoch: 4},
		event.JobClaimed{Worker: "w2", Epoch: 9, Lost: &jobs.Ended{Reason: jobs.WorkerLost, Message: "silent"}},
		event.JobRequeued{Reason: jobs.RateLimited},
	} {
		e := event.New(payload)
		e.Time, e.Attempt = time.Unix(int64(n), 0), n+1
		if err := found.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := json.Marshal(found.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Attempts) != 2 || found.Attempts[0].Reason != jobs.WorkerLost || found.Attempts[0].Message != "silent" || !found.Attempts[0].Ended.Equal(time.Unix(1, 0)) ||
		found.Attempts[1].End != jobs.JobRequeued || found.Attempts[1].Reason != jobs.RateLimited {
		t.Errorf("attempts: %s", got)
	}
}
