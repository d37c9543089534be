package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// storeLimit bounds the storing of a capsule, which delays the attempt's end.
const storeLimit = time.Minute

// How long the files of an agent that settings describe must not have changed before they are
// stored, and how long that is waited for at most. Qwen Code writes its last messages some
// milliseconds after it has said that its turn is over.
const (
	settled     = 300 * time.Millisecond
	settleLimit = 3 * time.Second
)

// Settle waits until the agent, which lives on, has written down what it has said, or does not rest any more.
func (c *Conversation) Settle(ctx context.Context, at Position, rests func() bool) {
	if c.described && c.Kept() && at.Conversation != "" {
		_ = c.talk(at.Conversation).Settle(ctx, settled, settleLimit, rests) // Store tells what is wrong with the files
	}
}

// Store stores a capsule: everything that the next attempt needs to continue from here.
// The work is the change of the workspace, which is already stored. A failure costs the
// attempt nothing: the previous capsule stays.
func (c *Conversation) Store(ctx context.Context, at Position, why jobs.Reason, work func(context.Context) (*jobs.Salvage, error)) (stored bool) {
	if !c.Kept() || at.Conversation == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	made := jobs.Capsule{
		Format: artifact.CapsuleFormat, Job: c.cfg.Record.ID, Epoch: c.cfg.Epoch, Agent: c.cfg.Record.Agent, Worker: c.cfg.Worker,
		Conversation: at.Conversation, Turn: at.Turn, Open: at.Open, Heard: at.Heard, Asks: at.Asks, Why: why,
	}
	err := c.fill(ctx, &made, work)
	if ctx.Err() != nil || errors.Is(err, capsule.ErrNone) || errors.Is(err, jobs.ErrFenced) {
		return false // the attempt ends, or its agent has not begun yet
	}
	if err != nil {
		c.cfg.Log.Warn("no capsule was stored", "err", err)
		if !c.complain {
			c.complain = true
			c.cfg.Tell(event.Make(event.Notice{Text: "the conversation cannot be continued from here, if the worker dies: " + err.Error()}))
		}
		return false
	}
	c.last = made
	if !made.Open && (c.begun == nil || len(made.Heard) > len(c.begun.Heard)) {
		c.cfg.Progressed()
	}
	c.cfg.Tell(event.Make(event.CapsuleStored(made)))
	return true
}

// fill stores the parts of a capsule and then, if the lease is still ours, the capsule
// itself.
func (c *Conversation) fill(ctx context.Context, made *jobs.Capsule, work func(context.Context) (*jobs.Salvage, error)) (err error) {
	var packed bytes.Buffer
	if err := c.talk(made.Conversation).Pack(&packed, cleaner{c.cfg.Secrets}); err != nil {
		return fmt.Errorf("pack the conversation: %w", err)
	}
	if made.Work, err = work(ctx); err != nil {
		return err
	}
	if made.Home, err = c.cfg.Store.PutPart(ctx, made.Job, made.Epoch, bytes.NewReader(packed.Bytes())); err != nil {
		return err
	}
	made.Stored = time.Now().UTC()
	if _, err := c.cfg.Assert(ctx); err != nil && !errors.Is(err, jobs.ErrCancelled) {
		return err
	}
	return c.cfg.Store.PutCapsule(ctx, *made, c.last)
}

// A cleaner removes secrets from what is packed.
type cleaner struct{ *redact.Redactor }

// Line implements [capsule.Cleaner]: what was JSON is still JSON.
func (c cleaner) Line(line []byte) []byte {
	if json.Valid(line) {
		return c.JSON(line)
	}
	return c.Text(line)
}
