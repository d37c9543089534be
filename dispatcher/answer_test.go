package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// claimed submits a job and claims it, so its session has a worker.
func (p pool) claimed(t *testing.T) operation.Submitted {
	t.Helper()
	answer, err := p.Submit(t.Context(), job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	jobstest.Claim(t, p.queue, "w-"+answer.ID)
	return answer
}

// post sends a prompt by the bus and does not wait for the answer, which comes
// to the subscription.
func (p pool) post(t *testing.T, id, text string) *nats.Subscription {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := p.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"id":%q,"control":{"id":%q,"verb":"prompt","text":%q}}`, id, jobs.NewID(), text)
	if err := p.nc.PublishRequest("penstock.v1.api.send", inbox, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return sub
}

// A worker that is stopped holds up the messages for its own agents only.
func TestOneStoppedWorkerHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	eventually(t, "an answer", func() bool {
		_, err := p.nc.Request("penstock.v1.api.send", []byte("{}"), time.Second)
		return err == nil
	})
	for range 3 { // stopped: its subscription is there, and nothing is answered
		answer := p.claimed(t)
		stopped, err := p.nc.SubscribeSync("penstock.v1.sessions.default." + answer.Session + ".control")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p.post(t, answer.ID, "to nobody")
		}
		if _, err := stopped.NextMsg(jobstest.Patience); err != nil {
			t.Fatal(err) // it is on its way
		}
	}
	well := p.claimed(t)
	const many = 40
	var received []string
	stop, err := p.log.Listen(well.Session, nil, func(c control.Message) (control.Receipt, error) {
		received = append(received, c.Text)
		return control.Receipt{ID: c.ID, Verb: c.Verb, Job: well.ID, State: "accepted"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var sent []string
	var answers []*nats.Subscription
	for i := range many {
		text := fmt.Sprintf("message %d", i)
		sent = append(sent, text)
		answers = append(answers, p.post(t, well.ID, text))
	}
	for i, sub := range answers {
		// Long before the ones for the stopped worker are given up.
		msg, err := sub.NextMsg(5 * time.Second)
		if err != nil || !strings.Contains(string(msg.Data), "accepted") {
			t.Fatalf("%s: %v", sent[i], err)
		}
	}
	stop()
	if !slices.Equal(received, sent) {
		t.Errorf("one agent got %q, want it in the order in which it was sent", received)
	}
}

// ask makes a request on the bus, as soon as it is answered.
func (p pool) ask(t *testing.T, operation, request string) (answer *nats.Msg) {
	t.Helper()
	eventually(t, "an answer", func() bool {
		var err error
		answer, err = p.nc.Request("penstock.v1.api."+operation, []byte(request), jobstest.Patience)
		return err == nil
	})
	return answer
}

// A list that a message cannot hold comes in pages: as large as was asked for, or as fits.
func TestListsLargerThanAMessage(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	const many = 20
	for i := range many {
		template := job()
		template.Prompt = strings.Repeat("x", 60_000)
		if _, err := p.Schedules().Add(t.Context(), calendar.Schedule{Name: fmt.Sprintf("s%02d", i), Cron: "0 3 * * *", Job: template}, false); err != nil {
			t.Fatal(err)
		}
	}
	for limit, pages := range map[int]int{0: 2, 7: 3, many: 2} {
		var all []string
		got := 0
		for page := (operation.SchedulePage{}); got == 0 || page.Next != ""; got++ {
			answer := p.ask(t, "schedule-list", fmt.Sprintf(`{"after":%q,"limit":%d}`, page.Next, limit))
			page = operation.SchedulePage{}
			if err := json.Unmarshal(answer.Data, &page); err != nil || answer.Header.Get(micro.ErrorHeader) != "" {
				t.Fatalf("limit %d: %v %.200s", limit, err, answer.Data)
			}
			for _, rec := range page.Schedules {
				all = append(all, rec.Name)
			}
		}
		if len(all) != many || !slices.IsSorted(all) || got != pages {
			t.Errorf("limit %d: %d pages, want %d; they have %v", limit, got, pages, all)
		}
	}
	for _, bad := range []string{`{"limit":-1}`, `{"from":"x"}`, `[`} {
		if got := p.ask(t, "schedule-list", bad); got.Header.Get(micro.ErrorCodeHeader) != "invalid" {
			t.Errorf("%s: %v", bad, got)
		}
	}
}
