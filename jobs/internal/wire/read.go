package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/idset"
)

// A Range is the messages of a stream that match Subject, from the sequence
// From on.
type Range struct {
	Stream  string
	Subject string
	From    uint64
}

// Remove removes the messages of a range, which has no From, and returns how many the broker says
// that were: there were more where an answer was lost.
func (r Range) Remove(ctx context.Context, c *Conn) (int, error) {
	return r.removeBefore(ctx, c, 0)
}

// removeBefore is Remove for the messages whose sequence is lower; of zero, all.
func (r Range) removeBefore(ctx context.Context, c *Conn, seq uint64) (int, error) {
	ask := map[string]any{"filter": r.Subject}
	if seq > 0 {
		ask["seq"] = seq
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return 0, err
	}
	var reply struct {
		Purged int `json:"purged"`
	}
	err = c.Ask(ctx, "STREAM.PURGE."+r.Stream, body, &reply)
	return reply.Purged, err
}

// Bounds of one batch that is asked for. The broker stops at either.
const (
	batchMessages = 512
	batchBytes    = 1 << 20
)

// batchesAtOnce bounds the batches that one Conn reads at the same time. The broker ends a
// connection that takes what it is sent too slowly: hundreds of readers would all wait for
// their batches then, ask for them again, and end the next connection.
const batchesAtOnce = 16

// poll is how often a tail looks by itself, in case a notification is lost.
const poll = 2 * time.Second

// Scan returns what is stored now, in order: all that had been when it was
// called, and perhaps more. Of a stream that does not exist it is an error.
func (c *Conn) Scan(ctx context.Context, r Range) iter.Seq2[Message, error] {
	return reader{c: c, Range: r}.scan(ctx, math.MaxUint64)
}

// A reader reads a range, from its From on.
type reader struct {
	c *Conn
	Range
	plain bool // only the data of messages is wanted
}

// scan is Scan for a caller that wants what is stored up to a sequence: it does not look
// whether there is more behind that. Zero: as far as a server that is asked has come.
func (r reader) scan(ctx context.Context, upTo uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if messages, ok := r.few(ctx, upTo); ok {
			for _, m := range messages {
				if !yield(m, nil) {
					return
				}
				r.From = m.Seq + 1
			}
			if r.From > upTo {
				return
			}
		}
		for {
			got, err := r.patientBatch(ctx, batchMessages)
			batch := got.messages
			if len(batch) == 0 && err == nil && r.From <= upTo {
				batch, err = r.rest(ctx)
			}
			if err != nil {
				yield(Message{}, err)
				return
			}
			for _, m := range batch {
				if !yield(m, nil) {
					return
				}
				r.From = m.Seq + 1
			}
			if len(batch) == 0 || upTo > 0 && r.From > upTo {
				return
			}
		}
	}
}

// rest returns the next message, if there is one, from the stream's leader. In
// a cluster a batch is sent by any server that has the stream, as far as that
// one has come; and a message that replaces another one is at two places, of
// which a server that is ahead shows only the later one and another one that
// lags behind only the first. Only the leader knows that there is no more.
func (r reader) rest(ctx context.Context) ([]Message, error) {
	m, err := r.c.get(ctx, r.Stream, map[string]any{"seq": max(r.From, 1), "next_by_subj": r.Subject})
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, nil
	}
	return []Message{m}, err
}

// First returns the first message of a range, as far as any server of a
// cluster knows: for a caller that wants to begin somewhere near.
func (c *Conn) First(ctx context.Context, r Range) (Message, error) {
	got, err := reader{c: c, Range: r}.patientBatch(ctx, 1)
	if err != nil {
		return Message{}, err
	}
	if len(got.messages) == 0 {
		return Message{}, jobs.ErrNotFound
	}
	return got.messages[0], nil
}

// Tail returns what is stored, then what is stored later, until ctx ends. It
// wakes by messages on the subject notify, which may be lost, and continues
// through reconnects and restarts of the broker. Each time it has caught up
// it calls caught, if that is not nil, and ends when that returns false.
func (c *Conn) Tail(ctx context.Context, r Range, notify string, caught func() bool) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		var announced atomic.Uint64 // the last sequence that a notification has named
		notified, stop, err := notifications(c.NC, &announced, notify)
		if err != nil {
			yield(Message{}, err)
			return
		}
		defer stop()
		tick := time.NewTicker(poll)
		defer tick.Stop()
		for upTo := uint64(math.MaxUint64); ; {
			for m, err := range (reader{c: c, Range: r}).scan(ctx, upTo) {
				if err != nil {
					if ctx.Err() == nil {
						yield(Message{}, err)
					}
					return
				}
				r.From = m.Seq + 1
				if !yield(m, nil) {
					return
				}
			}
			if caught != nil && !caught() {
				return
			}
			for again := false; !again; {
				select {
				case <-ctx.Done():
					return
				case <-notified: // perhaps of what was read with the one before
					upTo = announced.Load()
					again = upTo == 0 || r.From <= upTo
				case <-tick.C: // in case one was lost
					if upTo = announced.Load(); r.From > upTo {
						upTo = 0
					}
					again = true
				}
			}
		}
	}
}

// Notify returns a channel that has a value after something was published to one of
// the subjects: one value, however many messages there were.
func (c *Conn) Notify(subjects ...string) (notified <-chan struct{}, stop func(), err error) {
	return notifications(c.NC, new(atomic.Uint64), subjects...)
}

