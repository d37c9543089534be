package layout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// install makes all that a pool makes, and one lane of a queue.
func install(t *testing.T, nc *nats.Conn, cfg queue.Config) {
	t.Helper()
	q := jobstest.Queue(t, nc, cfg)
	jobstest.Log(t, nc)
	jobstest.Store(t, nc)
	jobstest.Tokens(t, nc)
	jobstest.Webhooks(t, nc)
	jobstest.Audit(t, nc)
	jobstest.Submit(t, q, jobstest.Job())
}

func diff(t *testing.T, nc *nats.Conn, cfg layout.Config) []layout.Difference {
	t.Helper()
	differ, err := layout.Diff(jobstest.Context(t), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return differ
}

func apply(t *testing.T, nc *nats.Conn, cfg layout.Config) (done, left []layout.Difference) {
	t.Helper()
	left, err := layout.Apply(jobstest.Context(t), nc, cfg, func(d layout.Difference) { done = append(done, d) })
	if err != nil {
		t.Fatal(err)
	}
	return done, left
}

func stream(t *testing.T, nc *nats.Conn, name string) jetstream.StreamConfig {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(jobstest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

// edit changes a stream as an administrator with another tool would.
func edit(t *testing.T, nc *nats.Conn, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream(t, nc, name)
	change(&cfg)
	if _, err := js.UpdateStream(jobstest.Context(t), cfg); err != nil {
		t.Fatal(err)
	}
}

func TestWhatAPoolMakesIsWhatIsWanted(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{Lease: 3 * time.Second})
	if differ := diff(t, nc, layout.Config{}); len(differ) != 0 {
		t.Errorf("after a pool has made everything: %+v", differ)
	}
	// A lease is part of it only where the configuration names one.
	differ := diff(t, nc, layout.Config{Lease: 5 * time.Second})
	if len(differ) != 2 || differ[0].Field != "metadata" || differ[1].Field != "ack_wait" || differ[1].Is != "3s" {
		t.Errorf("with another lease: %+v", differ)
	}
}

func TestApplyToAnEmptyBroker(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	before := diff(t, nc, layout.Config{})
	done, left := apply(t, nc, layout.Config{})
	// The bucket of the turn is there before the turn.
	if len(done) != len(before)-1 || len(left) != 0 || len(done) < 14 {
		t.Errorf("%d of %d made, %d left", len(done), len(before), len(left))
	}
	if differ := diff(t, nc, layout.Config{}); len(differ) != 0 {
		t.Errorf("after apply: %+v", differ)
	}
	if done, _ := apply(t, nc, layout.Config{}); len(done) != 0 {
		t.Errorf("applied again: %+v", done)
	}
	install(t, nc, queue.Config{})
	if differ := diff(t, nc, layout.Config{}); len(differ) != 0 {
		t.Errorf("after a pool has used it: %+v", differ)
	}
}

func TestWhatDiffersIsFoundAndMended(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{})
	edit(t, nc, "KV_ps_jobs", func(cfg *jetstream.StreamConfig) {
		cfg.MaxAge = time.Hour // jobs would vanish
		cfg.Description = "ours"
		cfg.MaxBytes = 1 << 30
		cfg.Metadata["team"] = "ops"
	})
	edit(t, nc, "PS_EVENTS", func(cfg *jetstream.StreamConfig) { cfg.DenyPurge = true })
	differ := diff(t, nc, layout.Config{})
	if len(differ) != 2 || differ[0].Name != "ps_jobs" || differ[0].Field != "max_age" || differ[0].Way != layout.Change {
		t.Errorf("changed by somebody else: %+v", differ)
	}
	if differ[1].Way != layout.Refuse || differ[1].Field != "deny_purge" || differ[1].Why == "" {
		t.Errorf("what the broker does not take back: %+v", differ[1])
	}
	done, left := apply(t, nc, layout.Config{})
	if len(done) != 1 || len(left) != 1 || left[0].Name != "PS_EVENTS" {
		t.Errorf("changed %+v, left %+v", done, left)
	}
	now := stream(t, nc, "KV_ps_jobs")
	if now.MaxAge != 0 || now.Description != "ours" || now.MaxBytes != 1<<30 || now.Metadata["team"] != "ops" {
		t.Errorf("after apply: %+v", now)
	}
}

func TestWhatANewerReleaseMadeStays(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{})
	edit(t, nc, "PS_DEAD", func(cfg *jetstream.StreamConfig) {
		cfg.Metadata["penstock-layout"] = "99"
		cfg.MaxAge = 7 * 24 * time.Hour
	})
	// An embedded broker of this release is opened on its directory.
	jobstest.Queue(t, nc, queue.Config{Upgrade: true})
	done, left := apply(t, nc, layout.Config{})
	if len(done) != 0 || len(left) == 0 || left[0].Way != layout.Newer || !strings.Contains(left[0].Why, "layout 99") {
		t.Errorf("changed %+v, left %+v", done, left)
	}
	if age := stream(t, nc, "PS_DEAD").MaxAge; age != 7*24*time.Hour {
		t.Errorf("max_age %v after an upgrade and an apply of this release", age)
	}
	if _, left = apply(t, nc, layout.Config{Downgrade: true}); len(left) != 0 || stream(t, nc, "PS_DEAD").MaxAge != 90*24*time.Hour {
		t.Errorf("asked for: left %+v", left)
	}
}

