package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/why"
)

// Every field of every request, answer and part is described.
func TestOperationFields(t *testing.T) {
	all, err := operations()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, s *jsonschema.Schema)
	walk = func(path string, s *jsonschema.Schema) {
		for name, field := range s.Properties {
			if field.Description == "" && field.Ref != "#/$defs/refusal" {
				t.Errorf("%s has no description", join(path, name))
			}
			walk(join(path, name), field)
		}
		if s.Items != nil {
			walk(path+"[]", s.Items)
		}
	}
	for name, s := range all.Properties {
		walk(name+".request", s.Properties["request"])
		walk(name+".answer", s.Properties["answer"])
	}
	for name, s := range all.Defs {
		walk(name, s)
	}
	if len(all.Defs) != len(parts) {
		t.Errorf("%d of %d parts are used", len(all.Defs), len(parts))
	}
}

// The schemas of requests refuse what a dispatcher refuses.
func TestRequestSchemas(t *testing.T) {
	for text, want := range map[string]bool{
		`get {"id":"a"}`:                       true,
		`get {"id":"a","colour":"red"}`:        false,
		`get {}`:                               false,
		`wait {"id":"a","for":"10s"}`:          true,
		`wait {"id":"a","for":10}`:             false,
		`submit ` + minimal:                    true,
		`submit {"promt":"x"}`:                 false,
		`resume {"id":"a"}`:                    true,
		`resume {"id":"a","prompt":{"v":1}}`:   false,
		`resume {"id":"a","budget":{"usd":5}}`: true,
		`resume {"id":"a","budget":{"eur":5}}`: false,
		`queue-pause {"name":"q","until":""}`:  true, // a format is a note only
		`holds {}`:                             true,
		`holds {"id":"a"}`:                     false,
	} {
		name, request, _ := strings.Cut(text, " ")
		err := validate(t, resolved(t, ForOperation, name), `{"request":`+request+`}`)
		if (err == nil) != want {
			t.Errorf("%s: %v, want ok %v", text, err, want)
		}
	}
	if _, err := ForOperation("frobnicate"); err == nil || !strings.Contains(err.Error(), "submit, get") {
		t.Errorf("unknown operation: %v", err)
	}
}

// A pool whose every answer is held against its schema.
type checkedPool struct {
	*testing.T
	queue    *queue.Queue
	log      *session.Log
	store    *artifact.Store
	ask      func(subject string, request []byte) []byte
	schemas  map[string]*jsonschema.Resolved
	answered map[string]bool
}

func newCheckedPool(t *testing.T) *checkedPool {
	nc := jobstest.Start(t).Connect()
	p := &checkedPool{
		T: t, queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc),
		schemas: map[string]*jsonschema.Resolved{}, answered: map[string]bool{},
	}
	p.ask = func(subject string, request []byte) []byte {
		for {
			msg, err := nc.Request(subject, request, jobstest.Patience)
			if err == nil {
				return msg.Data
			}
			if t.Context().Err() != nil || nc.IsClosed() {
				t.Fatal(err)
			}
		}
	}
	d := dispatcher.New(dispatcher.Config{Queue: p.queue, Log: p.log, Store: p.store})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	hooks := jobstest.Webhooks(t, nc)
	server := api.New(api.Config{
		Dispatcher: d, Queue: p.queue, Log: p.log, Store: p.store, Tokens: jobstest.Tokens(t, nc), Audit: jobstest.Audit(t, nc),
		PullRequests: func(jobs.Job) error { return nil },
		Webhooks:     hooks, Deliverer: deliver.New(deliver.Config{Store: hooks, Sender: deliver.NewSender([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})}),
	})
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return p
}

// request asks for an operation, and checks what is asked and what is answered. It
// returns the id in the answer.
func (p *checkedPool) request(name, request string) string {
	p.Helper()
	if p.schemas[name] == nil {
		p.schemas[name] = resolved(p, ForOperation, name)
	}
	answer := p.ask("penstock.v1.api."+name, []byte(request))
	kind := "answer"
	if bytes.HasPrefix(answer, []byte(`{"error":{"code"`)) {
		kind = "refusal"
	} else {
		p.answered[name] = true
	}
	if err := validate(p, p.schemas[name], `{"request":`+request+`,"`+kind+`":`+string(answer)+`}`); err != nil {
		p.Errorf("%s %s: %v\n%s", name, request, err, answer)
	}
	var found struct {
		ID   string
		Jobs []struct{ ID string }
	}
	_ = json.Unmarshal(answer, &found) // a list has none
	if found.ID == "" && len(found.Jobs) > 0 {
		return found.Jobs[0].ID
	}
	return found.ID
}

