package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

const day = 24 * time.Hour

// create makes what every installation has. Queues come on demand.
func (q *Queue) create(ctx context.Context) error {
	return q.conn.Assets().EnsureAll(ctx, subject.Marker, func(has wire.Installed) []wire.Asset {
		q.cfg.settle(has)
		q.lanes = lane.New(q.conn, q.names, q.cfg.layout())
		return q.assets()
	}, q.cfg.Upgrade)
}

// layout is how the queue's lanes are made.
func (cfg *Config) layout() lane.Layout {
	return lane.Layout{Lease: cfg.Lease, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade}
}

// settle completes the settings with those of the installation.
func (cfg *Config) settle(has wire.Installed) {
	layout := cfg.layout()
	layout.Settle(has)
	cfg.Lease, cfg.Replicas = layout.Lease, layout.Replicas
}

// Assets returns what the queue wants on the broker, for callers that compare:
// what every installation has, and the lanes among the streams that exist. Where
// cfg names no replicas and no lease, the installation's are taken. The asset
// that says so of an installation comes first.
func Assets(cfg Config, has wire.Installed, existing []string) ([]wire.Asset, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	cfg.Upgrade = true
	cfg.settle(has)
	q, lanes := &Queue{cfg: cfg, names: names}, lane.New(nil, names, cfg.layout())
	all := q.assets()
	for _, stream := range existing {
		if class, lane, ok := subject.ParseQueueStream(stream); ok {
			all = append(all, lanes.Assets(class, lane)...)
		}
	}
	return all, nil
}

func (q *Queue) assets() []wire.Asset {
	all := q.buckets()
	for _, cfg := range q.streams() {
		cfg.Replicas = q.cfg.Replicas
		all = append(all, wire.StreamAsset(cfg))
	}
	for _, c := range []struct{ stream, name, filter string }{
		{subject.Schedules, subject.Due, q.names.DueAll()}, {subject.Intake, subject.Taker, ""}, {subject.Advisories, subject.Taker, ""},
	} {
		all = append(all, wire.ConsumerAsset(c.stream, jetstream.ConsumerConfig{
			Durable: c.name, FilterSubject: c.filter, MaxDeliver: -1, MaxAckPending: 1000, AckWait: 30 * time.Second,
		}))
	}
	return all
}

func (q *Queue) streams() []jetstream.StreamConfig {
	return []jetstream.StreamConfig{{
		Name: subject.Intake, Subjects: []string{q.names.SubmitAll()}, Retention: jetstream.WorkQueuePolicy,
		// A submission that cannot be kept is refused, never dropped later.
		Discard: jetstream.DiscardNew, MaxMsgs: 1_000_000, MaxMsgSize: 1 << 20,
	}, {
		Name: subject.Schedules, Subjects: []string{q.names.SchedAll(), q.names.DueAll()}, Retention: jetstream.WorkQueuePolicy,
		// A second schedule replaces the first. Schedules are refused on a
		// stream that discards new messages, and on one without rollups: so
		// only operators may publish here.
		Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1, AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true,
	}, {
		Name: subject.Dead, Subjects: []string{q.names.DeadAll()}, MaxAge: cmp.Or(q.cfg.DeadRetention, 90*day), MaxMsgsPerSubject: 1,
		// Bounded by number: a bound in bytes is taken from the store at once.
		MaxMsgs: 100_000, Discard: jetstream.DiscardOld,
	}, {
		// The broker publishes an advisory once, to no subscriber in particular;
		// this keeps those that mean that the broker has given up a message.
		Name: subject.Advisories, MaxAge: 7 * day, MaxMsgs: 50_000, Discard: jetstream.DiscardOld,
		Subjects: []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.*.*"},
	}}
}

func (q *Queue) buckets() []wire.Asset {
	bucket := func(cfg jetstream.KeyValueConfig) wire.Asset {
		cfg.Replicas = q.cfg.Replicas
		return wire.BucketAsset(cfg)
	}
	return []wire.Asset{
		// Records and specifications of jobs that have not finished must
		// never age: only what is written as terminal carries a time to live.
		bucket(jetstream.KeyValueConfig{Bucket: subject.Jobs, MaxValueSize: 64 << 10, RePublish: &jetstream.RePublish{
			// A copy that is sent once the change is stored, unlike the
			// publish itself, which a watcher would hear too early.
			Source: subject.Key(subject.Jobs, ">"), Destination: q.names.ChangedAll(), HeadersOnly: true,
		}}).Expiring().Marked(q.cfg.Lease),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Specs, MaxValueSize: 1 << 20}).Expiring().Compressed(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Keys, MaxValueSize: 1 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Workers, MaxValueSize: 64 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Settings, MaxValueSize: 256 << 10, History: 10}),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Leader, MaxValueSize: 1 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Permits, MaxValueSize: 256 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Timetable, MaxValueSize: 2 * calendar.MaxTemplate}),
	}
}
