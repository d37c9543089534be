package natsd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
	"github.com/penstock-run/penstock/jobs/why"
)

// A bus is a broker with roles and a pool on it, whose state can be compared.
type bus struct {
	t      *testing.T
	url    string
	dir    string // of the credentials files
	ops    *nats.Conn
	pool   parts
	tokens *token.Store
	held   map[string]natsd.Credential
	job    jobs.Record // is pending
	runs   *queue.Claim
}

// parts are what a client works with.
type parts struct {
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
	*client.Client
}

func open3(t *testing.T, nc *nats.Conn, role jobs.Role) parts {
	t.Helper()
	q, err := queue.Open(jobstest.Context(t), nc, queue.Config{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	l, err := session.Open(jobstest.Context(t), nc, session.Config{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	s, err := artifact.Open(jobstest.Context(t), nc, artifact.Config{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(jobstest.Context(t), nc, client.Config{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return parts{q, l, s, c}
}

// buses are the embedded server, and one that runs with what is printed for
// external ones.
var buses = map[string]func(t *testing.T, b *bus, all []natsd.Credential){
	"embedded": func(t *testing.T, b *bus, all []natsd.Credential) {
		dir := t.TempDir()
		s := open(t, natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve", Fast: true})
		t.Cleanup(func() { _ = s.Close() })
		for _, c := range all {
			if err := natsd.Admit(dir, c); err != nil {
				t.Fatal(err)
			}
		}
		b.url = s.Endpoint().URL
	},
	"external": func(t *testing.T, b *bus, all []natsd.Credential) {
		var users []access.User
		for _, c := range all {
			users = append(users, access.User{Name: c.Name, Role: c.Role, Key: c.Key})
		}
		text, err := access.Layout{}.Config(users)
		if err != nil {
			t.Fatal(err)
		}
		opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
		if err := opts.ProcessConfigString(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		srv, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
		if !srv.ReadyForConnections(jobstest.Patience) {
			t.Fatal("server is not ready")
		}
		b.url = srv.ClientURL()
	},
}

func eachBus(t *testing.T, do func(t *testing.T, b *bus)) {
	for _, name := range slices.Sorted(maps.Keys(buses)) {
		t.Run(name, func(t *testing.T) {
			b := &bus{t: t, dir: t.TempDir(), held: map[string]natsd.Credential{}}
			var all []natsd.Credential
			for _, role := range jobs.Roles {
				for _, who := range []string{"one", "other"} {
					c, secret, err := natsd.NewCredential(role, string(role)+"-"+who)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(b.file(c.Name), secret, 0o600); err != nil {
						t.Fatal(err)
					}
					b.held[c.Name] = c
					all = append(all, c)
				}
			}
			buses[name](t, b, all)
			b.ops = b.connect("operator-one", nil)
			b.pool = open3(t, b.ops, jobs.RoleOperator)
			b.tokens = jobstest.Tokens(t, b.ops)
			wanted := operation.TokenRequest{Name: "t", Role: jobs.RoleOperator, Hash: strings.Repeat("0", 64)}
			if _, err := b.tokens.Add(jobstest.Context(t), wanted, "test"); err != nil {
				t.Fatal(err)
			}
			b.job = jobstest.Submit(t, b.pool.queue, jobstest.Job())
			b.runs = jobstest.Claim(t, b.pool.queue, "w0")
			b.job = jobstest.Submit(t, b.pool.queue, jobstest.Job())
			do(t, b)
		})
	}
}

func (b *bus) file(name string) string { return filepath.Join(b.dir, name+".creds") }

// connect opens a connection with a credential, and sends what it complains
// about to heard.
func (b *bus) connect(name string, received chan error) *nats.Conn {
	b.t.Helper()
	_, options, err := natsd.Present(b.file(name))
	if err != nil {
		b.t.Fatal(err)
	}
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if received != nil {
			received <- err
		}
	}))
	nc, err := nats.Connect(b.url, options...)
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

// state is what all streams hold, and how they are made.
func (b *bus) state() string {
	b.t.Helper()
	js, err := jetstream.New(b.ops)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	list := js.ListStreams(jobstest.Context(b.t))
	for info := range list.Info() {
		cfg, _ := json.Marshal(info.Config)
		if info.Config.Name == leaderStream { // who leads says so again and again
			all = append(all, fmt.Sprintf("%s: %s, %s", leaderStream, b.leader(), cfg))
			continue
		}
		all = append(all, fmt.Sprintf("%s: %d messages to %d, %d consumers, %s", info.Config.Name, info.State.Msgs, info.State.LastSeq, info.State.Consumers, cfg))
	}
	if list.Err() != nil {
		b.t.Fatal(list.Err())
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

const leaderStream = "KV_ps_leader"

// leader returns the record of the current leader.
func (b *bus) leader() string {
	msg, err := b.ops.Request("$JS.API.DIRECT.GET."+leaderStream+".$KV.ps_leader.dispatcher", nil, jobstest.Patience)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(msg.Data)
}

const (
	forViewer = 1 << iota
	forSubmitter
	forWorker
	forAll = forViewer | forSubmitter | forWorker
)

var bits = map[jobs.Role]int{jobs.RoleViewer: forViewer, jobs.RoleSubmitter: forSubmitter, jobs.RoleWorker: forWorker}

// hostile is what a client publishes that it must not. JOB is a job that is
// pending, RUN one that a worker runs, OTHER the key of another user of the role.
var hostile = []struct {
	what    string
	to      string
	refused int
	body    string
}{
	{"delete a stream", "PSJS.STREAM.DELETE.PS_EVENTS", forAll, ""},
	{"delete a stream by its own name", "$JS.API.STREAM.DELETE.PS_EVENTS", forAll, ""},
	{"purge the records", "PSJS.STREAM.PURGE.KV_ps_jobs", forAll, "{}"},
	{"purge the events", "PSJS.STREAM.PURGE.PS_EVENTS", forAll, "{}"},
	{"purge the artifacts", "PSJS.STREAM.PURGE.OBJ_ps_artifacts", forAll, "{}"},
	{"delete an event", "PSJS.STREAM.MSG.DELETE.PS_EVENTS", forAll, `{"seq":1}`},
	{"change a stream", "PSJS.STREAM.UPDATE.PS_EVENTS", forAll, `{"name":"PS_EVENTS","subjects":["x"],"max_msgs":1}`},
	{"make a stream", "PSJS.STREAM.CREATE.MINE", forAll, `{"name":"MINE","subjects":["penstock.v1.wake.>"]}`},
	{"copy a stream", "PSJS.STREAM.SNAPSHOT.KV_ps_jobs", forAll, `{"deliver_subject":"x"}`},
	{"list the streams", "PSJS.STREAM.NAMES", forAll, ""},
	{"make a consumer of a queue", "PSJS.CONSUMER.CREATE.PS_Q_DEFAULT_P1.mine", forAll, `{"stream_name":"PS_Q_DEFAULT_P1","config":{"name":"mine","ack_policy":"none"}}`},
	{"have events pushed elsewhere", "PSJS.CONSUMER.CREATE.PS_EVENTS.mine", forAll, `{"stream_name":"PS_EVENTS","config":{"name":"mine","deliver_subject":"penstock.v1.submit.default"}}`},
	{"delete the consumer of a queue", "PSJS.CONSUMER.DELETE.PS_Q_DEFAULT_P1.w", forAll, ""},
	{"pause a queue", "PSJS.CONSUMER.PAUSE.PS_Q_DEFAULT_P1.w", forAll, `{"pause_until":"2200-01-01T00:00:00Z"}`},
	{"publish to a lane", "penstock.v1.q.default.p1.default.JOB2", forAll, ""},
	{"forge what has come due", "penstock.v1.due.default.p1.default.JOB", forAll, ""},
	{"write a specification", "$KV.ps_specs.JOB", forAll, `{"prompt":"mine"}`},
	{"write a token", "$KV.ps_tokens.token.mine", forAll, `{"name":"mine","role":"operator"}`},
	{"add a token", "penstock.v1.api.token-add", forAll, `{"name":"mine","role":"operator"}`},
	{"list the tokens", "penstock.v1.api.token-list", forAll, "{}"},
	{"remove a token", "penstock.v1.api.token-remove", forAll, `{"name":"t"}`},
	{"read the tokens", "PSJS.DIRECT.GET.KV_ps_tokens", forAll, `{"seq":1}`},
	{"read a token", "PSJS.STREAM.MSG.GET.KV_ps_tokens", forAll, `{"seq":1}`},
	{"count the tokens", "PSJS.STREAM.INFO.KV_ps_tokens", forAll, ""},
	{"write a webhook", "$KV.ps_webhooks.asked.hook.mine", forAll, `{"id":"x","name":"mine","url":"https://example.com","secret":"whsec_x"}`},
	{"add a webhook", "penstock.v1.api.webhook-add", forAll, `{"name":"mine"}`},
	{"remove a webhook", "penstock.v1.api.webhook-remove", forAll, `{"name":"w"}`},
	{"have an event delivered again", "penstock.v1.api.webhook-redeliver", forAll, `{"id":"w-1"}`},
	{"read the webhooks with their secrets", "PSJS.DIRECT.GET.KV_ps_webhooks", forAll, `{"seq":1}`},
	{"read a webhook with its secret", "PSJS.STREAM.MSG.GET.KV_ps_webhooks", forAll, `{"seq":1}`},
	{"forge a delivery", "penstock.v1.delivered.x", forAll, `{}`},
	{"read the deliveries", "PSJS.DIRECT.GET.PS_DELIVERIES", forAll, `{"seq":1}`},
	{"write to the audit log", "penstock.v1.audit.submit", forAll, `{"who":"other"}`},
	{"read the audit log", "PSJS.DIRECT.GET.PS_AUDIT", forAll, `{"seq":1}`},
	{"read it by request", "penstock.v1.api.audit", forAll, "{}"},
	{"purge the audit log", "PSJS.STREAM.PURGE.PS_AUDIT", forAll, "{}"},
	{"take a key", "$KV.ps_keys.k", forAll, `{"id":"JOB"}`},
	{"hold a queue", "$KV.ps_config.hold.queue.default", forAll, `{"kind":"queue","name":"default"}`},
	{"become the leader", "$KV.ps_leader.dispatcher", forAll, "mine"},
	{"control another's session", "penstock.v1.sessions.default.RUN.control", forAll, `{"kind":"cancel","job":"RUN"}`},
	{"read the intake", "PSJS.DIRECT.GET.PS_INTAKE", forAll, `{"seq":1}`},
	{"read a queue", "PSJS.DIRECT.GET.PS_Q_DEFAULT_P1", forAll, `{"seq":1}`},
	{"answer another client", "_INBOX_OTHER.x", forAll, "mine"},
	{"ask the server itself", "$SYS.REQ.SERVER.PING", forAll, ""},
	{"submit for another tenant", "penstock.v1.submit.other", forAll, "{}"},
	{"submit", "penstock.v1.submit.default", forViewer | forWorker, "{}"},
	{"submit by request", "penstock.v1.api.submit", forViewer | forWorker, "{}"},
	{"cancel a job", "penstock.v1.api.cancel", forViewer | forWorker, `{"id":"JOB"}`},
	{"claim a job", "PSJS.CONSUMER.MSG.NEXT.PS_Q_DEFAULT_P1.w", forViewer | forSubmitter, `{"batch":1,"no_wait":true}`},
	{"acknowledge another's message", "$JS.ACK.PS_Q_DEFAULT_P1.w.1.1.1.1.0", forViewer | forSubmitter, "+ACK"},
	{"acknowledge a submission", "$JS.ACK.PS_INTAKE.dispatcher.1.1.1.1.0", forAll, "+ACK"},
	{"forge an event", "penstock.v1.sessions.default.RUN.events", forViewer | forSubmitter, `{"kind":"job.finished"}`},
	{"write a record", "$KV.ps_jobs.default.JOB", forViewer | forSubmitter, `{"state":"finished"}`},
	{"write a result", "$KV.ps_results.RUN.1.result", forViewer | forSubmitter, "{}"},
	{"take a permit of a cap", "$KV.ps_permits.x", forViewer | forSubmitter, "{}"},
	{"write an artifact", "$O.ps_artifacts.C.x", forViewer | forSubmitter, "x"},
	{"pretend to be a worker", "$KV.ps_workers.x", forViewer | forSubmitter, "{}"},
	{"pretend that a job has changed files", "$KV.ps_workers.touched.x", forViewer | forSubmitter, "{}"},
	{"say that jobs change the same files", "$KV.ps_workers.overlap.x.y", forAll, "{}"},
	{"ask a worker to drain", "$KV.ps_workers.x.drain", forAll, "{}"},
	{"ask a worker to drain by request", "penstock.v1.api.worker-drain", forAll, `{"name":"x"}`},
	{"resume a worker", "penstock.v1.api.worker-resume", forAll, `{"name":"x"}`},
	{"have a worker look for requests", "penstock.v1.drain.x", forAll, ""},
	{"file a dead letter", "penstock.v1.dead.default.default.x", forViewer | forSubmitter, "{}"},
	{"schedule a job", "penstock.v1.sched.default.JOB", forAll, ""},
	{"wake the workers", "penstock.v1.wake.default.p1.again", forViewer | forSubmitter, ""},
	{"list the records", "PSJS.DIRECT.GET.KV_ps_jobs", forSubmitter | forWorker, `{"seq":1}`},
	{"read a record", "PSJS.STREAM.MSG.GET.KV_ps_jobs", forSubmitter, `{"seq":1}`},
	{"read another's specification", "PSJS.DIRECT.GET.KV_ps_specs", forSubmitter, `{"seq":1}`},
	{"read events", "PSJS.DIRECT.GET.PS_EVENTS", forSubmitter, `{"seq":1}`},
	{"read the dead letters", "PSJS.DIRECT.GET.PS_DEAD", forSubmitter | forWorker, `{"seq":1}`},
}

// listened is what no client but the operator may hear.
var listened = []string{
	">", "_INBOX.>", "_INBOX_OTHER.>", "*.*", "$JS.>", "$KV.>", "$SYS.>", "$SRV.>", "PSJS.>",
	"penstock.v1.>", "penstock.v1.q.>", "penstock.v1.submit.*", "penstock.v1.api.submit", "penstock.v1.sessions.*.*.events", "penstock.v1.tokens.>", "penstock.v1.webhooks.>",
}

func TestHostileClients(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter, jobs.RoleWorker} {
			heard := make(chan error, 1000)
			nc := b.connect(string(role)+"-one", heard)
			words := strings.NewReplacer("JOB2", jobs.NewID(), "JOB", b.job.ID, "RUN", b.runs.Record().ID, "OTHER", b.held[string(role)+"-other"].Key)
			before := b.state()
			for _, row := range hostile {
				if row.refused&bits[role] == 0 {
					continue
				}
				to := words.Replace(row.to)
				if err := nc.PublishRequest(to, access.Inbox(b.held[string(role)+"-one"].Key)+".x", []byte(words.Replace(row.body))); err != nil {
					t.Fatal(err)
				}
				if !refusedNow(t, nc, heard, `Publish to "`+to+`"`) {
					t.Errorf("%s: %s was not refused", role, row.what)
				}
			}
			for _, to := range listened {
				to = words.Replace(to)
				sub, err := nc.SubscribeSync(to)
				if err != nil {
					t.Fatal(err)
				}
				if !refusedNow(t, nc, heard, `Subscription to "`+to+`"`) {
					t.Errorf("%s: to listen to %s was not refused", role, to)
				}
				_ = sub.Unsubscribe()
			}
			if after := b.state(); after != before {
				t.Errorf("%s has changed something:\n%s\nwas\n%s", role, after, before)
			}
		}
	})
}

// refusedNow reports whether the server complains about what was sent last.
func refusedNow(t *testing.T, nc *nats.Conn, heard chan error, what string) bool {
	t.Helper()
	// The answer to this comes after the complaint, on the same connection.
	if err := nc.FlushTimeout(jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	// It has been read then, but may not have been handed on.
	for wait := time.After(2 * time.Second); ; {
		select {
		case err := <-heard:
			if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), what) {
				return true
			}
		case <-wait:
			return false
		}
	}
}

// A request that is allowed, whose answer the client wants to have written
// where it may not write.
func TestReplySubjectsReachNothing(t *testing.T) {
	t.Parallel()
	allowed := map[jobs.Role][]string{
		jobs.RoleViewer:    {"PSJS.STREAM.INFO.KV_ps_jobs", "PSJS.STREAM.MSG.GET.KV_ps_jobs", "penstock.v1.api.get"},
		jobs.RoleSubmitter: {"penstock.v1.api.get", "penstock.v1.api.why"},
		jobs.RoleWorker:    {"PSJS.CONSUMER.INFO.PS_Q_DEFAULT_P1.w", "PSJS.STREAM.MSG.GET.KV_ps_specs", "PSJS.STREAM.INFO.KV_ps_config"},
	}
	targets := []string{
		"penstock.v1.q.default.p1.default.x", "$KV.ps_specs.x", "$KV.ps_config.hold.queue.default", "penstock.v1.submit.other",
		"$JS.API.STREAM.DELETE.PS_EVENTS", "PSJS.STREAM.DELETE.PS_EVENTS", "$KV.ps_keys.x", "penstock.v1.due.default.p1.default.x",
	}
	eachBus(t, func(t *testing.T, b *bus) {
		stop := b.dispatch()
		defer stop()
		for role, requests := range allowed {
			nc := b.connect(string(role)+"-one", nil)
			before := b.state()
			for _, request := range requests {
				for _, reply := range targets {
					if err := nc.PublishRequest(request, reply, fmt.Appendf(nil, `{"id":%q,"seq":1}`, b.job.ID)); err != nil {
						t.Fatal(err)
					}
				}
			}
			// What was sent before this has been answered by now, as far as ever.
			if err := nc.FlushTimeout(jobstest.Patience); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
			if after := b.state(); after != before {
				t.Errorf("%s has had something written:\n%s\nwas\n%s", role, after, before)
			}
		}
	})
}

// dispatch runs a dispatcher until stop is called.
func (b *bus) dispatch() (stop func()) {
	d := dispatcher.New(dispatcher.Config{Queue: b.pool.queue, Log: b.pool.log, Store: b.pool.store})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- d.Run(ctx) }()
	hooks := jobstest.Webhooks(b.t, b.ops)
	server := api.New(api.Config{
		Dispatcher: d, Queue: b.pool.queue, Log: b.pool.log, Store: b.pool.store, Tokens: b.tokens, Audit: jobstest.Audit(b.t, b.ops),
		Webhooks: hooks, Deliverer: deliver.New(deliver.Config{Store: hooks, Sender: deliver.NewSender(nil)}),
	})
	go func() { done <- server.Serve(ctx) }()
	untilAnswered(b.t, func() error {
		if b.leader() == "" {
			return jobs.ErrUnavailable
		}
		return nil
	})
	return func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			b.t.Error(err)
		}
	}
}

// What each role is for, it can do, with its credential alone.
func TestRolesDoTheirWork(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		stop := b.dispatch()
		defer stop()
		submitter := open3(t, b.connect("submitter-one", nil), jobs.RoleSubmitter)
		worker := open3(t, b.connect("worker-one", nil), jobs.RoleWorker)
		viewer := open3(t, b.connect("viewer-one", nil), jobs.RoleViewer)

		if err := b.pool.queue.Permits().SetCaps(jobstest.Context(t), schedule.Caps{{Key: "queue:*", Most: 2}}); err != nil {
			t.Fatal(err) // the worker needs a permit
		}
		var told operation.Submitted
		job := jobstest.Job()
		job.Priority, job.Isolation = jobs.High, jobs.IsolationNone
		untilAnswered(t, func() error {
			var err error
			told, err = submitter.Submit(jobstest.Context(t), job)
			return err
		})
		untilAnswered(t, func() error { // else the worker finds another one first
			if ids, err := b.pool.queue.Admitted(jobstest.Context(t), "default", "p0"); err != nil || slices.Contains(ids, told.ID) {
				return err
			}
			return jobs.ErrUnavailable
		})
		b.work(worker, told)
		b.look(viewer, told)

		if rec, err := submitter.Get(jobstest.Context(t), told.ID); err != nil || rec.Outcome != jobs.Success {
			t.Errorf("the submitter asks after its job: %+v, %v", rec, err)
		}
		_, err := submitter.Cancel(jobstest.Context(t), told.ID)
		if !errors.Is(err, jobs.ErrFinished) {
			t.Errorf("cancel a finished job: %v, want that it has finished", err)
		}
		b.nothingHangs(submitter, worker, viewer)
	})
}

// untilAnswered waits for the dispatcher.
func untilAnswered(t *testing.T, ask func() error) {
	t.Helper()
	for ctx := jobstest.Context(t); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if !errors.Is(err, jobs.ErrUnavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// work runs one job as a worker does.
func (b *bus) work(w parts, told operation.Submitted) {
	t, ctx := b.t, jobstest.Context(b.t)
	t.Helper()
	b.drained(ctx, w.queue)
	if err := w.queue.Workers().Present(ctx, why.Worker{Name: "w1"}); err != nil {
		t.Error(err)
	}
	claim, err := w.queue.Claim(ctx, "w1", []string{"default"})
	if err != nil {
		t.Fatal(err)
	}
	rec := claim.Record()
	if rec.ID != told.ID {
		t.Fatalf("claimed %s, want %s", rec.ID, told.ID)
	}
	if _, err := claim.Assert(ctx); err != nil {
		t.Error(err)
	}
	stop := b.keep(claim)
	b.steer(w, rec.Session)
	stop()
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()}
	writer, err := w.log.Writer(ctx, src, event.New(event.JobClaimed{}))
	if err != nil {
		t.Fatal(err)
	}
	events := make([]jobs.Event, 100) // enough for a batch
	for i := range events {
		events[i] = event.New(event.WorkspaceReady{Seconds: float64(i)})
	}
	if err := writer.Append(ctx, events...); err != nil {
		t.Error(err)
	}
	for _, data := range []string{"first", strings.Repeat("second", 100_000)} { // replaced, and more than a chunk
		if _, err := w.store.Put(ctx, rec.ID, claim.Epoch(), "patch", strings.NewReader(data)); err != nil {
			t.Error(err)
		}
	}
	if err := w.store.PutDelivery(ctx, rec.ID, claim.Epoch(), event.BranchDelivered{Branch: "b", Commit: "c"}); err != nil {
		t.Error(err)
	}
	if noted, err := w.store.Deliveries(ctx, rec.ID); err != nil || noted[claim.Epoch()].Commit != "c" {
		t.Errorf("noted deliveries %v, %v", noted, err)
	}
	if err := w.store.PutResult(ctx, claim.Epoch(), jobs.Result{Job: rec.ID, Outcome: jobs.Success}); err != nil {
		t.Error(err)
	}
	settled, err := claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, func(ctx context.Context, rec jobs.Record) error {
		return w.log.Finish(ctx, rec, jobs.Result{Job: rec.ID, Outcome: jobs.Success})
	})
	if err != nil || settled.Outcome != jobs.Success {
		t.Errorf("settled %+v, %v", settled, err)
	}
	if err := w.queue.Workers().Leave(ctx, "w1"); err != nil {
		t.Error(err)
	}
	if list, err := b.pool.queue.Workers().List(ctx); err != nil || len(list) != 0 {
		t.Errorf("workers %v, %v; want none any more", list, err)
	}
}

// keep holds a claim, as a worker does while its agent runs, from the first
// heartbeat on until the function that it returns is called.
func (b *bus) keep(claim *queue.Claim) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(jobstest.Context(b.t))
	kept := make(chan error, 1)
	go func() { kept <- claim.Keep(ctx) }()
	for began := claim.Record().Beat; ; time.Sleep(10 * time.Millisecond) {
		rec, err := b.pool.queue.Get(ctx, claim.Record().ID)
		if err != nil {
			b.t.Fatal(err)
		}
		if rec.Beat != began {
			break
		}
	}
	return func() {
		cancel()
		if err := <-kept; err != nil {
			b.t.Error(err)
		}
	}
}

