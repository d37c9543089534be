package deliver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// What one leader has begun the next one finishes, also what happened while there was
// none; what was delivered is not delivered again by a leader that ended in good order.
func TestLeadersFollowEachOther(t *testing.T) {
	p := newPool(t)
	p.cfg = p.cfg.Scheduled(time.Hour, 10*time.Millisecond, time.Hour)
	r := receive(t, func(n int, got received, w http.ResponseWriter) {
		if got.job == "bad" && n < 4 {
			w.WriteHeader(503)
		}
	})
	p.add("ci", r.URL)
	end := p.lead()
	p.tell("good", jobs.JobSubmitted)
	p.until("the first has arrived", func() bool { return strings.Contains(p.states("ci"), "delivered") })
	p.tell("bad", jobs.JobSubmitted)
	p.until("the other one waits for an hour", func() bool { return strings.Count(p.states("ci"), "retrying") == 2 })
	p.tell("bad", jobs.JobClaimed)
	p.until("its next event waits behind it", func() bool { return p.hook("ci").Waiting == 2 })
	end()
	p.tell("good", jobs.JobClaimed)
	p.tell("bad", jobs.JobReopened)
	p.cfg = p.cfg.Scheduled(time.Hour, 10*time.Millisecond)
	p.lead()
	p.until("what happened meanwhile has arrived", func() bool { return strings.HasSuffix(r.trace(), "good:claimed") })
	for _, d := range p.deliveries("ci") {
		if d.Job == "bad" && d.Attempt == 2 {
			if err := p.store.Redeliver(jobstest.Context(t), d.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.until("all is delivered", func() bool { w := p.hook("ci"); return w.Waiting == 0 && len(r.all()) == 7 })
	want := "good:submitted bad:submitted bad:submitted good:claimed bad:submitted bad:claimed bad:reopened"
	if got := r.trace(); got != want {
		t.Errorf("arrived are %s, want %s", got, want)
	}
}

// What clients ask for while a delivery is tried is tried once more when that has failed,
// and is not asked for any more when it has succeeded.
func TestARequestDuringAnAttempt(t *testing.T) {
	for _, status := range []int{200, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			p := newPool(t)
			p.cfg = p.cfg.Scheduled(time.Hour, time.Hour)
			begun, released := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			r := receive(t, func(n int, _ received, w http.ResponseWriter) {
				if n == 1 {
					close(begun)
					<-released
					w.WriteHeader(status)
				}
			})
			t.Cleanup(release)
			p.add("ci", r.URL)
			p.lead()
			p.tell("j1", jobs.JobSubmitted)
			<-begun
			if err := p.store.Redeliver(jobstest.Context(t), "ci-1"); err != nil {
				t.Fatal(err)
			}
			hook, err := p.store.Hook(jobstest.Context(t), "ci")
			if err != nil {
				t.Fatal(err)
			}
			asked := func() int {
				places, err := p.store.Asked(jobstest.Context(t), hook.ID)
				if err != nil {
					t.Fatal(err)
				}
				return len(places)
			}
			time.Sleep(time.Second) // so that the leader knows, also on a busy machine
			if asked() != 1 {
				t.Error("the request was forgotten before the attempt")
			}
			release()
			p.until("the request is met", func() bool { return asked() == 0 && p.hook("ci").Waiting == 0 })
			want := map[int]string{200: "delivered", 503: "retrying delivered"}[status]
			if got := p.states("ci"); got != want {
				t.Errorf("the attempts are %s, want %s", got, want)
			}
		})
	}
}

// A leader that ends during the attempt that clients have asked for leaves the request to
// the next one.
func TestARequestOutlastsItsLeader(t *testing.T) {
	p := newPool(t)
	p.cfg = p.cfg.Scheduled(time.Hour, time.Hour)
	second, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	r := receive(t, func(n int, _ received, w http.ResponseWriter) {
		switch n {
		case 1:
			w.WriteHeader(503)
		case 2:
			close(second)
			<-released
		}
	})
	t.Cleanup(release)
	p.add("ci", r.URL)
	end := p.lead()
	p.tell("j1", jobs.JobSubmitted)
	p.until("it waits for an hour", func() bool { return p.states("ci") == "retrying" })
	if err := p.store.Redeliver(jobstest.Context(t), "ci-1"); err != nil {
		t.Fatal(err)
	}
	<-second
	end()
	release()
	p.lead()
	p.until("it was delivered", func() bool { return p.states("ci") == "retrying delivered" })
}

// The next leader reads events again whose retries are due when it begins: it may have
// delivered them before it comes to them.
func TestWhatIsDueAtTheBeginning(t *testing.T) {
	p := newPool(t)
	const n = 40
	tried := sync.Map{}
	r := receive(t, func(_ int, got received, w http.ResponseWriter) {
		if _, again := tried.LoadOrStore(got.job, true); !again {
			w.WriteHeader(503)
		}
	})
	p.add("ci", r.URL, func(w *operation.WebhookRequest) { w.Events = []string{"job.submitted"} })
	p.cfg = p.cfg.Scheduled(time.Hour, time.Second)
	p.tell("noise", slices.Repeat([]jobs.Kind{jobs.JobClaimed}, 500)...) // takes the next one some time to read
	end := p.lead()
	for i := range n {
		p.tell(fmt.Sprintf("j%d", i), jobs.JobSubmitted)
	}
	p.until("each was tried", func() bool { return strings.Count(p.states("ci"), "retrying") == n })
	end()
	time.Sleep(1200 * time.Millisecond)
	p.lead()
	tried.Store("last", true)
	p.tell("last", jobs.JobSubmitted)
	p.until("all is delivered", func() bool { return strings.Count(p.states("ci"), "delivered") >= n+1 && p.hook("ci").Waiting == 0 })
	if got := len(r.all()); got != 2*n+1 {
		t.Errorf("%d requests for %d events that failed once, and one that did not", got, n)
	}
}

// A leader that ends between an attempt and the note of it delivers once more, and loses
// nothing: the broker stops at any moment, and comes back.
func TestTheBrokerStops(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	p := newPoolOn(t, server)
	r := receive(t, func(n int, _ received, w http.ResponseWriter) {
		if n%7 == 0 {
			w.WriteHeader(500)
		}
	})
	p.add("ci", r.URL)
	p.lead()
	const n = 60
	for i := range n {
		p.tell(fmt.Sprintf("j%d", i), jobs.JobSubmitted, jobs.JobClaimed)
		if i%25 == 20 {
			server.Restart()
		}
	}
	p.until("each has arrived", func() bool { return len(firsts(r.all())) == 2*n })
	for job, kinds := range byJob(r.all()) {
		if !strings.HasPrefix(kinds, "submitted") || strings.Index(kinds, "claimed") < strings.Index(kinds, "submitted") {
			t.Errorf("%s: %s", job, kinds)
		}
	}
}

// firsts are the ids that have arrived.
func firsts(all []received) map[string]bool {
	ids := map[string]bool{}
	for _, got := range all {
		ids[got.id] = true
	}
	return ids
}

func byJob(all []received) map[string]string {
	jobs := map[string]string{}
	for _, got := range all {
		jobs[got.job] += strings.TrimPrefix(string(got.kind), "job.") + " "
	}
	return jobs
}

// A receiver that takes its time, and one that is not there, hold up no other one.
func TestReceiversDoNotWaitForEachOther(t *testing.T) {
	p := newPool(t)
	release := make(chan struct{})
	slow := receive(t, func(int, received, http.ResponseWriter) { <-release })
	t.Cleanup(func() { close(release) })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	fast := receive(t, takesAll)
	p.cfg = p.cfg.Scheduled(time.Hour, time.Hour)
	p.add("slow", slow.URL)
	p.add("gone", gone.URL)
	p.add("fast", fast.URL)
	p.lead()
	const n = 40
	for i := range n {
		p.tell(fmt.Sprintf("j%d", i), jobs.JobSubmitted)
	}
	p.until("the fast one has all", func() bool { return len(fast.all()) == n })
	p.until("the one that is gone has failed for all", func() bool { return p.hook("gone").Waiting == n })
	if got := p.hook("gone"); got.Failing == nil || !strings.Contains(got.Error, "refused") {
		t.Errorf("the one that is gone is %+v", got)
	}
	if got := len(slow.all()); got != 8 {
		t.Errorf("the slow one has %d at once, want 8", got)
	}
}

// What waits, and what is disabled, is told as long as it is so: not of a webhook that was
// removed, nor by a dispatcher that does not lead any more.
func TestWhatIsToldEnds(t *testing.T) {
	p := newPool(t)
	fails := receive(t, func(_ int, _ received, w http.ResponseWriter) { w.WriteHeader(500) })
	gone := receive(t, func(_ int, _ received, w http.ResponseWriter) { w.WriteHeader(410) })
	var disabled atomic.Int64
	var waiting sync.Map
	waits := func(name string) bool {
		oldest, ok := waiting.Load(name)
		return ok && !oldest.(time.Time).IsZero() //nolint:forcetypeassert // stored below
	}
	p.cfg.Hooks = deliver.Hooks{
		Waiting:  func(name string, oldest time.Time) { waiting.Store(name, oldest) },
		Disabled: func(n int) { disabled.Store(int64(n)) },
	}
	p.cfg = p.cfg.Scheduled(time.Hour, time.Hour)
	for name, url := range map[string]string{"removed": fails.URL, "stays": fails.URL, "gone": gone.URL} {
		p.add(name, url)
	}
	end := p.lead()
	p.tell("j", jobs.JobSubmitted)
	p.until("two wait", func() bool { return waits("removed") && waits("stays") })
	p.until("the one that is gone waits for nothing", func() bool { return len(gone.all()) == 1 && !waits("gone") })
	if err := p.store.Remove(jobstest.Context(t), "removed"); err != nil {
		t.Fatal(err)
	}
	p.until("nothing waits for the removed one", func() bool { return !waits("removed") && disabled.Load() == 1 })
	if !waits("stays") {
		t.Error("nothing waits for the one that stays")
	}
	end()
	if waits("stays") || disabled.Load() != 0 {
		t.Errorf("without a lead something waits: %t, and %d are disabled", waits("stays"), disabled.Load())
	}
}

// A receiver that is gone for good, or takes nothing for a long time, gets nothing any
// more; replaced, it gets what happens from then on.
func TestDisabling(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		patience time.Duration
		reason   string
	}{
		"gone":    {410, time.Hour, "the receiver answered 410 Gone"},
		"failing": {500, 10 * time.Millisecond, "no delivery has succeeded since "},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.cfg = p.cfg.Scheduled(c.patience, 15*time.Millisecond, 15*time.Millisecond, 15*time.Millisecond)
			r := receive(t, func(_ int, got received, w http.ResponseWriter) {
				if got.job == "j1" {
					w.WriteHeader(c.status)
				}
			})
			p.add("ci", r.URL)
			p.lead()
			p.tell("j1", jobs.JobSubmitted)
			p.until("it is disabled", func() bool { return p.hook("ci").Disabled != nil })
			if got := p.hook("ci").Disabled.Reason; !strings.HasPrefix(got, c.reason) {
				t.Errorf("it is disabled because %s", got)
			}
			p.until("the log says so", func() bool { return strings.Contains(p.said.String(), "webhook is disabled") })
			seen := len(r.all())
			p.tell("j2", jobs.JobSubmitted)
			if err := p.store.Redeliver(jobstest.Context(t), "ci-1"); err == nil || !strings.Contains(err.Error(), "disabled") {
				t.Errorf("redelivered: %v", err)
			}
			if _, err := p.store.Add(jobstest.Context(t), operation.WebhookRequest{Name: "ci", URL: r.URL + "/again", Secret: secret}, "test", true); err != nil {
				t.Fatal(err)
			}
			p.tell("j3", jobs.JobSubmitted)
			p.until("the next one has arrived", func() bool { return strings.HasSuffix(r.trace(), "j3:submitted") })
			if len(r.all()) != seen+1 || p.hook("ci").Disabled != nil {
				t.Errorf("arrived are %s", r.trace())
			}
		})
	}
}

// A leader that ends while an attempt is under way has stored a position before that
// event, although it has delivered later ones: the next leader delivers it.
func TestWhatIsUnderWayIsNotLost(t *testing.T) {
	p := newPool(t)
	block := make(chan struct{})
	r := receive(t, func(n int, _ received, _ http.ResponseWriter) {
		if n == 1 {
			<-block
		}
	})
	t.Cleanup(func() { close(block) }) // before the receiver is closed, which waits for it
	p.add("ci", r.URL)
	end := p.lead()
	p.tell("slow", jobs.JobSubmitted)
	p.until("the first is under way", func() bool { return len(r.all()) == 1 })
	p.tell("fast", jobs.JobSubmitted)
	p.until("the second is delivered", func() bool { return p.states("ci") == "delivered" })
	h, err := p.store.Hook(jobstest.Context(t), "ci")
	if err != nil {
		t.Fatal(err)
	}
	p.until("a position is stored", func() bool {
		state, err := p.store.State(jobstest.Context(t), h.ID)
		return err == nil && state.Rev > 0
	})
	end()
	p.lead()
	p.until("the first has arrived", func() bool { return r.trace() == "slow:submitted fast:submitted slow:submitted" })
}
