package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

const day = 24 * time.Hour

// create makes what every installation has. Queues come on demand.
func (q *Queue) create(ctx context.Context) error {
	return q.conn.Assets().EnsureAll(ctx, subject.Marker, func(has wire.Installed) []wire.Asset {
		q.cfg.settle(has)
		return q.assets()
	}, q.cfg.Upgrade)
}

// settle completes the settings with those of the installation. Only a process
// that upgrades one may have others.
func (cfg *Config) settle(has wire.Installed) {
	if !cfg.Upgrade || cfg.Replicas == 0 {
		cfg.Replicas = cmp.Or(has.Replicas, cfg.Replicas, 1)
	}
	if !cfg.Upgrade || cfg.Lease == 0 {
		cfg.Lease = cmp.Or(has.Lease, cfg.Lease, 10*time.Second)
	}
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
	q := &Queue{cfg: cfg, names: names}
	all := q.assets()
	for _, stream := range existing {
		if class, lane, ok := subject.ParseQueueStream(stream); ok {
			all = append(all, q.laneAsset(class, lane), q.laneConsumer(class, lane))
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
		bucket(jetstream.KeyValueConfig{Bucket: subject.Specs, MaxValueSize: 1 << 20}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Keys, MaxValueSize: 1 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Workers, MaxValueSize: 64 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Settings, MaxValueSize: 256 << 10, History: 10}),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Leader, MaxValueSize: 1 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Permits, MaxValueSize: 256 << 10}).Expiring(),
		bucket(jetstream.KeyValueConfig{Bucket: subject.Timetable, MaxValueSize: 2 * calendar.MaxTemplate}),
	}
}

// lane makes sure that the lane of a class exists and returns its lease.
func (q *Queue) lane(ctx context.Context, class, lane string) (time.Duration, error) {
	stream := subject.QueueStream(class, lane)
	q.mu.Lock()
	lease, ok := q.lanes[stream]
	q.mu.Unlock()
	if ok {
		return lease, nil
	}
	if err := jobs.CheckToken("queue", class); err != nil {
		return 0, err
	}
	lease, err := q.leaseOf(ctx, stream)
	if !q.conn.Bound && (errors.Is(err, jobs.ErrNotFound) || err == nil && q.cfg.Upgrade) {
		if err = q.makeLane(ctx, class, lane); err == nil {
			lease, err = q.leaseOf(ctx, stream)
		}
	}
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[stream] = lease
	return lease, nil
}

// leaseOf is the lease that the claimers of a lane have.
func (q *Queue) leaseOf(ctx context.Context, stream string) (time.Duration, error) {
	var info struct {
		Config struct {
			AckWait time.Duration `json:"ack_wait"`
		} `json:"config"`
	}
	err := q.conn.Ask(ctx, "CONSUMER.INFO."+stream+"."+subject.Consumer, nil, &info)
	if wire.NoStream(err) || wire.NoConsumer(err) {
		err = jobs.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("lane %s: %w", stream, err)
	}
	return info.Config.AckWait, nil
}

// makeLane makes a lane as the installation is now: it may have been given
// more replicas, or another lease, since this process has looked.
func (q *Queue) makeLane(ctx context.Context, class, lane string) error {
	now := &Queue{cfg: q.cfg, names: q.names, conn: q.conn}
	for {
		has, err := q.conn.Assets().Installed(ctx, subject.Marker)
		if err != nil {
			return err
		}
		now.cfg.settle(has)
		if err := now.ensureLane(ctx, class, lane); err != nil {
			return err
		}
		// A migration changes what the installation says of itself first, and looks
		// for lanes afterwards: one of the two sees the other.
		if again, err := q.conn.Assets().Installed(ctx, subject.Marker); err != nil || again == has {
			return err
		}
		now.cfg.Upgrade = true
	}
}

func (q *Queue) ensureLane(ctx context.Context, class, lane string) error {
	queue, _ := subject.SplitClass(class)
	if err := q.conn.Assets().Ensure(ctx, q.laneAsset(class, lane), q.cfg.Upgrade); err != nil {
		return err
	}
	// A lane that is made while its queue is held begins so; and the hold is
	// looked at again, because another process may begin one just now.
	hold, err := q.hold(ctx, jobs.HoldQueue, queue)
	if err != nil {
		return err
	}
	consumer := q.laneConsumer(class, lane)
	if hold != nil {
		consumer.Consumer.PauseUntil = new(holdEnd(*hold))
	}
	if err := q.conn.Assets().Ensure(ctx, consumer, q.cfg.Upgrade); err != nil || hold != nil {
		return err
	}
	if hold, err = q.hold(ctx, jobs.HoldQueue, queue); err == nil && hold != nil {
		_, err = q.conn.JS.PauseConsumer(ctx, subject.QueueStream(class, lane), subject.Consumer, holdEnd(*hold))
	}
	return err
}

// laneConsumer is the consumer that all workers of a lane share.
func (q *Queue) laneConsumer(class, lane string) wire.Asset {
	return wire.ConsumerAsset(subject.QueueStream(class, lane), jetstream.ConsumerConfig{
		// No BackOff: it would replace AckWait, which is the lease. No
		// MaxDeliver: attempts are counted in the record.
		Durable: subject.Consumer, AckWait: q.cfg.Lease, MaxDeliver: -1, MaxAckPending: 20_000, MaxWaiting: 20_000,
	})
}

func (q *Queue) laneAsset(class, lane string) wire.Asset {
	// Notify on a subject of the whole queue: a waiting claimer may not know the class yet.
	queue, _ := subject.SplitClass(class)
	return wire.StreamAsset(jetstream.StreamConfig{
		Name: subject.QueueStream(class, lane), Subjects: []string{q.names.QueueAll(class, lane)},
		Retention: jetstream.WorkQueuePolicy, Replicas: q.cfg.Replicas,
		// Together these make a job unique while it is queued or running,
		// without a window of time.
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1,
		MaxMsgs: 1_000_000, MaxMsgSize: 64 << 10,
		RePublish: &jetstream.RePublish{Source: q.names.QueueAll(class, lane), Destination: q.names.Wake(queue, lane), HeadersOnly: true},
		// The records say which jobs belong here: the leader makes again what a broker
		// loses that dies before its disk has it.
	}).Unsynced()
}