// work lets the next attempt ask a question, keep its conversation and a patch, and end.
// Meanwhile is called while the question is open.
func (p *checkedPool) work(end jobs.Ended, meanwhile func(id string)) string {
	p.Helper()
	ctx := jobstest.Context(p)
	claim := jobstest.Claim(p, p.queue, "w1")
	rec := claim.Record()
	src := session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Epoch: claim.Epoch()}
	writer, err := p.log.Writer(ctx, src, event.New(event.JobClaimed{}))
	if err != nil {
		p.Fatal(err)
	}
	stop, err := p.log.Listen(rec.Session, nil, func(m control.Message) (control.Receipt, error) {
		return control.Receipt{ID: m.ID, Verb: m.Verb, Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, State: control.Accepted}, nil
	})
	if err != nil {
		p.Fatal(err)
	}
	defer stop()
	questions := []byte(`[{"question":"Paint it?","options":[{"label":"Red"}]}]`)
	opened := writer.Append(ctx, event.New(event.AskOpened{Ask: "a", Type: "question", Questions: questions}))
	meanwhile(rec.ID)
	_, patched := p.store.Put(ctx, rec.ID, claim.Epoch(), jobs.PatchName, strings.NewReader("a patch"))
	c := jobs.Capsule{Format: artifact.CapsuleFormat, Job: rec.ID, Epoch: claim.Epoch(), Agent: rec.Agent, Conversation: "x", Turn: 1, Work: &jobs.Salvage{Job: rec.ID, Epoch: claim.Epoch()}}
	var packed error
	c.Home, packed = p.store.PutPart(ctx, rec.ID, claim.Epoch(), strings.NewReader("talk"))
	delivered := p.store.PutResult(ctx, claim.Epoch(), jobs.Result{Job: rec.ID, Session: rec.Session, Outcome: end.Outcome, Attempts: rec.Attempt, Branch: "penstock/" + rec.ID})
	err = errors.Join(opened, patched, packed, delivered, p.store.PutCapsule(ctx, c, jobs.Capsule{}))
	_, settled := claim.Settle(ctx, end, p.log.Finisher(p.store.Result))
	if err = errors.Join(err, settled); err != nil {
		p.Fatal(err)
	}
	return rec.ID
}

func ref(id string) string   { return `{"id":"` + id + `"}` }
func named(id string) string { return `{"name":"` + id + `"}` }

// Each operation of a pool answers what its schema says, with something in it.
func TestAnswersFitTheirSchemas(t *testing.T) {
	t.Parallel()
	p := newCheckedPool(t)
	if err := p.queue.Workers().Present(jobstest.Context(t), why.Worker{Name: "w1", Queues: []string{"default"}, Slots: 1}); err != nil {
		t.Fatal(err)
	}
	const job = `{"batch":"b","agent":{"name":"command","command":["true"]},"repo":{"url":"/src/app"},"retry":{"max_attempts":1}}`
	id := p.request("submit", job)
	for _, name := range []string{"get", "why", "result", "retry", "cancel"} {
		p.request(name, ref(id))
	}
	p.request("wait", ref(id))
	p.request("review", `{"id":"`+id+`","state":"rejected","comment":"not that","epoch":99}`)
	p.request("review", `{"id":"`+id+`","state":"rejected","comment":"not that"}`)
	p.request("pull-request", ref(id)) // it was cancelled
	p.request("get", `{"id":"nothing"}`)
	p.request("get", `{"id":""}`)
	p.aboutTheJob(job)
	p.aboutThePool(job)
	p.aboutSchedules()
	p.aboutTokens()
	p.aboutWebhooks()
	for _, row := range operation.All() {
		if !p.answered[row.Name] {
			t.Errorf("%s has not been answered", row.Name)
		}
	}
}

