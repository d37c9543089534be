package deliver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/webhook"
)

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A secret that was replaced signs beside the new one, and neither is told or printed.
func TestRotation(t *testing.T) {
	p := newPool(t)
	r := receive(t, takesAll)
	p.add("ci", r.URL)
	p.lead()
	const fresh = "whsec_QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
	want := operation.WebhookRequest{Name: "ci", URL: r.URL, Secret: fresh}
	if _, err := p.store.Add(jobstest.Context(t), want, "test", false); !errors.Is(err, jobs.ErrExists) {
		t.Errorf("added again: %v", err)
	}
	replaced, err := p.store.Add(jobstest.Context(t), want, "test", true)
	if err != nil || replaced.Rotating == nil || time.Until(*replaced.Rotating) < 23*time.Hour {
		t.Fatalf("replaced: %+v, %v", replaced, err)
	}
	if again, err := p.store.Add(jobstest.Context(t), want, "test", true); err != nil || !again.Changed.Equal(replaced.Changed) {
		t.Errorf("the request again: %+v, %v", again, err)
	}
	p.tell("j1", jobs.JobSubmitted)
	p.until("it has arrived", func() bool { return len(r.all()) == 1 })
	got := r.all()[0]
	for _, one := range []string{secret, fresh} {
		check, err := standardwebhooks.NewWebhook(one)
		if err != nil {
			t.Fatal(err)
		}
		if err := check.Verify(got.body, got.header); err != nil {
			t.Errorf("the signature by %s: %v", one[:12], err)
		}
	}
	h, err := p.store.Hook(jobstest.Context(t), "ci")
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", h, h.Previous, h.Secret), string(jsonOf(t, p.hook("ci"))), p.said.String()} {
		if strings.Contains(shown, "QUFB") || strings.Contains(shown, "MfKQ9r8") {
			t.Errorf("a secret is shown: %s", shown)
		}
	}
}

// Only events of jobs that a webhook wants are sent, also the first event of a job, which
// is stored before its record.
func TestFilters(t *testing.T) {
	p := newPool(t)
	r := receive(t, takesAll)
	p.add("ci", r.URL, func(w *operation.WebhookRequest) {
		w.Queue, w.Labels = "default", map[string]string{"team": "web"}
	})
	p.lead()
	wanted, other := jobstest.Job(), jobstest.Job()
	wanted.Labels = map[string]string{"team": "web", "x": "y"}
	for i, job := range []jobs.Job{other, wanted} {
		id := jobs.NewID()
		p.tell(id, jobs.JobSubmitted)
		if _, _, err := p.queue.AcceptAs(jobstest.Context(t), id, job, "test", nil); err != nil {
			t.Fatal(err)
		}
		p.tell(id, jobs.JobClaimed)
		if i == 1 {
			p.until("those of the wanted job have arrived", func() bool { return len(r.all()) == 2 })
			if got := r.trace(); got != id+":submitted "+id+":claimed" {
				t.Errorf("arrived are %s", got)
			}
		}
	}
	if n := len(p.deliveries("ci")); n > 2 {
		t.Errorf("%d attempts are kept", n)
	}
}

// A receiver says when it wants to be asked again, within a day.
func TestRetryAfter(t *testing.T) {
	p := newPool(t)
	r := receive(t, func(_ int, got received, w http.ResponseWriter) {
		w.Header().Set("Retry-After", map[string]string{"seconds": "120", "date": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), "long": "999999999", "none": "soon"}[got.job])
		w.WriteHeader(429)
	})
	p.add("ci", r.URL)
	p.lead()
	for _, job := range []string{"seconds", "date", "long", "none"} {
		p.tell(job, jobs.JobSubmitted)
	}
	p.until("each has been tried", func() bool { return strings.Count(p.states("ci"), "retrying") >= 4 })
	for _, d := range p.deliveries("ci") {
		want := map[string]time.Duration{"seconds": 2 * time.Minute, "date": time.Hour, "long": 24 * time.Hour, "none": 0}[d.Job]
		if d.Next == nil {
			continue // of none, which was given up since
		}
		if got := d.Next.Sub(d.At); got < want-2*time.Second || got > want+jobstest.Patience {
			t.Errorf("%s: the next attempt is after %v, want %v", d.Job, got, want)
		}
	}
}

// The delays are those of Standard Webhooks.
func TestSchedule(t *testing.T) {
	delays, patience := deliver.Standard()
	if got := fmt.Sprint(delays, patience); got != "[5s 5m0s 30m0s 2h0m0s 5h0m0s 10h0m0s 14h0m0s 20h0m0s 24h0m0s] 120h0m0s" {
		t.Errorf("the schedule is %s", got)
	}
}

// Of a webhook that was removed nothing is left, and one of its name begins anew.
func TestRemove(t *testing.T) {
	p := newPool(t)
	p.cfg = p.cfg.Scheduled(time.Hour, time.Hour)
	r := receive(t, func(_ int, _ received, w http.ResponseWriter) { w.WriteHeader(500) })
	p.add("ci", r.URL)
	p.lead()
	p.tell("j1", jobs.JobSubmitted)
	p.until("it waits", func() bool { return p.hook("ci").Waiting == 1 })
	if err := p.store.Remove(jobstest.Context(t), "ci"); err != nil {
		t.Fatal(err)
	}
	if err := p.store.Remove(jobstest.Context(t), "ci"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	p.add("ci", r.URL)
	if w, list := p.hook("ci"), p.deliveries("ci"); w.Waiting != 0 || len(list) != 0 {
		t.Errorf("the next one of that name is %+v with %+v", w, list)
	}
}

// A pool has so many webhooks and no more.
func TestWebhooksAreBounded(t *testing.T) {
	p := newPool(t)
	for i := range webhook.Most {
		p.add(fmt.Sprint("w", i), "https://example.com/")
	}
	_, err := p.store.Add(jobstest.Context(t), operation.WebhookRequest{Name: "more", URL: "https://example.com/", Secret: secret}, "test", false)
	if jobs.Code(err) != jobs.CodeInvalid || !strings.Contains(err.Error(), "50 webhooks") {
		t.Errorf("one more: %v", err)
	}
}
