package dispatcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

// A pool is a dispatcher on a real server, and what it works with.
type pool struct {
	*dispatcher.Dispatcher
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
	nc    *nats.Conn
	leads *atomic.Bool // nil: not watched
}

func open(t testing.TB, hooks dispatcher.Hooks) pool {
	t.Helper()
	return openOn(t, jobstest.Start(t).Connect(), hooks)
}

func openOn(t testing.TB, nc *nats.Conn, hooks dispatcher.Hooks) pool {
	t.Helper()
	p := pool{queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc), nc: nc}
	p.Dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.queue, Log: p.log, Store: p.store, Hooks: hooks, MaxDepth: 1,
		Able: func(j jobs.Job) error {
			if j.Agent.Model == "" {
				return nil
			}
			return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "agent.model", Reason: "is not its choice"}}}
		},
	})
	return p
}

// job is one that needs no repository.
func job() jobs.Job {
	j := jobstest.Job()
	j.Isolation = jobs.IsolationNone
	return j
}

// serve runs the dispatcher until the test ends.
func (p pool) serve(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	server := api.New(api.Config{Dispatcher: p.Dispatcher, Queue: p.queue, Log: p.log, Store: p.store, Audit: jobstest.Audit(t, p.nc)})
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func (p pool) kinds(t *testing.T, id string) []jobs.Kind {
	t.Helper()
	var kinds []jobs.Kind
	for event, err := range p.log.Read(t.Context(), id, 1) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Kind)
	}
	return kinds
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(jobstest.Patience); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("not within %v: %s", jobstest.Patience, what)
}

func TestSubmitStoresAnnouncesAndEnqueues(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	answer, err := p.Submit(t.Context(), job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.kinds(t, answer.Session), []jobs.Kind{jobs.JobSubmitted}; !slices.Equal(got, want) {
		t.Errorf("events: got %v, want %v", got, want)
	}
	claim := jobstest.Claim(t, p.queue, "w")
	if got := claim.Record().ID; got != answer.ID {
		t.Errorf("claimed %s, submitted %s", got, answer.ID)
	}
}

func TestTheSameKeyIsTheSameJob(t *testing.T) {
	var duplicates int
	p := open(t, dispatcher.Hooks{
		Deduplicated: func(jobs.Record, string) { duplicates++ },
	})
	keyed := job()
	keyed.Key = "one"
	first, err := p.Submit(t.Context(), keyed, "test")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, err := p.Submit(t.Context(), keyed, "test")
		if err != nil || again.ID != first.ID || !again.Duplicate {
			t.Errorf("got %+v, %v, want a duplicate of %s", again, err, first.ID)
		}
	}
	if duplicates != 3 {
		t.Errorf("told of %d duplicates, want 3", duplicates)
	}
	if got := p.kinds(t, first.Session); len(got) != 1 {
		t.Errorf("events: got %v, want one", got)
	}
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	tests := []struct {
		field  string
		change func(*jobs.Job)
	}{
		{"queue", func(j *jobs.Job) { j.Queue = "*" }},
		{"sandbox.network", func(j *jobs.Job) { j.Sandbox.Preset, j.Sandbox.Network = "offline", jobs.NetworkFull }},
		{"sandbox.allow_hosts[1]", func(j *jobs.Job) {
			j.Sandbox.Network, j.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"a.example", "https://b.example"}
		}},
		{"sandbox.backend", func(j *jobs.Job) { j.Sandbox.Backend = "oci" }},
		{"sandbox.backend", func(j *jobs.Job) {
			j.Isolation, j.Image, j.Repo.URL, j.Sandbox.Backend = jobs.IsolationContainer, "i", "/r", "bwrap"
		}},
		{"image", func(j *jobs.Job) { j.Image, j.Repo.URL = "i", "/r" }},
		{"deliver.mode", func(j *jobs.Job) { j.Deliver.Mode = "pr" }},
		{"agent.model", func(j *jobs.Job) { j.Agent.Model = "m" }},
		{"check_rounds", func(j *jobs.Job) { j.CheckRounds, j.Check = 1, nil }},
		{"session", func(j *jobs.Job) { j.Session = jobs.NewID() }},
		{"parent", func(j *jobs.Job) { j.Parent = jobs.NewID() }},
		{"parent", func(j *jobs.Job) { j.Parent = "me" }},
		{"depends_on[0]", func(j *jobs.Job) { j.DependsOn = []string{jobs.NewID()} }},
	}
	for _, tt := range tests {
		t.Run(tt.field, func(t *testing.T) {
			j := job()
			tt.change(&j)
			_, err := p.Submit(t.Context(), j, "test")
			invalid, ok := errors.AsType[*jobs.InvalidError](err)
			if !ok || !slices.ContainsFunc(invalid.Fields, func(f jobs.FieldError) bool { return f.Field == tt.field }) {
				t.Errorf("got %v, want the field %s named", err, tt.field)
			}
		})
	}
	if list, err := p.queue.List(t.Context(), record.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("stored all the same: %v, %v", list, err)
	}
}

