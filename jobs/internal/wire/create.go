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
	return c.create(ctx, "stream "+cfg.Name, func(ctx context.Context) error {
		_, err := c.JS.CreateStream(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			if !upgrade {
				return nil
			}
			_, err = c.JS.UpdateStream(ctx, cfg)
		}
		return err
	})
}

// Bucket creates a key-value bucket, as Stream does.
func (c *Conn) Bucket(ctx context.Context, cfg jetstream.KeyValueConfig, upgrade bool) error {
	return c.create(ctx, "bucket "+cfg.Bucket, func(ctx context.Context) error {
		_, err := c.JS.CreateKeyValue(ctx, cfg)
		if errors.Is(err, jetstream.ErrBucketExists) {
			if !upgrade {
				return nil
			}
			_, err = c.JS.UpdateKeyValue(ctx, cfg)
		}
		return err
	})
}

// Objects creates an object store, as Stream does.
func (c *Conn) Objects(ctx context.Context, cfg jetstream.ObjectStoreConfig, upgrade bool) error {
	return c.create(ctx, "object store "+cfg.Bucket, func(ctx context.Context) error {
		_, err := c.JS.CreateObjectStore(ctx, cfg)
		if errors.Is(err, jetstream.ErrBucketExists) {
			if !upgrade {
				return nil
			}
			_, err = c.JS.UpdateObjectStore(ctx, cfg)
		}
		return err
	})
}

// Consumer creates a durable consumer, as Stream does, and returns the
// configuration that holds.
func (c *Conn) Consumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, upgrade bool) (held jetstream.ConsumerConfig, err error) {
	err = c.create(ctx, "consumer "+cfg.Durable+" of "+stream, func(ctx context.Context) error {
		con, err := c.JS.CreateConsumer(ctx, stream, cfg)
		if errors.Is(err, jetstream.ErrConsumerExists) {
			if upgrade {
				con, err = c.JS.UpdateConsumer(ctx, stream, cfg)
			} else {
				con, err = c.JS.Consumer(ctx, stream, cfg.Durable)
			}
		}
		if err == nil {
			held = con.CachedInfo().Config
		}
		return err
	})
	return held, err
}

// create repeats what may be repeated until it is answered.
func (c *Conn) create(ctx context.Context, what string, do func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*Patience) // a consumer or a stream is several files
		err := do(try)
		cancel()
		if err == nil {
			return nil
		}
		if refused, ok := errors.AsType[jetstream.JetStreamError](err); ok && refused.APIError() != nil {
			api := refused.APIError()
			return fmt.Errorf("create %s: %w", what, (&APIError{api.Code, int(api.ErrorCode), api.Description}).known())
		}
		if err := c.wait(ctx, err); err != nil {
			return fmt.Errorf("create %s: %w", what, err)
		}
	}
}
