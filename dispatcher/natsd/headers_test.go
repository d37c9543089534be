package natsd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// obeyed are the headers that the broker acts on, with what a hostile client
// would write there. OTHER is a subject in the same stream that belongs to
// another client, INBOX where the answers to another client go.
var obeyed = []struct {
	what    string
	headers map[string]string
	refused bool // wherever a role may publish
}{
	{"roll up everything", map[string]string{"Nats-Rollup": "all"}, true},
	{"roll up the subject", map[string]string{"Nats-Rollup": "sub"}, true},
	{"roll up everything in a batch", map[string]string{"Nats-Rollup": "all", "Nats-Batch-Id": "b1", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}, true},
	{"roll up with a time to live", map[string]string{"Nats-Rollup": "all", "Nats-TTL": "1s"}, true},
	{"expire", map[string]string{"Nats-TTL": "1s"}, false},
	{"never expire", map[string]string{"Nats-TTL": "never"}, false},
	{"schedule a message to another subject", map[string]string{"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "OTHER"}, true},
	{"schedule one again and again", map[string]string{"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "OTHER", "Nats-Schedule-TTL": "1s"}, true},
	{"schedule a rollup", map[string]string{"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "OTHER", "Nats-Schedule-Rollup": "sub"}, true},
	{"schedule another's content", map[string]string{"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "OTHER", "Nats-Schedule-Source": "OTHER"}, true},
	{"purge another's schedule", map[string]string{"Nats-Scheduler": "OTHER", "Nats-Schedule-Next": "purge"}, true},
	{"expect another stream", map[string]string{"Nats-Expected-Stream": "ELSEWHERE"}, true},
	{"expect a sequence", map[string]string{"Nats-Expected-Last-Sequence": "0"}, true},
	{"expect nothing in the subject", map[string]string{"Nats-Expected-Last-Subject-Sequence": "0"}, false},
	{"expect something of another subject", map[string]string{"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Subject-Sequence-Subject": "OTHER"}, false},
	{"expect a message id", map[string]string{"Nats-Expected-Last-Msg-Id": "x"}, true},
	{"a batch that never ends", map[string]string{"Nats-Batch-Id": "b2", "Nats-Batch-Sequence": "1"}, false},
	{"a batch with a gap", map[string]string{"Nats-Batch-Id": "b3", "Nats-Batch-Sequence": "7", "Nats-Batch-Commit": "1"}, false},
	{"a batch of one", map[string]string{"Nats-Batch-Id": "b4", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "eob"}, false},
	{"a mark that the key has aged", map[string]string{"Nats-Marker-Reason": "MaxAge"}, false},
	{"a mark that the key was purged", map[string]string{"Nats-Marker-Reason": "Purge"}, false},
	{"a mark that the key was purged, of a client", map[string]string{"KV-Operation": "PURGE"}, false},
	{"a mark that rolls up", map[string]string{"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "1s"}, true},
	{"count", map[string]string{"Nats-Incr": "+1"}, true},
	{"say that it comes from another stream", map[string]string{"Nats-Stream-Source": "ELSEWHERE 1 > > >"}, true},
	{"have its way told where it may not write", map[string]string{"Nats-Trace-Dest": "$KV.ps_config.hold.queue.default"}, false},
	{"have its way told to another client", map[string]string{"Nats-Trace-Dest": "INBOX"}, false},
	{"only have its way told", map[string]string{"Nats-Trace-Dest": "INBOX", "Nats-Trace-Only": "true"}, false},
}

// kept is what the streams hold: by stream and sequence the subject.
type kept map[string]map[uint64]string

func (b *bus) kept() kept {
	b.t.Helper()
	all := kept{}
	for _, cfg := range b.streams() {
		all[cfg.Name] = map[uint64]string{}
		if cfg.Name == leaderStream {
			continue
		}
		js, err := jetstream.New(b.ops)
		if err != nil {
			b.t.Fatal(err)
		}
		s, err := js.Stream(jobstest.Context(b.t), cfg.Name)
		if err != nil {
			b.t.Fatal(err)
		}
		for seq := uint64(1); ; seq++ {
			msg, err := s.GetMsg(jobstest.Context(b.t), seq, jetstream.WithGetMsgSubject(">"))
			if err != nil {
				break // there is none after it
			}
			seq = msg.Sequence
			all[cfg.Name][seq] = msg.Subject
		}
	}
	return all
}

func (b *bus) streams() (all []jetstream.StreamConfig) {
	b.t.Helper()
	js, err := jetstream.New(b.ops)
	if err != nil {
		b.t.Fatal(err)
	}
	list := js.ListStreams(jobstest.Context(b.t))
	for info := range list.Info() {
		all = append(all, info.Config)
	}
	if list.Err() != nil {
		b.t.Fatal(list.Err())
	}
	return all
}

// others fills the streams with what clients of all roles leave there.
func (b *bus) others() {
	b.t.Helper()
	ctx, rec := jobstest.Context(b.t), b.runs.Record()
	for _, to := range []string{"penstock.v1.sched.default.theirs", "penstock.v1.sched.default.cron.theirs"} { // nothing of ours is behind them
		msg := nats.NewMsg(to)
		msg.Header.Set("Nats-Schedule", "@at 2200-01-01T00:00:00Z")
		msg.Header.Set("Nats-Schedule-Target", "penstock.v1.due.default.p1.default.theirs")
		if _, err := b.ops.RequestMsg(msg, jobstest.Patience); err != nil {
			b.t.Fatal(err)
		}
	}
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: b.runs.Epoch()}
	writer, err := b.pool.log.Writer(ctx, src, event.New(event.JobClaimed{}))
	if err == nil {
		err = writer.Append(ctx, event.New(event.WorkspaceReady{}), event.New(event.WorkspaceReady{}))
	}
	if err == nil {
		_, err = b.pool.store.Put(ctx, rec.ID, b.runs.Epoch(), "patch", strings.NewReader("the patch"))
	}
	if err == nil {
		err = b.pool.store.PutResult(ctx, b.runs.Epoch(), jobs.Result{Job: rec.ID, Outcome: jobs.Success})
	}
	// A worker that is really present would be forgotten after 15 s, which a busy machine needs.
	for _, to := range []string{"penstock.v1.submit.default", "penstock.v1.dead.default.default.x", "$KV.ps_permits.others", "$KV.ps_workers.others"} {
		if err == nil {
			_, err = b.ops.Request(to, []byte("{}"), jobstest.Patience)
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// targets are the subjects that a role may publish to and that a stream keeps:
// an unused one for each right, and those of others in streams that keep more
// than the last message of a subject.
func (b *bus) targets(role jobs.Role, before kept) map[string]jetstream.StreamConfig {
	b.t.Helper()
	rights, err := access.Layout{}.Rights(role, "")
	if err != nil {
		b.t.Fatal(err)
	}
	found := map[string]jetstream.StreamConfig{}
	for _, cfg := range b.streams() {
		for _, right := range rights.Publish {
			tokens := strings.Split(right, ".")
			for i, token := range tokens {
				if token == "*" || token == ">" {
					tokens[i] = "mine"
				}
			}
			fresh := strings.Join(tokens, ".")
			if !slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return matches(pattern, fresh) }) {
				continue
			}
			found[fresh] = cfg
			for _, to := range before[cfg.Name] {
				if matches(right, to) && cfg.MaxMsgsPerSubject != 1 {
					found[to] = cfg
				}
			}
		}
	}
	return found
}

func matches(pattern, to string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(to, ".")
	for i, token := range p {
		if token == ">" {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(p) == len(s)
}

// A header of a message makes the broker do more than to keep it. Whatever a
// role writes there, nothing of others is lost, nothing is written elsewhere, and
// what it must not do is refused.
func TestHeadersThatTheBrokerObeys(t *testing.T) {
	t.Parallel()
	atLeast := map[jobs.Role]int{jobs.RoleViewer: 0, jobs.RoleSubmitter: 1, jobs.RoleWorker: 10}
	eachBus(t, func(t *testing.T, b *bus) {
		b.others()
		for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter, jobs.RoleWorker} {
			nc := b.connect(string(role)+"-one", nil)
			heard := b.inbox(string(role) + "-other")
			all := b.targets(role, b.kept())
			if len(all) < atLeast[role] {
				t.Errorf("%s may publish to %d stored subjects, want at least %d: %v", role, len(all), atLeast[role], slices.Sorted(maps.Keys(all)))
			}
			for _, to := range slices.Sorted(maps.Keys(all)) {
				cfg := all[to]
				if cfg.AllowRollup || cfg.AllowMsgSchedules {
					t.Errorf("%s may publish to %s, which stream %s keeps with rollups %v, schedules %v", role, to, cfg.Name, cfg.AllowRollup, cfg.AllowMsgSchedules)
				}
				before := b.kept()
				said := b.publishAll(nc, role, to, other(before[cfg.Name], to))
				b.nothingLost(before, to, fmt.Sprintf("%s publishes to %s: %s", role, to, said))
			}
			if msg, err := heard.NextMsg(50 * time.Millisecond); err == nil {
				t.Errorf("in the inbox of another %s: %s", role, msg.Data)
			}
		}
	})
}

// inbox is everything that a client may hear of answers.
func (b *bus) inbox(name string) *nats.Subscription {
	b.t.Helper()
	nc := b.connect(name, nil)
	sub, err := nc.SubscribeSync(access.Inbox(b.held[name].Key) + ".>")
	if err == nil {
		err = nc.FlushTimeout(jobstest.Patience)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return sub
}

// other returns another client's subject.
func other(in map[uint64]string, than string) string {
	for _, seq := range slices.Sorted(maps.Keys(in)) {
		if in[seq] != than {
			return in[seq]
		}
	}
	return than
}

// publishAll sends one message for each row, and at last one without headers. It
// returns the broker's answers.
func (b *bus) publishAll(nc *nats.Conn, role jobs.Role, to, other string) (said string) {
	b.t.Helper()
	inbox := access.Inbox(b.held[string(role)+"-one"].Key)
	for _, row := range obeyed {
		answers, err := nc.SubscribeSync(inbox + "." + nats.NewInbox()[7:])
		if err != nil {
			b.t.Fatal(err)
		}
		msg := nats.NewMsg(to)
		msg.Reply, msg.Data = answers.Subject, []byte("mine")
		for name, value := range row.headers {
			msg.Header.Set(name, strings.NewReplacer("OTHER", other, "INBOX", access.Inbox(b.held[string(role)+"-other"].Key)+".x").Replace(value))
		}
		if err := nc.PublishMsg(msg); err != nil {
			b.t.Fatal(err)
		}
		// Some are never answered. What comes last has been answered after them.
		if _, err := nc.Request(to, nil, jobstest.Patience); err != nil {
			b.t.Fatalf("%s to %s: %v", row.what, to, err)
		}
		answer, stored := "no answer", false
		if msg, err := answers.NextMsg(50 * time.Millisecond); err == nil {
			var ack struct {
				Seq   uint64 `json:"seq"`
				Error struct {
					Text string `json:"description"`
				} `json:"error"`
			}
			_ = json.Unmarshal(msg.Data, &ack)
			answer, stored = ack.Error.Text, ack.Seq > 0 && ack.Error.Text == ""
		}
		if row.refused && stored {
			b.t.Errorf("%s may %s, with a message to %s", role, row.what, to)
		}
		said += fmt.Sprintf("\n\t%s: %s", row.what, answer)
		_ = answers.Unsubscribe()
	}
	return said
}

// nothingLost compares what there is with what there was, but for a subject's own.
func (b *bus) nothingLost(before kept, but, what string) {
	b.t.Helper()
	after := b.kept()
	for stream, messages := range before {
		for seq, to := range messages {
			gone := after[stream][seq] == ""
			if gone && to != but {
				b.t.Errorf("%s\nmessage %d of %s, of %s, is gone", what, seq, stream, to)
			}
			delete(after[stream], seq)
		}
		for seq, to := range after[stream] {
			if to != but {
				b.t.Errorf("%s\nthere is a message %d of %s, of %s", what, seq, stream, to)
			}
		}
	}
}

// A client that uses a message id first makes the broker drop whatever comes with
// the same one while it remembers that id, so it remembers none for long.
func TestMessageIDsTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		for _, role := range []jobs.Role{jobs.RoleSubmitter, jobs.RoleWorker} {
			nc := b.connect(string(role)+"-one", nil)
			for to, cfg := range b.targets(role, b.kept()) {
				publish := func(nc *nats.Conn, to string) (duplicate bool) {
					msg := nats.NewMsg(to)
					msg.Header.Set(jetstream.MsgIDHeader, "order-17")
					msg.Data = []byte("{}")
					answer, err := nc.RequestMsg(msg, jobstest.Patience)
					if err != nil {
						t.Fatal(err)
					}
					var ack struct {
						Duplicate bool `json:"duplicate"`
					}
					if err := json.Unmarshal(answer.Data, &ack); err != nil {
						t.Fatal(err)
					}
					return ack.Duplicate
				}
				began := time.Now()
				publish(nc, to)
				for publish(b.ops, strings.ReplaceAll(to, "mine", "theirs")) {
					if time.Since(began) > 3*time.Second {
						t.Fatalf("%s publishes to %s: another's message with the same id is dropped for %v", role, to, cfg.Duplicates)
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
	})
}

// A worker may not write schedules. Its job's next attempt begins in time all the
// same, because the leader asks the broker for that.
func TestLeaderSchedulesWhatAWorkerPutsOff(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		stop := b.dispatch()
		defer stop()
		worker := open3(t, b.connect("worker-one", nil), jobs.RoleWorker)
		ctx := jobstest.Context(t)
		claim, err := worker.queue.Claim(ctx, "w1", []string{"default"})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := claim.Settle(ctx, jobs.Ended{Outcome: jobs.Failure, Reason: jobs.AgentCrashed}, nil)
		if err != nil || rec.State != jobs.Delayed {
			t.Fatalf("settled %+v, %v; want it put off", rec, err)
		}
		ctx, cancel := context.WithDeadline(ctx, rec.NotBefore.Add(4*time.Second)) // before it would be repaired
		defer cancel()
		again, err := worker.queue.Claim(ctx, "w1", []string{"default"})
		if err != nil || again.Record().ID != rec.ID {
			t.Fatalf("next attempt: %v", err)
		}
		if begin := time.Now(); begin.Before(rec.NotBefore.Add(-time.Second)) {
			t.Errorf("it began at %v, before %v", begin, rec.NotBefore)
		}
	})
}

// The leader removes what a worker has replaced or dropped in the store, or not
// finished; a worker could otherwise remove what belongs to another one.
func TestWhatWorkersReplaceIsSwept(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		worker := open3(t, b.connect("worker-one", nil), jobs.RoleWorker)
		ctx, rec := jobstest.Context(t), b.runs.Record()
		content := func() (n int) {
			for _, to := range b.kept()["OBJ_ps_artifacts"] {
				if strings.Contains(to, ".C.") {
					n++
				}
			}
			return n
		}
		var capsule jobs.Capsule
		for _, data := range []string{"first", "second", "third"} {
			if _, err := worker.store.Put(ctx, rec.ID, 1, "patch", strings.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			home, err := worker.store.PutPart(ctx, rec.ID, 1, strings.NewReader("home "+data))
			next := jobs.Capsule{Format: artifact.CapsuleFormat, Job: rec.ID, Epoch: 1, Agent: rec.Agent, Home: home}
			if err == nil {
				err = worker.store.PutCapsule(ctx, next, capsule)
			}
			if err != nil {
				t.Fatal(err)
			}
			capsule = next
		}
		if _, err := worker.store.Put(ctx, rec.ID, 1, "log", strings.NewReader("the log")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ops.Request("$O.ps_artifacts.C.unfinished", []byte("x"), jobstest.Patience); err != nil {
			t.Fatal(err)
		}
		if n := content(); n != 8 {
			t.Fatalf("%d objects are stored, want what the worker may not remove as well: 8", n)
		}
		if n, err := b.pool.store.Sweep(ctx); err != nil || n != 4 {
			t.Errorf("swept %d, %v; want 4", n, err)
		}
		if n := content(); n != 4 {
			t.Errorf("%d objects are left, want the patch, the log, the part and what somebody writes", n)
		}
		for name, want := range map[string]string{"patch": "third", "log": "the log", capsule.Home.Name: "home third"} {
			if a, err := worker.store.Check(ctx, rec.ID, 1, name); err != nil || a.Bytes != int64(len(want)) {
				t.Errorf("%s after that: %+v, %v", name, a, err)
			}
		}
		described := len(b.kept()["OBJ_ps_artifacts"]) - 4
		if n, err := b.pool.store.Sweep(ctx); err != nil || n != 0 || described != 3 {
			t.Errorf("swept again %d, %v; %d descriptions are left, want 3", n, err, described)
		}
	})
}
