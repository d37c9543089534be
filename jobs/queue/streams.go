package queue

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

const day = 24 * time.Hour

// create makes what every installation has. Queues come on demand.
func (q *Queue) create(ctx context.Context) error {
	for _, cfg := range q.streams() {
		cfg.Replicas, cfg.Storage, cfg.AllowDirect = q.cfg.Replicas, jetstream.FileStorage, true
		if err := q.conn.Stream(ctx, cfg, q.cfg.Upgrade); err != nil {
			return err
		}
	}
	for _, cfg := range q.buckets() {
		cfg.Replicas, cfg.Storage, cfg.History = q.cfg.Replicas, jetstream.FileStorage, max(1, cfg.History)
		if err := q.conn.Bucket(ctx, cfg, q.cfg.Upgrade); err != nil {
			return err
		}
	}
	for stream, cfg := range map[string]jetstream.ConsumerConfig{
		subject.Schedules:  {Durable: subject.Due, FilterSubject: q.names.DueAll()},
		subject.Intake:     {Durable: subject.Taker},
		subject.Advisories: {Durable: subject.Taker},
	} {
		cfg.AckPolicy, cfg.MaxDeliver, cfg.MaxAckPending, cfg.AckWait = jetstream.AckExplicitPolicy, -1, 1000, 30*time.Second
		if _, err := q.conn.Consumer(ctx, stream, cfg, q.cfg.Upgrade); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) streams() []jetstream.StreamConfig {
	return []jetstream.StreamConfig{{
		Name: subject.Intake, Subjects: []string{q.names.SubmitAll()}, Retention: jetstream.WorkQueuePolicy,
		// A submission that cannot be kept is refused, never dropped later.
		Discard: jetstream.DiscardNew, MaxMsgs: 1_000_000, MaxMsgSize: 1 << 20,
	}, {
		Name: subject.Schedules, Subjects: []string{q.names.SchedAll(), q.names.DueAll()}, Retention: jetstream.WorkQueuePolicy,
		// A second schedule replaces the first. Schedules are refused on a
		// stream that discards new messages.
		Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1, AllowMsgSchedules: true, AllowMsgTTL: true,
	}, {
		Name: subject.Dead, Subjects: []string{q.names.DeadAll()}, MaxAge: 90 * day, MaxMsgsPerSubject: 1,
		// Bounded by number: a bound in bytes is taken from the store at once.
		MaxMsgs: 100_000, Discard: jetstream.DiscardOld,
	}, {
		// Advisories are told once and to nobody in particular; this keeps
		// those that mean that the broker has given up a message.
		Name: subject.Advisories, MaxAge: 7 * day, MaxMsgs: 50_000, Discard: jetstream.DiscardOld,
		Subjects: []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.*.*"},
	}}
}

func (q *Queue) buckets() []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		// Records and specifications of jobs that have not finished must
		// never age: only what is written as terminal carries a time to live.
		{Bucket: subject.Jobs, MaxValueSize: 64 << 10, LimitMarkerTTL: time.Hour, RePublish: &jetstream.RePublish{
			// A copy that is sent once the change is stored, unlike the
			// publish itself, which a watcher would hear too early.
			Source: subject.Key(subject.Jobs, ">"), Destination: q.names.ChangedAll(), HeadersOnly: true,
		}},
		{Bucket: subject.Specs, MaxValueSize: 1 << 20, LimitMarkerTTL: time.Hour},
		{Bucket: subject.Keys, MaxValueSize: 1 << 10, LimitMarkerTTL: time.Hour},
		{Bucket: subject.Workers, MaxValueSize: 64 << 10, LimitMarkerTTL: time.Minute},
		{Bucket: subject.Settings, MaxValueSize: 256 << 10, History: 10},
		{Bucket: subject.Leader, MaxValueSize: 1 << 10, LimitMarkerTTL: time.Minute},
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
	queue, _ := subject.SplitClass(class)
	if err := q.conn.Stream(ctx, q.laneConfig(class, lane), q.cfg.Upgrade); err != nil {
		return 0, err
	}
	// A lane that is made while its queue is held begins so; and the hold is
	// looked at again, because somebody may begin one just now.
	hold, err := q.hold(ctx, HoldQueue, queue)
	if err != nil {
		return 0, err
	}
	var until *time.Time
	if hold != nil {
		until = new(hold.end())
	}
	cfg, err := q.conn.Consumer(ctx, stream, jetstream.ConsumerConfig{
		// No BackOff: it would replace AckWait, which is the lease. No
		// MaxDeliver: attempts are counted in the record.
		Durable: subject.Consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.cfg.Lease,
		MaxDeliver: -1, MaxAckPending: 20_000, MaxWaiting: 20_000, Replicas: q.cfg.Replicas, PauseUntil: until,
	}, q.cfg.Upgrade)
	if err != nil {
		return 0, err
	}
	if hold == nil {
		if hold, err = q.hold(ctx, HoldQueue, queue); err == nil && hold != nil {
			_, err = q.conn.JS.PauseConsumer(ctx, stream, subject.Consumer, hold.end())
		}
		if err != nil {
			return 0, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[stream] = cfg.AckWait
	return cfg.AckWait, nil
}

func (q *Queue) laneConfig(class, lane string) jetstream.StreamConfig {
	// The bell of the whole queue: who waits for it may not know the class yet.
	queue, _ := subject.SplitClass(class)
	return jetstream.StreamConfig{
		Name: subject.QueueStream(class, lane), Subjects: []string{q.names.QueueAll(class, lane)},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: q.cfg.Replicas, AllowDirect: true,
		// Together these make a job unique while it is queued or running,
		// without a window of time.
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1,
		MaxMsgs: 1_000_000, MaxMsgSize: 64 << 10,
		RePublish: &jetstream.RePublish{Source: q.names.QueueAll(class, lane), Destination: q.names.Wake(queue, lane), HeadersOnly: true},
	}
}
