package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs/internal/wire"
)

const (
	// copiedWithin is how long the servers of a cluster have to copy a stream that
	// one of them was sent.
	copiedWithin = 10 * time.Minute
	// countAgain is the pause before the next server is asked.
	countAgain = 50 * time.Millisecond
	// counterEnds is when the broker removes a consumer whose client has died.
	counterEnds = time.Minute
)

// awaitCopies waits until each server that keeps a restored stream has all its
// messages. Until then the stream is lost with the one server that was sent it.
//
// The broker's own word "current" does not say so: it is about the log of
// changes, in which a restored stream is only a reference. A server is current
// before it has begun to fetch the messages, and when its first request is lost it
// waits 5 s for the next one (seen with nats-server 2.15.2; a stream whose first
// server is killed meanwhile has no leader any more). A consumer, in contrast,
// counts the messages that its own server has. The broker chooses that server by
// chance, so consumers are made until one on each server has counted them all.
func awaitCopies(ctx context.Context, conn *wire.Conn, s Stream) error {
	late := fmt.Errorf("not every server has copied it after %v", copiedWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, copiedWithin, late)
	defer cancel()
	have := map[string]bool{}
	for {
		want, err := atLeader(ctx, conn, s)
		if err == nil && (want.messages == 0 || want.replicas <= 1) {
			return nil
		}
		if err == nil {
			var c copyOf
			if c, err = countMessages(ctx, conn, s.Name, want); err == nil && c.messages >= want.messages {
				have[c.server] = true
			}
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w: of %d servers only these have it: [%s]", context.Cause(ctx), want.replicas, strings.Join(slices.Sorted(maps.Keys(have)), " "))
		case err != nil:
			return fmt.Errorf("look for its copies: %w", err)
		case len(have) >= want.replicas:
			return nil
		}
		time.Sleep(countAgain)
	}
}

// A wanted is what each server should have of a stream.
type wanted struct {
	messages uint64
	replicas int
	// counters is how many servers a consumer must be on: all of them where the
	// stream is for its consumers, else one.
	counters int
}

// atLeader is what the leader of a stream has now, since messages that are too old
// go meanwhile. A leader that has not got as far as the backup has lost the stream.
func atLeader(ctx context.Context, conn *wire.Conn, s Stream) (wanted, error) {
	var info struct {
		Config struct {
			Replicas  int                       `json:"num_replicas"`
			Retention jetstream.RetentionPolicy `json:"retention"`
		} `json:"config"`
		State struct {
			Messages uint64 `json:"messages"`
			Last     uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := conn.Ask(ctx, "STREAM.INFO."+s.Name, nil, &info); err != nil {
		return wanted{}, err
	}
	if info.State.Last < s.last() {
		return wanted{}, fmt.Errorf("the server that had all of it is away, and the leader has it only up to %d of %d", info.State.Last, s.last())
	}
	w := wanted{messages: info.State.Messages, replicas: info.Config.Replicas, counters: 1}
	if info.Config.Retention != jetstream.LimitsPolicy {
		w.counters = w.replicas
	}
	return w, nil
}

// A copyOf is what one server has of a stream.
type copyOf struct {
	server   string
	messages uint64
}

// countMessages lets one server that keeps the stream count its messages: the one
// that leads a new consumer.
func countMessages(ctx context.Context, conn *wire.Conn, stream string, w wanted) (c copyOf, err error) {
	name := "copies-" + rand.Text()
	body, err := json.Marshal(map[string]any{"stream_name": stream, "config": jetstream.ConsumerConfig{
		Name: name, Replicas: w.counters, MemoryStorage: true, InactiveThreshold: counterEnds,
		AckPolicy: jetstream.AckExplicitPolicy, // all that a work queue allows
	}})
	if err != nil {
		return c, err
	}
	var made jetstream.ConsumerInfo
	if err := conn.Ask(ctx, "CONSUMER.CREATE."+stream+"."+name, body, &made); err != nil {
		return c, err
	}
	if made.Cluster != nil {
		c.server = made.Cluster.Leader
	}
	c.messages = made.NumPending
	return c, removeConsumer(ctx, conn, stream, name)
}

// removeConsumer takes one that is gone for removed: an earlier request may have removed
// it, and lost its answer.
func removeConsumer(ctx context.Context, conn *wire.Conn, stream, name string) error {
	err := conn.Ask(ctx, "CONSUMER.DELETE."+stream+"."+name, nil, &struct{}{})
	if wire.NoConsumer(err) {
		return nil
	}
	return err
}
