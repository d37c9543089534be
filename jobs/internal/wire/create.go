package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream creates a stream. One that exists is taken as it is, unless upgrade
// is set: a client with other settings must not change a running pool.
func (c *Conn) Stream(ctx context.Context, cfg jetstream.StreamConfig, upgrade bool) error {
	_, err := c.JS.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if !upgrade {
			return nil
		}
		_, err = c.JS.UpdateStream(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("create stream %s: %w", cfg.Name, err)
	}
	return nil
}

// Bucket creates a key-value bucket, as Stream does.
func (c *Conn) Bucket(ctx context.Context, cfg jetstream.KeyValueConfig, upgrade bool) error {
	_, err := c.JS.CreateKeyValue(ctx, cfg)
	if errors.Is(err, jetstream.ErrBucketExists) {
		if !upgrade {
			return nil
		}
		_, err = c.JS.UpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("create bucket %s: %w", cfg.Bucket, err)
	}
	return nil
}

// Consumer creates a durable consumer, as Stream does, and returns the
// configuration that holds.
func (c *Conn) Consumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, upgrade bool) (jetstream.ConsumerConfig, error) {
	con, err := c.JS.CreateConsumer(ctx, stream, cfg)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		if upgrade {
			con, err = c.JS.UpdateConsumer(ctx, stream, cfg)
		} else {
			con, err = c.JS.Consumer(ctx, stream, cfg.Durable)
		}
	}
	if err != nil {
		return jetstream.ConsumerConfig{}, fmt.Errorf("create consumer %s of %s: %w", cfg.Durable, stream, err)
	}
	return con.CachedInfo().Config, nil
}
