// Package lane keeps the lanes of a pool: the streams that wake workers for jobs, one for each
// class and priority.
package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A Layout is how the lanes of an installation are made.
type Layout struct {
	Lease    time.Duration // how long a worker may be silent before the broker offers its job again
	Replicas int           // how many servers of a cluster keep each lane
	Upgrade  bool          // lanes that exist are changed to this layout
}

// Settle completes a layout with what the installation has. Only a process
// that upgrades it may have others.
func (l *Layout) Settle(has wire.Installed) {
	if !l.Upgrade || l.Replicas == 0 {
		l.Replicas = cmp.Or(has.Replicas, l.Replicas, 1)
	}
	if !l.Upgrade || l.Lease == 0 {
		l.Lease = cmp.Or(has.Lease, l.Lease, 10*time.Second)
	}
}

// Lanes are those of a pool. The methods may be called from any goroutine.
type Lanes struct {
	conn   *wire.Conn
	names  subject.Names
	holds  hold.Holds
	layout Layout

	mu      sync.Mutex
	leases  map[string]time.Duration // by stream: of the lanes that exist
	classes map[string]bool          // that this process has registered
}

// New returns the lanes that a connection leads to.
func New(conn *wire.Conn, names subject.Names, layout Layout) *Lanes {
	return &Lanes{conn: conn, names: names, holds: hold.New(conn), layout: layout, leases: map[string]time.Duration{}, classes: map[string]bool{}}
}

// Lease makes sure that the lane of a class exists and returns its lease.
func (l *Lanes) Lease(ctx context.Context, class, lane string) (time.Duration, error) {
	stream := subject.QueueStream(class, lane)
	l.mu.Lock()
	lease, ok := l.leases[stream]
	l.mu.Unlock()
	if ok {
		return lease, nil
	}
	if err := jobs.CheckToken("queue", class); err != nil {
		return 0, err
	}
	lease, err := l.Told(ctx, class, lane)
	if !l.conn.Bound && (errors.Is(err, jobs.ErrNotFound) || err == nil && l.layout.Upgrade) {
		if err = l.make(ctx, class, lane); err == nil {
			lease, err = l.Told(ctx, class, lane)
		}
	}
	if err != nil {
		return 0, err
	}
	l.Know(class, lane, lease)
	return lease, nil
}

// Know notes that a lane exists, and its lease, for which the broker is not asked then.
func (l *Lanes) Know(class, lane string, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[subject.QueueStream(class, lane)] = lease
}

// Told asks the broker for the lease of a lane, which is the one that its claimers have.
func (l *Lanes) Told(ctx context.Context, class, lane string) (time.Duration, error) {
	stream := subject.QueueStream(class, lane)
	var info struct {
		Config struct {
			AckWait time.Duration `json:"ack_wait"`
		} `json:"config"`
	}
	err := l.conn.Ask(ctx, "CONSUMER.INFO."+stream+"."+subject.Consumer, nil, &info)
	if wire.NoStream(err) || wire.NoConsumer(err) {
		err = jobs.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("lane %s: %w", stream, err)
	}
	return info.Config.AckWait, nil
}

// make makes a lane as the installation is now: it may have been given
// more replicas, or another lease, since this process has looked.
func (l *Lanes) make(ctx context.Context, class, lane string) error {
	now := New(l.conn, l.names, l.layout)
	for {
		has, err := l.conn.Assets().Installed(ctx, subject.Marker)
		if err != nil {
			return err
		}
		now.layout.Settle(has)
		if err := now.ensure(ctx, class, lane); err != nil {
			return err
		}
		// A migration changes what the installation says of itself first, and looks
		// for lanes afterwards: one of the two sees the other.
		if again, err := l.conn.Assets().Installed(ctx, subject.Marker); err != nil || again == has {
			return err
		}
		now.layout.Upgrade = true
	}
}

func (l *Lanes) ensure(ctx context.Context, class, lane string) error {
	queue, _ := subject.SplitClass(class)
	if err := l.conn.Assets().Ensure(ctx, l.stream(class, lane), l.layout.Upgrade); err != nil {
		return err
	}
	// A lane that is made while its queue is held begins so; and the hold is
	// looked at again, because another process may begin one just now.
	held, err := l.holds.Get(ctx, jobs.HoldQueue, queue)
	if err != nil {
		return err
	}
	consumer := l.consumer(class, lane)
	if held != nil {
		consumer.Consumer.PauseUntil = new(hold.End(*held))
	}
	if err := l.conn.Assets().Ensure(ctx, consumer, l.layout.Upgrade); err != nil || held != nil {
		return err
	}
	if held, err = l.holds.Get(ctx, jobs.HoldQueue, queue); err == nil && held != nil {
		_, err = l.conn.JS.PauseConsumer(ctx, subject.QueueStream(class, lane), subject.Consumer, hold.End(*held))
	}
	return err
}

// consumer is the consumer that all workers of a lane share.
func (l *Lanes) consumer(class, lane string) wire.Asset {
	return wire.ConsumerAsset(subject.QueueStream(class, lane), jetstream.ConsumerConfig{
		// No BackOff: it would replace AckWait, which is the lease. No
		// MaxDeliver: attempts are counted in the record.
		Durable: subject.Consumer, AckWait: l.layout.Lease, MaxDeliver: -1, MaxAckPending: 20_000, MaxWaiting: 20_000,
	})
}

// Assets are what a lane has on the broker: its stream, and the consumer of all its workers.
func (l *Lanes) Assets(class, lane string) []wire.Asset {
	return []wire.Asset{l.stream(class, lane), l.consumer(class, lane)}
}

func (l *Lanes) stream(class, lane string) wire.Asset {
	// Notify on a subject of the whole queue: a waiting claimer may not know the class yet.
	queue, _ := subject.SplitClass(class)
	return wire.StreamAsset(jetstream.StreamConfig{
		Name: subject.QueueStream(class, lane), Subjects: []string{l.names.QueueAll(class, lane)},
		Retention: jetstream.WorkQueuePolicy, Replicas: l.layout.Replicas,
		// Together these make a job unique while it is queued or running,
		// without a window of time.
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1,
		MaxMsgs: 1_000_000, MaxMsgSize: 64 << 10,
		RePublish: &jetstream.RePublish{Source: l.names.QueueAll(class, lane), Destination: l.names.Wake(queue, lane), HeadersOnly: true},
		// The records say which jobs belong here: the leader makes again what a broker
		// loses that dies before its disk has it.
	}).Unsynced()
}

// Pause makes the broker deliver nothing of a queue until a time; one that has
// passed ends that.
func (l *Lanes) Pause(ctx context.Context, queue string, until time.Time) error {
	classes, err := l.classesOf(ctx, queue)
	if err != nil {
		return err
	}
	for _, lane := range subject.Lanes {
		for _, class := range classes {
			if _, err := l.Lease(ctx, class, lane); err != nil {
				return err
			}
			if _, err := l.conn.JS.PauseConsumer(ctx, subject.QueueStream(class, lane), subject.Consumer, until); err != nil {
				return fmt.Errorf("pause queue %s: %w", queue, err)
			}
			if until.After(time.Now()) {
				continue
			}
			if err := l.conn.NC.PublishMsg(Again(l.names, class, lane)); err != nil { // waiting claimers have heard of nothing new
				return fmt.Errorf("resume queue %s: %w", queue, err)
			}
		}
	}
	return nil
}