// What a release before this one has made says nothing of its layout.
func TestWhatAnOlderReleaseMadeIsBrought(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{})
	edit(t, nc, "PS_DEAD", func(cfg *jetstream.StreamConfig) {
		cfg.Metadata = nil
		cfg.MaxMsgsPerSubject = 5
	})
	jobstest.Queue(t, nc, queue.Config{}) // who only uses the pool changes nothing
	if differ := diff(t, nc, layout.Config{}); len(differ) != 2 {
		t.Errorf("made by an older release: %+v", differ)
	}
	jobstest.Queue(t, nc, queue.Config{Upgrade: true})
	if differ := diff(t, nc, layout.Config{}); len(differ) != 0 {
		t.Errorf("upgraded: %+v", differ)
	}
}

func TestTwoDoNotApplyAtOnce(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{})
	edit(t, nc, "PS_DEAD", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = 5 })
	var second error
	_, err := layout.Apply(jobstest.Context(t), nc, layout.Config{}, func(layout.Difference) {
		_, second = layout.Apply(jobstest.Context(t), nc, layout.Config{}, func(layout.Difference) {})
	})
	if busy, ok := errors.AsType[*layout.BusyError](second); err != nil || !ok || busy.PID == 0 {
		t.Errorf("first: %v; second: %v, want busy", err, second)
	}
	if _, left := apply(t, nc, layout.Config{}); len(left) != 0 {
		t.Errorf("afterwards: %+v", left)
	}
}

func TestReplicasNeedACluster(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	install(t, nc, queue.Config{})
	_, err := layout.Apply(jobstest.Context(t), nc, layout.Config{Replicas: 3}, func(layout.Difference) {})
	if err == nil || !strings.Contains(err.Error(), "needs a cluster") {
		t.Errorf("three replicas on one server: %v", err)
	}
	groups, err := layout.Groups(jobstest.Context(t), nc, layout.Config{})
	if err != nil || !slices.ContainsFunc(groups, func(g layout.Group) bool { return g.Stream == "PS_Q_DEFAULT_P1" && g.Wanted == 1 }) {
		t.Errorf("groups: %+v, %v", groups, err)
	}
}

// asBefore makes a stream as earlier releases did: with rollups, which remove what
// others wrote, and a long memory of message ids.
func asBefore(cfg *jetstream.StreamConfig) {
	cfg.AllowRollup, cfg.Duplicates = true, 2*time.Minute
	if cfg.Name == "KV_ps_jobs" {
		cfg.SubjectDeleteMarkerTTL = time.Hour // which needs them
	}
}

func TestRollupsAreTakenBack(t *testing.T) {
	t.Parallel()
	names := []string{"KV_ps_jobs", "KV_ps_results", "KV_ps_permits", "KV_ps_workers", "OBJ_ps_artifacts", "PS_EVENTS", "PS_DEAD", "PS_INTAKE"}
	ways := map[string]func(nc *nats.Conn){
		"apply": func(nc *nats.Conn) { apply(t, nc, layout.Config{}) },
		"start": func(nc *nats.Conn) {
			jobstest.Queue(t, nc, queue.Config{Upgrade: true})
			for _, err := range []error{
				second(session.Open(jobstest.Context(t), nc, session.Config{Upgrade: true})),
				second(artifact.Open(jobstest.Context(t), nc, artifact.Config{Upgrade: true})),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for what, change := range ways {
		nc := jobstest.Start(t).Connect()
		install(t, nc, queue.Config{})
		for _, name := range names {
			edit(t, nc, name, asBefore)
		}
		if differ := diff(t, nc, layout.Config{}); len(differ) != 2*len(names)+1 {
			t.Errorf("%s: %d differences, want %d: %+v", what, len(differ), 2*len(names)+1, differ)
		}
		change(nc)
		if differ := diff(t, nc, layout.Config{}); len(differ) != 0 {
			t.Errorf("after %s: %+v", what, differ)
		}
		for _, name := range names {
			if cfg := stream(t, nc, name); cfg.AllowRollup || cfg.Duplicates > time.Second || cfg.SubjectDeleteMarkerTTL != 0 {
				t.Errorf("after %s: %s has rollups %v, window %v, marks %v", what, name, cfg.AllowRollup, cfg.Duplicates, cfg.SubjectDeleteMarkerTTL)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }
