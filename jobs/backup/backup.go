// Package backup keeps all state of a pool in one file, and brings it back.
//
// A backup is taken while the pool works, and is the pool at one moment:
//
//	intake, schedules ─▶ records ─▶ where every other stream ends now ─▶ the rest, up to there
//	                        ▲                  │
//	                        └── again, where a record has changed meanwhile
//
// What a record says depends on what was stored before it: the specification,
// the key, the results and events up to there. Those streams are read up to a
// line that is drawn after the records were read; and the records are looked at
// once more after the line was drawn, so that no record of the backup is older
// than the rest of it. So a pool that is restored stands as if everything
// had been killed at that moment: no job is lost, none that had ended runs again,
// and those that ran are given to other workers as after any crash.
//
// A backup leaves out what a pool makes again from its records: the messages of
// the queues, the presence of workers, the broker's own advisories.
//
// The numbers of restored records and events go on above those of before, so
// that no attempt gets the epoch of one that came after the backup.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/why"
)

// Format is the version of the file that is written, and the newest that is read.
const Format = 1

// A Manifest says what a backup holds.
type Manifest struct {
	Format  int       `json:"format"`
	Release string    `json:"release"` // of penstock
	Prefix  string    `json:"prefix"`  // of every subject
	Taken   time.Time `json:"taken"`   // by the broker's clock
	// Jobs counts the records by their state.
	Jobs    map[jobs.State]int `json:"jobs"`
	Streams []Stream           `json:"streams"`
}

// A Stream is one stream of a backup.
type Stream struct {
	Name     string          `json:"name"`
	Config   json.RawMessage `json:"config"` // in the broker's own words
	Messages uint64          `json:"messages"`
	First    uint64          `json:"first"` // sequence of the first message
	Last     uint64          `json:"last"`  // sequence up to which the stream was read
	Bytes    uint64          `json:"bytes"` // of the messages
	SHA256   string          `json:"sha256"`
}

// Config says what a backup is taken of.
type Config struct {
	Release string
	Prefix  string
	// Progress, if not nil, is called after each stream.
	Progress func(Stream)
}

// ErrBusy says that records changed too fast to find a moment of rest.
var ErrBusy = errors.New("jobs change too fast for a backup of one moment: try again, or pause the queues meanwhile")

// first are the streams that are read before the records: what leaves them
// becomes a record.
var first = []string{subject.Intake, subject.Schedules}

var records = subject.KVStream(subject.Jobs)

// kept reports whether a stream is part of a backup.
func kept(name string) bool {
	return ours(name) && !slices.Contains([]string{subject.Advisories, subject.KVStream(subject.Workers), subject.KVStream(subject.Leader)}, name) &&
		!strings.HasPrefix(name, subject.Queues)
}

// ours reports whether a stream is one of a pool's.
func ours(name string) bool {
	return strings.HasPrefix(name, "PS_") || strings.HasPrefix(name, "KV_ps_") || strings.HasPrefix(name, "OBJ_ps_")
}

// state is what the broker says of a stream.
type state struct {
	Config json.RawMessage `json:"config"`
	State  struct {
		Messages uint64 `json:"messages"`
		Last     uint64 `json:"last_seq"`
	} `json:"state"`
	Now time.Time `json:"ts"`
}

// streams returns the pool's streams.
func streams(ctx context.Context, conn *wire.Conn) (map[string]state, error) {
	all := map[string]state{}
	for offset := 0; ; {
		var page struct {
			Total   int     `json:"total"`
			Streams []state `json:"streams"`
		}
		if err := conn.Ask(ctx, "STREAM.LIST", fmt.Appendf(nil, `{"offset":%d}`, offset), &page); err != nil {
			return nil, fmt.Errorf("list the streams: %w", err)
		}
		for _, s := range page.Streams {
			var cfg struct {
				Name string `json:"name"`
			}
			if err := json.Unmarshal(s.Config, &cfg); err != nil {
				return nil, fmt.Errorf("list the streams: %w", err)
			}
			if ours(cfg.Name) {
				all[cfg.Name] = s
			}
		}
		if offset += len(page.Streams); offset >= page.Total || len(page.Streams) == 0 {
			return all, nil
		}
	}
}

// Occupied returns the pool's streams that hold data of a job or settings.
func Occupied(ctx context.Context, nc *nats.Conn) ([]string, error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return nil, err
	}
	all, err := streams(ctx, conn)
	var found []string
	for name, s := range all {
		if kept(name) && s.State.Messages > 0 {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, err
}

// Clear removes all streams of a pool.
func Clear(ctx context.Context, nc *nats.Conn) error {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return err
	}
	all, err := streams(ctx, conn)
	if err != nil {
		return err
	}
	for name := range all {
		if err := conn.Ask(ctx, "STREAM.DELETE."+name, nil, &struct{}{}); err != nil && !wire.NoStream(err) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}

// Running returns the processes at work in a pool: its dispatchers answer
// requests, its workers say every few seconds that they live.
func Running(ctx context.Context, nc *nats.Conn) ([]string, error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return nil, err
	}
	var found []string
	try, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	_, err = nc.RequestWithContext(try, "$SRV.PING.penstock", nil)
	if err == nil {
		found = append(found, "a dispatcher")
	} else if !errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("find running dispatchers and workers: %w", err)
	}
	presence := subject.KVStream(subject.Workers)
	all, err := streams(ctx, conn)
	if err != nil {
		return nil, err
	}
	if _, there := all[presence]; !there {
		return found, nil // no pool has been here: reading would wait for the stream's servers
	}
	for m, err := range conn.Scan(ctx, wire.Range{Stream: presence, Subject: subject.Key(subject.Workers, "*")}) {
		if err != nil {
			return nil, fmt.Errorf("find running dispatchers and workers: %w", err)
		}
		var w why.Worker
		if !m.Gone() && json.Unmarshal(m.Data, &w) == nil {
			found = append(found, "worker "+w.Name)
		}
	}
	slices.Sort(found)
	return found, nil
}
