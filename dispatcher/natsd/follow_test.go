package natsd_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// A viewer follows a session with nats.go alone, as the documentation says.
func TestAViewerFollowsWithTheClientLibrary(t *testing.T) {
	t.Parallel()
	eachBus(t, func(t *testing.T, b *bus) {
		ctx, rec := jobstest.Context(t), b.runs.Record()
		nc := b.connect("viewer-one", nil)
		js, err := jetstream.NewWithAPIPrefix(nc, "PSJS")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(ctx, "PS_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		stored := make(chan *nats.Msg, 64)
		if _, err := nc.ChanSubscribe("penstock.v1.stored.default."+rec.Session+".events", stored); err != nil {
			t.Fatal(err)
		}
		if err := nc.FlushTimeout(jobstest.Patience); err != nil {
			t.Fatal(err)
		}
		src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: b.runs.Epoch()}
		tell := func(kind jobs.Kind) {
			if _, err := b.pool.log.Append(ctx, src, jobs.Event{Kind: kind}); err != nil {
				t.Fatal(err)
			}
		}
		tell(jobs.JobClaimed)
		var seen []uint64
		for seq, rang := uint64(1), false; len(seen) < 3; {
			msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject("penstock.v1.sessions.default."+rec.Session+".events"))
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound):
				if !rang {
					rang = true
					tell(jobs.WorkspaceDone)
					tell(jobs.JobFinished)
				}
				select {
				case <-stored:
				case <-ctx.Done():
					t.Fatal("nobody rang")
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			var event jobs.Event
			if err := json.Unmarshal(msg.Data, &event); err != nil {
				t.Fatal(err)
			}
			seen, seq = append(seen, event.Seq), msg.Sequence+1
		}
		for i, seq := range seen {
			if seq != uint64(i+1) {
				t.Errorf("seen %v, want the events in order", seen)
			}
		}
		// A consumer lets its creator have the broker write to any subject.
		soon, cancel := context.WithTimeout(ctx, time.Second) // the library waits for an answer
		defer cancel()
		if _, err := stream.OrderedConsumer(soon, jetstream.OrderedConsumerConfig{}); err == nil {
			t.Errorf("a viewer has made a consumer, as role %s must not", jobs.RoleViewer)
		}
	})
}
