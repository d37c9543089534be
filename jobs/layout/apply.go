package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// lockFor is how long a process that changes an installation keeps others
// from doing so, after its last step.
const lockFor = time.Minute

// A BusyError names the process that is changing the installation now.
type BusyError struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("another process is changing this installation: process %d on %s, since %s; if it has died, wait for %v",
		e.PID, e.Host, e.Since.Local().Format("15:04:05"), lockFor)
}

// Apply makes the broker as this release wants it, and tells done of each
// step. It returns what it left as it is because it cannot be changed in
// place. It may be repeated, and two never do it at once.
func Apply(ctx context.Context, nc *nats.Conn, cfg Config, done func(Difference)) (left []Difference, err error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return nil, err
	}
	turn, err := begin(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	defer turn.end(ctx)
	all, err := assets(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	// The first says what the installation is. Once it is changed, lanes are
	// made accordingly; so those that exist are listed after that.
	if left, err = apply(ctx, conn, cfg, all[0], done); err != nil {
		return left, err
	}
	if all, err = assets(ctx, conn, cfg); err != nil {
		return left, err
	}
	for _, a := range all[1:] {
		if err := turn.renew(ctx); err != nil {
			return left, err
		}
		more, err := apply(ctx, conn, cfg, a, done)
		if left = append(left, more...); err != nil {
			return left, err
		}
	}
	return left, nil
}

// apply makes one asset as it is wanted, as far as that can be done.
func apply(ctx context.Context, conn *wire.Conn, cfg Config, a wire.Asset, done func(Difference)) (left []Difference, err error) {
	p, err := lookAt(ctx, conn, a)
	if err != nil {
		return nil, err
	}
	var fields []wire.Field
	var changed []Difference
	for i, d := range p.differences(cfg) {
		switch d.Way {
		case Refuse, Newer:
			left = append(left, d)
		case Change:
			fields = append(fields, p.fields[i])
			changed = append(changed, d)
		case Create:
			changed = append(changed, d)
		}
	}
	switch {
	case !p.exists:
		err = conn.Assets().Ensure(ctx, a, false)
	case len(fields) > 0:
		err = conn.Assets().Change(ctx, a, fields)
	}
	if err != nil {
		return left, err
	}
	for _, d := range changed {
		done(d)
	}
	return left, nil
}

// A turn is the right to change the installation, for as long as it is renewed.
type turn struct {
	conn *wire.Conn
	w    wire.Write
}

// begin takes the turn, or names the process that has it. It makes the bucket that
// the turn is kept in.
func begin(ctx context.Context, conn *wire.Conn, cfg Config) (*turn, error) {
	all, err := assets(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(a wire.Asset) bool { return a.Name == subject.Leader })
	if err := conn.Assets().Ensure(ctx, all[at], false); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(BusyError{host, os.Getpid(), time.Now().UTC()})
	if err != nil {
		return nil, err
	}
	t := &turn{conn, wire.Write{
		Stream: subject.KVStream(subject.Leader), Subject: subject.Key(subject.Leader, "apply"), Data: text, TTL: lockFor,
	}}
	last, err := conn.Last(ctx, t.w.Stream, t.w.Subject)
	switch {
	case err == nil && !last.Gone():
		return nil, busy(last)
	case err != nil && !errors.Is(err, jobs.ErrNotFound):
		return nil, err
	}
	t.w.Expect = last.Seq
	return t, t.renew(ctx)
}

func (t *turn) renew(ctx context.Context) error {
	seq, err := t.conn.Put(ctx, t.w)
	if err == nil {
		t.w.Expect = seq
		return nil
	}
	if errors.Is(err, wire.ErrConflict) {
		if last, lastErr := t.conn.Last(ctx, t.w.Stream, t.w.Subject); lastErr == nil && !last.Gone() {
			return busy(last)
		}
	}
	return fmt.Errorf("keep others from changing the installation: %w", err)
}

// end releases the lock. One that has expired is another process's business.
func (t *turn) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	t.w.Header, t.w.Data = nats.Header{"KV-Operation": {"DEL"}}, nil
	// If it cannot be given back, it expires.
	_, _ = t.conn.Put(ctx, t.w)
}

func busy(m wire.Message) error {
	held := &BusyError{Since: m.Time}
	// An unreadable text is that of another release; that it is there counts.
	_ = json.Unmarshal(m.Data, held)
	return held
}