// notifications is Notify that also keeps the highest sequence of a stored message that
// the broker has announced.
func notifications(nc *nats.Conn, announced *atomic.Uint64, subjects ...string) (notified <-chan struct{}, stop func(), err error) {
	wake := make(chan struct{}, 1)
	var subs []*nats.Subscription
	stop = func() {
		for _, sub := range subs {
			// Fails only when the connection is closed, and the subscription with it.
			_ = sub.Unsubscribe()
		}
	}
	for _, subject := range subjects {
		sub, err := nc.Subscribe(subject, func(msg *nats.Msg) {
			// Not there, it is zero; one that was overtaken by another names less.
			seq, _ := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
			for at := announced.Load(); seq > at && !announced.CompareAndSwap(at, seq); {
				at = announced.Load()
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		subs = append(subs, sub)
	}
	return wake, stop, nil
}

// patientBatch is batch, repeated while there is no answer. A stream that does not
// exist does not answer either, which only the leader can tell; a pool
// that has just begun may be creating it.
func (r reader) patientBatch(ctx context.Context, n int) (answer, error) {
	for began := time.Now(); ; {
		got, err := r.batch(ctx, n)
		if err == nil || errors.Is(err, jobs.ErrForbidden) {
			return got, err
		}
		if errors.Is(err, nats.ErrNoResponders) && time.Since(began) > Patience {
			if _, missing := r.rest(ctx); NoStream(missing) {
				return answer{}, fmt.Errorf("read %s: %w", r.Stream, missing)
			}
		}
		if err := r.c.wait(ctx, err); err != nil {
			return answer{}, err
		}
	}
}

// batch asks for up to n messages. An error says that the answer is not
// complete; what has arrived of it is dropped, since it will come again.
func (r reader) batch(ctx context.Context, n int) (answer, error) {
	ask := map[string]any{"seq": max(r.From, 1), "next_by_subj": r.Subject, "batch": n, "max_bytes": batchBytes}
	if r.plain {
		ask["no_hdr"] = true
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return answer{}, err
	}
	select {
	case r.c.batches <- struct{}{}:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	defer func() { <-r.c.batches }()
	got, err := direct{c: r.c, stream: r.Stream, plain: r.plain}.get(ctx, body, n)
	if err == nil && len(got.messages) > 0 && got.last < r.From {
		err = errors.New("the server sent messages without their sequence")
	}
	return got, err
}

// Peek is Last for a subject without wildcards that never changes, or whose change a
// compare-and-set will notice: it may be answered by any server of a cluster that has the
// stream, also by one that has not heard of the newest message. It costs the broker less than Last.
func (c *Conn) Peek(ctx context.Context, stream, subject string) (Message, error) {
	try, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	msg, err := c.Request(try, nats.NewMsg(c.API("DIRECT.GET."+stream+"."+subject)))
	if err == nil && msg.Header.Get("Status") == "" {
		if m, err := stored(msg); err == nil {
			return m, nil
		}
	}
	return c.Last(ctx, stream, subject)
}

// stored reads a message as a direct get sends it.
func stored(msg *nats.Msg) (Message, error) {
	seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Message{}, errors.New("the server sent a message without its sequence")
	}
	at, err := time.Parse(time.RFC3339Nano, msg.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return Message{}, fmt.Errorf("time of message %d: %w", seq, err)
	}
	return Message{Subject: msg.Header.Get("Nats-Subject"), Seq: seq, Time: at, Header: msg.Header, Data: msg.Data}, nil
}

// subjectsWithin is how long the broker may take for a page of subjects. It sorts all of them
// for each page, which takes seconds with a million, and a second request has it begin again.
const subjectsWithin = 15 * Patience

// Subjects returns the subjects that a stream holds under a filter, with the number of
// messages of each. A stream that does not exist holds none.
func (c *Conn) Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	all := map[string]uint64{}
	err := Range{Stream: stream, Subject: filter}.EachSubject(ctx, c, func(page map[string]uint64) { maps.Copy(all, page) })
	return all, err
}

// IDs returns the ids of jobs that the subjects of a range end with.
func (r Range) IDs(ctx context.Context, c *Conn) (*idset.Set, error) {
	var failed error
	set := idset.Of(func(yield func(string) bool) {
		failed = r.EachSubject(ctx, c, func(page map[string]uint64) {
			for s := range page {
				yield(s[strings.LastIndexByte(s, '.')+1:])
			}
		})
	})
	return set, failed
}

// EachSubject calls do with the subjects of a range, in the pages in which the broker sends them.
func (r Range) EachSubject(ctx context.Context, c *Conn, do func(page map[string]uint64)) error {
	for offset := 0; ; {
		body, err := json.Marshal(map[string]any{"subjects_filter": r.Subject, "offset": offset})
		if err != nil {
			return err
		}
		var reply struct {
			Total int `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		if err = c.askWithin(ctx, subjectsWithin, "STREAM.INFO."+r.Stream, body, &reply); NoStream(err) {
			return nil
		}
		if err != nil {
			return err
		}
		do(reply.State.Subjects)
		if offset += len(reply.State.Subjects); len(reply.State.Subjects) == 0 || offset >= reply.Total {
			return nil
		}
	}
}