// A submitter that dies after its job was stored, and before it was queued,
// has a job all the same: the leader finds its record.
func TestASubmissionIsFinished(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	rec, _, err := p.queue.Accept(t.Context(), job())
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t)
	claim := jobstestClaimWithin(t, p.queue, jobstest.Patience)
	if claim.Record().ID != rec.ID {
		t.Errorf("claimed %s, want %s", claim.Record().ID, rec.ID)
	}
}

func jobstestClaimWithin(t *testing.T, q *queue.Queue, limit time.Duration) *queue.Claim {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	claim, err := q.Claim(ctx, "w", []string{"default"})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return claim
}

func TestAPlainPublishIsAJob(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	if _, err := p.nc.Request("penstock.v1.submit.default",
		[]byte(`{"isolation":"none","agent":{"name":"command","command":["true"]}}`), jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	claim := jobstestClaimWithin(t, p.queue, jobstest.Patience)
	if got := p.kinds(t, claim.Record().Session); !slices.Equal(got, []jobs.Kind{jobs.JobSubmitted}) {
		t.Errorf("events: got %v", got)
	}
}

func TestABadPlainPublishIsFiled(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	const bad = `{"prompt":"x","agent":{"name":"claude","colour":"red"}}`
	if _, err := p.nc.Request("penstock.v1.submit.default", []byte(bad), jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reject is filed with its reason", func() bool {
		letters, err := p.queue.DeadLetters().List(t.Context())
		return err == nil && len(letters) == 1 && strings.Contains(letters[0].Reason, "agent.colour") && letters[0].Data == bad
	})
}

func TestRequestsAreAnswered(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	ask := func(verb, body string) map[string]any {
		t.Helper()
		var answer map[string]any
		eventually(t, "an answer to "+verb, func() bool {
			msg, err := p.nc.Request("penstock.v1.api."+verb, []byte(body), jobstest.Patience)
			return err == nil && json.Unmarshal(msg.Data, &answer) == nil
		})
		return answer
	}
	id, _ := ask("submit", `{"isolation":"none","agent":{"name":"command","command":["true"]}}`)["id"].(string)
	if got := ask("get", `{"id":"`+id+`"}`); got["state"] != "pending" {
		t.Errorf("get: %v", got)
	}
	if got := ask("cancel", `{"id":"`+id+`"}`); got["outcome"] != "cancellation" {
		t.Errorf("cancel: %v", got)
	}
	if got := ask("result", `{"id":"`+id+`"}`); got["reason"] != "cancelled" {
		t.Errorf("result: %v", got)
	}
	for _, tt := range []struct{ verb, body, code string }{
		{"submit", `{"colour":"red"}`, "invalid"},
		{"get", `{}`, "invalid"},
		{"get", `{"id":"` + jobs.NewID() + `"}`, "not_found"},
	} {
		refusal, _ := ask(tt.verb, tt.body)["error"].(map[string]any)
		if refusal["code"] != tt.code {
			t.Errorf("%s %s: got %v, want %s", tt.verb, tt.body, refusal, tt.code)
		}
	}
}