// steer sends a message to a session whose worker has this log, and to one
// whose worker is in the pool's own account.
func (b *bus) steer(w parts, ofWorker string) {
	b.t.Helper()
	ctx, own := jobstest.Context(b.t), jobs.NewID()
	for session, log := range map[string]*session.Log{ofWorker: w.log, own: b.pool.log} {
		stop, err := log.Listen(session, nil, func(m control.Message) (control.Receipt, error) {
			return control.Receipt{ID: m.ID, State: "accepted"}, nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
		defer stop()
		message := control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: "go on"}
		var got control.Receipt
		untilReceived(b.t, func() (err error) { got, err = b.pool.log.Send(ctx, session, message); return err })
		if got.ID != message.ID {
			b.t.Errorf("receipt %+v, want one for %s", got, message.ID)
		}
	}
	if _, err := b.pool.log.Send(ctx, jobs.NewID(), control.Message{ID: jobs.NewID(), Verb: control.Stop}); !errors.Is(err, session.ErrNobody) {
		b.t.Errorf("send to a session that nobody has: %v, want that", err)
	}
}

// untilReceived waits until a subscription has arrived.
func untilReceived(t *testing.T, send func() error) {
	t.Helper()
	for ctx := jobstest.Context(t); ; time.Sleep(20 * time.Millisecond) {
		err := send()
		if err == nil {
			return
		}
		if !errors.Is(err, session.ErrNobody) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// look reads what a job has left, as watchers do.
func (b *bus) look(v parts, told operation.Submitted) {
	t, ctx := b.t, jobstest.Context(b.t)
	t.Helper()
	n := 0
	for event, err := range v.log.Follow(ctx, told.Session, 1, session.FollowOptions{Job: told.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; event.Seq != uint64(n) {
			t.Errorf("event %d is the %dth", event.Seq, n)
		}
	}
	if n != 103 { // submitted, claimed, a hundred, finished
		t.Errorf("watched %d events, want 103", n)
	}
	rec, err := v.queue.Get(ctx, told.ID[:13])
	if err != nil || rec.Outcome != jobs.Success {
		t.Fatalf("record %+v, %v", rec, err)
	}
	if list, err := v.queue.List(ctx, record.Filter{}); err != nil || len(list) != 3 {
		t.Errorf("list of %d, %v; want three", len(list), err)
	}
	r, err := v.store.Get(ctx, rec.ID, rec.Epoch, "patch")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || !bytes.HasPrefix(data, []byte("second")) {
		t.Errorf("artifact of %d bytes, %v", len(data), err)
	}
	for _, look := range []func() error{
		func() error { _, err := v.queue.Holds().List(ctx); return err },
		func() error { _, err := v.queue.DeadLetters().List(ctx); return err },
		func() error { _, err := v.queue.Workers().List(ctx); return err },
		func() error { _, err := v.queue.Job(ctx, rec.ID); return err },
		func() error { _, err := v.store.Salvages(ctx, rec); return err },
		func() error {
			_, err := v.Why(ctx, rec.ID)
			return err
		},
	} {
		if err := look(); err != nil {
			t.Error(err)
		}
	}
}

// nothingHangs: what a role may not do is refused at once, and says so.
func (b *bus) nothingHangs(submitter, worker, viewer parts) {
	ctx, id := jobstest.Context(b.t), b.job.ID
	for what, do := range map[string]func() error{
		"submitter reads": func() error { _, err := submitter.queue.List(ctx, record.Filter{}); return err },
		"submitter gets":  func() error { _, err := submitter.queue.Get(ctx, id); return err },
		"viewer cancels":  func() error { _, err := viewer.queue.Cancel(ctx, id, "me"); return err },
		"viewer asks to": func() error {
			_, err := viewer.Cancel(ctx, id)
			return err
		},
		"viewer submits": func() error { _, _, err := viewer.queue.Accept(ctx, jobstest.Job()); return err },
		"viewer claims": func() error {
			_, err := viewer.queue.Claim(ctx, "viewer", []string{"default"})
			return err
		},
		"submitter claims by a label": func() error {
			_, err := submitter.queue.Claim(ctx, "submitter", []string{"default"}, "gpu")
			return err
		},
		"worker submits":       func() error { _, _, err := worker.queue.Accept(ctx, jobstest.Job()); return err },
		"worker reads letters": func() error { _, err := worker.queue.DeadLetters().List(ctx); return err },
		"viewer stores": func() error {
			_, err := viewer.store.Put(ctx, id, 1, "patch", strings.NewReader("x"))
			return err
		},
		"viewer tells": func() error {
			_, err := viewer.log.Append(ctx, session.Source{Job: id, Session: id}, event.New(event.JobFinished{}))
			return err
		},
		"viewer holds": func() error {
			return viewer.queue.Hold(ctx, jobs.Hold{Kind: jobs.HoldQueue, Name: "default"})
		},
	} {
		err := do()
		if refused, ok := errors.AsType[*jobs.ForbiddenError](err); !ok || refused.Role == "" || !errors.Is(err, jobs.ErrForbidden) {
			b.t.Errorf("%s: %v, want that it is not allowed", what, err)
		}
	}
}

// A credential that is revoked opens nothing, and what it had opened is closed.
func TestRevoke(t *testing.T) {
	t.Parallel()
	dir, files := t.TempDir(), t.TempDir()
	s := open(t, natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve", Fast: true})
	defer s.Close()
	held, secret, err := natsd.NewCredential(jobs.RoleViewer, "eve")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(files, "eve.creds")
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	role, options, err := natsd.Present(file)
	if err != nil || role != jobs.RoleViewer {
		t.Fatal(role, err)
	}
	dial := func() (*nats.Conn, error) { return nats.Connect(s.Endpoint().URL, options...) }
	if nc, err := dial(); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Fatalf("connected before it was admitted: %v", err)
	}
	if err := natsd.Admit(dir, held); err != nil {
		t.Fatal(err)
	}
	if err := natsd.Admit(dir, held); err == nil {
		t.Error("a second credential has the same name")
	}
	closed := make(chan struct{})
	options = append(options, nats.ReconnectWait(10*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	nc, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if info, err := os.Stat(filepath.Join(dir, "credentials", held.Key+".json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what is kept of it: %v, %v; want mode 0600", info, err)
	}
	if _, err := natsd.Revoke(dir, "eve"); err != nil {
		t.Fatal(err)
	}
	if _, err := natsd.Revoke(dir, "eve"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("revoke twice: %v, want not found", err)
	}
	select {
	case <-closed:
	case <-time.After(jobstest.Patience):
		t.Error("the connection lives on")
	}
	if nc, err := dial(); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Errorf("connect with what was revoked: %v", err)
	}
}

// A client that has only the public half, or none, stays outside.
func TestForgedCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve", Fast: true})
	defer s.Close()
	held, _, err := natsd.NewCredential(jobs.RoleOperator, "ops")
	if err != nil {
		t.Fatal(err)
	}
	if err := natsd.Admit(dir, held); err != nil {
		t.Fatal(err)
	}
	for what, option := range map[string]nats.Option{
		"no credential":       func(*nats.Options) error { return nil },
		"a key's public half": nats.Nkey(held.Key, func([]byte) ([]byte, error) { return make([]byte, 64), nil }),
		"no signature":        nats.Nkey(held.Key, func([]byte) ([]byte, error) { return nil, nil }),
		"the key as user":     nats.UserInfo(held.Key, ""),
		"an empty user":       nats.UserInfo("", ""),
		"a token":             nats.Token("x"),
	} {
		if nc, err := nats.Connect(s.Endpoint().URL, option); !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	// A key that is a path leads nowhere.
	c, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint().URL, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(jobstest.Patience))
	fmt.Fprintf(c, "CONNECT {\"nkey\":\"../password\",\"sig\":\"AA\",\"verbose\":false}\r\nPING\r\n")
	if said, _ := io.ReadAll(c); !bytes.Contains(said, []byte("Authorization Violation")) {
		t.Errorf("the server said %s", said)
	}
}

// A store of the time before there were accounts is found again.
func TestStoreWithoutAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := &server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true}
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	job := jobstest.Submit(t, jobstest.Queue(t, nc, queue.Config{}), jobstest.Job())
	nc.Close()
	srv.Shutdown()
	srv.WaitForShutdown()
	for range 2 { // and again
		s := open(t, natsd.Config{StoreDir: dir, Fast: true})
		nc, err := s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := jobstest.Queue(t, nc, queue.Config{}).Get(jobstest.Context(t), job.ID); err != nil || rec.ID != job.ID {
			t.Errorf("the job of before: %+v, %v", rec, err)
		}
		nc.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// drained looks that a worker hears what is asked of it.
func (b *bus) drained(ctx context.Context, worker *queue.Queue) {
	b.t.Helper()
	asked, stop, err := worker.Workers().Notify("w2")
	if err != nil {
		b.t.Fatal(err)
	}
	defer stop()
	me := why.Worker{Name: "w2", Started: time.Now().UTC()}
	if err := worker.Workers().Present(ctx, me); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.pool.queue.Workers().Drain(ctx, me.Name, "test", true); err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-asked:
	case <-ctx.Done():
		b.t.Error("the worker is not notified")
	}
	if drain, found, err := worker.Workers().Asked(ctx, me.Name, me.Started); err != nil || !found || drain == nil || drain.By != "test" {
		b.t.Errorf("the worker reads %v, %t, %v; want that it is to drain", drain, found, err)
	}
	if drain, found, err := worker.Workers().Asked(ctx, me.Name, me.Started.Add(1)); err != nil || found {
		b.t.Errorf("another process of the same name reads %v, %t, %v; want nothing", drain, found, err)
	}
	if err := worker.Workers().Leave(ctx, me.Name); err != nil {
		b.t.Fatal(err)
	}
}
