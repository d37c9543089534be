package client_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Each operation of the table is asked for by a method of Client or of a value that a
// Client returns: the test calls all of them and looks at what was asked.
func TestEveryOperationHasAMethod(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	jobstest.Log(t, nc) // the streams, which a viewer reads
	jobstest.Store(t, nc)
	asked := recorded(t, nc)
	for _, role := range []jobs.Role{"", jobs.RoleSubmitter} { // by the streams, and by requests
		callAll(t, reflect.ValueOf(open(t, nc, client.Config{Role: role})))
	}
	got := asked()
	for _, row := range operation.All() {
		if !slices.Contains(got, row.Name) {
			t.Errorf("no method asks for %s", row.Name)
		}
	}
}

// recorded answers every request, in a way that lets each method end, and returns a
// function that names the operations that were asked for.
func recorded(t *testing.T, nc *nats.Conn) func() []string {
	t.Helper()
	answers := map[string]string{}
	for _, row := range operation.All() {
		answers[row.Name] = `{"id":"a","session":"s","state":"finished","finished":"2026-01-02T03:04:05Z","over":true}`
		if row.Answer.Kind() == reflect.Slice {
			answers[row.Name] = "[]"
		}
	}
	var mu sync.Mutex
	asked := map[string]bool{}
	_, err := nc.Subscribe("penstock.v1.api.*", func(m *nats.Msg) {
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		mu.Lock()
		asked[name] = true
		mu.Unlock()
		if err := m.Respond([]byte(answers[name])); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Keys(asked))
	}
}

// callAll calls each method of a value, reads what it returns to its end, and goes on
// with the values of the package that it returns.
func callAll(t *testing.T, v reflect.Value) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for method, call := range v.Methods() {
		if method.Name == "As" {
			continue // the same again
		}
		var in []reflect.Value
		for parameter := range call.Type().Ins() {
			switch {
			case parameter == reflect.TypeFor[context.Context]():
				in = append(in, reflect.ValueOf(ctx))
			case parameter.Kind() == reflect.String:
				in = append(in, reflect.ValueOf("a").Convert(parameter))
			default:
				in = append(in, reflect.Zero(parameter))
			}
		}
		for _, out := range call.Call(in) {
			switch {
			case out.Kind() == reflect.Func:
				for range out.Seq2() {
				}
			case out.Kind() == reflect.Struct && strings.HasSuffix(out.Type().PkgPath(), "jobs/client"):
				callAll(t, out)
			}
		}
	}
	if ctx.Err() != nil {
		t.Errorf("the methods of %v have not ended", v.Type())
	}
}

// What a client does about queues, batches, dead letters and schedules, it can do with
// the typed methods alone.
func TestThePool(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	c, ctx := open(t, nc, client.Config{By: "test"}), jobstest.Context(t)
	job := plain()
	job.Batch, job.Queue = "b", "night"
	for range 3 {
		if _, err := c.Submit(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	if hold, err := c.Queues().Pause(ctx, operation.PauseRequest{Name: "night"}); err != nil || hold.By != "test" {
		t.Errorf("pause: %+v, %v", hold, err)
	}
	if holds, err := c.Queues().Holds(ctx); err != nil || len(holds) != 1 {
		t.Errorf("pauses: %+v, %v", holds, err)
	}
	for queue, err := range c.Queues().List(ctx) {
		if err != nil || queue.Queue != "night" || queue.Pending != 3 || queue.Paused == nil {
			t.Errorf("queue %+v, %v", queue, err)
		}
	}
	if left, err := c.Queues().Resume(ctx, "night"); err != nil || len(left) != 0 {
		t.Errorf("resume: %+v, %v", left, err)
	}
	if _, err := c.Queues().Pause(ctx, operation.PauseRequest{Name: "nigth"}); jobs.Code(err) != jobs.CodeNotFound {
		t.Errorf("pause of a queue that is not there: %v", err)
	}
	if batch, err := c.Batches().Get(ctx, "b"); err != nil || batch.States[jobs.Pending] != 3 {
		t.Errorf("batch: %+v, %v", batch, err)
	}
	if ended, err := c.Batches().Cancel(ctx, "b"); err != nil || len(ended) != 3 {
		t.Errorf("cancelled %d jobs, %v", len(ended), err)
	}
	for batch, err := range c.Batches().List(ctx) {
		if err != nil || batch.Batch != "b" || batch.Outcomes[jobs.Cancellation] != 3 {
			t.Errorf("batch: %+v, %v", batch, err)
		}
	}
}

// All schedules are listed, also where they do not fit one answer.
func TestSchedulesThatDoNotFitAnAnswer(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	c, ctx := open(t, nc, client.Config{}), jobstest.Context(t)
	var want, got []string
	for i := range 20 {
		name := fmt.Sprintf("s%02d", i)
		wanted := calendar.Schedule{Name: name, Cron: "0 3 * * *", Job: plain()}
		wanted.Job.Prompt = strings.Repeat("x", 60<<10)
		if _, err := c.Schedules().Add(ctx, wanted); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	for rec, err := range c.Schedules().List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := c.Schedules().Remove(ctx, "s07"); err != nil {
		t.Error(err)
	}
	if _, err := c.Schedules().Get(ctx, "s07"); jobs.Code(err) != jobs.CodeNotFound {
		t.Errorf("a schedule that was removed: %v", err)
	}
}

// Each dead letter is listed once, while the client drops those that it has listed.
func TestDroppingWhatIsListed(t *testing.T) {
	t.Parallel()
	q, nc := serve(t)
	c, ctx := open(t, nc, client.Config{}), jobstest.Context(t)
	for range 6 {
		made, err := c.Submit(ctx, plain())
		if err != nil {
			t.Fatal(err)
		}
		claim := jobstest.Claim(t, q, "w")
		if _, err := claim.Settle(ctx, jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob}, nil); err != nil {
			t.Fatalf("job %s: %v", made.ID, err)
		}
	}
	listed := map[string]int{}
	for letter, err := range c.DeadLetters().List(ctx, operation.DeadRequest{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if listed[letter.ID]++; len(listed)%2 == 0 { // also the last of each page
			if _, err := c.DeadLetters().Drop(ctx, letter.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(listed) != 6 {
		t.Errorf("%d dead letters were listed, want 6", len(listed))
	}
	for id, n := range listed {
		if n != 1 {
			t.Errorf("dead letter %s was listed %d times", id, n)
		}
	}
}