// aboutTheJob asks about a job that runs, fails, is given up on and comes back.
func (p *checkedPool) aboutTheJob(job string) {
	p.request("submit", job)
	id := p.work(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob, Message: "no"}, func(id string) {
		p.request("send", `{"id":"`+id+`","control":{"id":"`+jobs.NewID()+`","verb":"answer","options":["1"]}}`)
		p.request("send", `{"id":"`+id+`","control":{"id":"x","verb":"answer"}}`)
		p.request("why", ref(id))
	})
	for _, name := range []string{"show", "result", "artifacts", "patch"} {
		p.request(name, ref(id))
	}
	p.request("events", `{"id":"`+id+`","limit":2,"for":"1ms"}`)
	p.request("dead-list", `{"limit":1}`)
	p.request("dead-get", `{"id":"`+id+`","events":5}`)
	p.request("dead-retry", ref(id))
	p.work(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob}, func(string) {})
	p.request("retry", ref(id))
	p.work(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob}, func(string) {})
	p.request("dead-drop", ref(id))
	p.request("submit", job)
	p.request("purge", ref(p.work(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob}, func(string) {})))
	p.request("submit", job)
	done := p.work(jobs.Ended{Outcome: jobs.Success}, func(string) {})
	p.request("pull-request", `{"id":"`+done+`","epoch":99}`)
	p.request("pull-request", ref(done))
	p.request("fork", `{"id":"`+id+`","prompt":"once more","count":2}`)
	p.request("resume", ref(id))
}

// aboutThePool asks about queues and batches, which have jobs.
func (p *checkedPool) aboutThePool(job string) {
	p.request("submit", job)
	for _, name := range []string{"batch-pause", "queue-pause"} {
		for _, of := range []string{`{"name":"b","until":"2100-01-02T03:04:05Z","force":true}`, `{"name":"nothing"}`} {
			p.request(name, of)
		}
	}
	p.request("queue-pause", named("default"))
	for _, name := range []string{"list", "batch-list", "queue-list", "stats", "holds", "caps", "budgets", "workers"} {
		p.request(name, `{}`)
	}
	for _, name := range []string{"worker-get", "worker-drain", "worker-get", "worker-resume"} {
		p.request(name, named("w1"))
		p.request(name, named("nothing"))
	}
	p.request("list", `{"state":"pending","limit":1}`)
	p.request("stats", `{"queue":["default"],"window":"10m","limit":1}`)
	p.request("batch-get", named("b"))
	p.request("batch-report", named("b"))
	p.request("batch-resume", named("b"))
	p.request("queue-resume", named("default"))
	p.request("batch-cancel", named("b"))
}

func (p *checkedPool) aboutSchedules() {
	const wanted = `{"name":"nightly","cron":"0 3 * * *","job":{"agent":{"name":"command","command":["true"]},"isolation":"none"}}`
	p.request("schedule-list", `{}`)
	for _, name := range []string{"schedule-add", "schedule-add", "schedule-replace"} {
		p.request(name, wanted)
	}
	for _, name := range []string{"schedule-run", "schedule-pause", "schedule-get", "schedule-resume"} {
		p.request(name, named("nightly"))
	}
	p.request("schedule-list", `{"limit":10}`)
	p.request("schedule-remove", named("nightly"))
}

func (p *checkedPool) aboutTokens() {
	p.request("token-list", `{}`)
	for _, hash := range []string{"0", "0", "1"} {
		p.request("token-add", `{"name":"ci","role":"submitter","lifetime":"24h","hash":"`+strings.Repeat(hash, 64)+`"}`)
	}
	p.request("audit", `{"operation":"token-add","limit":1}`)
	p.request("token-list", `{"limit":1}`)
	p.request("token-remove", named("ci"))
	p.request("token-remove", named("ci"))
}

func (p *checkedPool) aboutWebhooks() {
	const wanted = `{"name":"ci","url":"http://127.0.0.1:1/in","events":["job.*"],"queue":"default","batch":"b","labels":{"team":"web"},"secret":"whsec_`
	p.request("webhook-list", `{}`)
	for _, name := range []string{"webhook-add", "webhook-add", "webhook-replace"} {
		p.request(name, wanted+strings.Repeat("A", 32)+`"}`)
	}
	p.request("webhook-replace", wanted+strings.Repeat("B", 32)+`"}`)
	p.request("webhook-add", `{"name":"x","url":"https://10.0.0.1/","secret":"short"}`)
	p.request("webhook-test", named("ci"))
	p.request("webhook-list", `{"limit":1}`)
	p.request("webhook-deliveries", `{"name":"ci","failed":true,"limit":1}`)
	p.request("webhook-deliveries", `{"name":"nothing"}`)
	p.request("webhook-redeliver", ref("ci-1"))
	p.request("webhook-redeliver", ref("ci-0"))
	p.request("webhook-remove", named("ci"))
	p.request("webhook-remove", named("ci"))
}
