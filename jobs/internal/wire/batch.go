package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// MaxBatch is how many messages PutAll takes. The broker allows a thousand.
const MaxBatch = 500

// ErrNoBatch says that the broker cannot take a batch now, only one message.
var ErrNoBatch = errors.New("the server takes no batch now")

// PutAll stores messages of one subject one after the other, all or none, if
// expect is still the sequence of the subject's last one. It returns the
// sequence of the last of them, or [ErrNoBatch]. With many messages it costs the broker one
// write to the disk.
func (c *Conn) PutAll(ctx context.Context, w Write, all [][]byte) (uint64, error) {
	if len(all) > MaxBatch {
		return 0, fmt.Errorf("batch of %d messages: at most %d are allowed", len(all), MaxBatch)
	}
	if len(all) == 1 {
		w.Data = all[0]
		return c.Put(ctx, w)
	}
	mark := rand.Text()
	return c.settle(ctx, w, mark, func(ctx context.Context) (uint64, error) { return w.sendBatch(ctx, c, mark, all) })
}

// sendBatch sends a batch once.
func (w Write) sendBatch(ctx context.Context, c *Conn, mark string, data [][]byte) (uint64, error) {
	all := make([]*nats.Msg, len(data))
	for i := range data {
		w.Data = data[i]
		all[i] = w.message(mark)
	}
	if Fenced {
		all[0].Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(w.Expect, 10))
	}
	return publishBatch(ctx, c, all)
}

// publishBatch stores messages in their order, all or none, and returns the sequence of the
// last one. Only that is answered; whatever became of the others shows there.
func publishBatch(ctx context.Context, c *Conn, all []*nats.Msg) (uint64, error) {
	id := rand.Text()
	for i, msg := range all {
		msg.Header.Set("Nats-Batch-Id", id)
		msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i == len(all)-1 {
			msg.Header.Set("Nats-Batch-Commit", "1")
			return c.publish(ctx, msg)
		}
		if err := c.NC.PublishMsg(msg); err != nil {
			return 0, err
		}
	}
	return 0, nats.ErrInvalidMsg
}
