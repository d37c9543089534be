package wire

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

// lastAtOnce is how many subjects one request of [Range.LastOf] names: the broker refuses
// more than 1,024.
const lastAtOnce = 256

// errReplaced says that a message was replaced while the broker was sending it.
var errReplaced = errors.New("a message was replaced while it was read")

// LastOf returns the last message of each of the subjects that has one, of the whole stream
// and in no order. In a cluster any server that has the stream answers; complete says that
// those which did had everything that was stored when they were asked. A subject may have
// wildcards, but must match one subject only.
func (r Range) LastOf(ctx context.Context, c *Conn, subjects []string) (all []Message, complete bool, err error) {
	stored, err := r.last(ctx, c)
	if err != nil {
		return nil, false, err
	}
	complete = true
	for len(subjects) > 0 {
		n := min(len(subjects), lastAtOnce)
		body, err := json.Marshal(map[string]any{"multi_last": subjects[:n]})
		if err != nil {
			return nil, false, err
		}
		part, err := direct{c: c, stream: r.Stream, many: true}.patiently(ctx, body, n)
		if err != nil {
			return nil, false, err
		}
		complete = complete && part.upTo >= stored
		all, subjects = append(all, part.messages...), subjects[n:]
	}
	return all, complete, nil
}

// last is the sequence of the last message of the stream, as its leader knows.
func (r Range) last(ctx context.Context, c *Conn) (uint64, error) {
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	err := c.Ask(ctx, "STREAM.INFO."+r.Stream, nil, &info)
	return info.State.Last, err
}

// direct reads messages of a stream from any server of a cluster that has it.
type direct struct {
	c      *Conn
	stream string
	many   bool // subjects are asked for, whose messages were found before they are read
	plain  bool // messages are asked for without their headers
}

// An answer is all messages that the broker has sent for a request.
type answer struct {
	messages []Message
	upTo     uint64 // the sequence up to which the server that has answered knew the stream; it may not say that
	last     uint64 // the sequence of the last message; it may not say that
	over     bool   // the server has no more of what was asked for; it may not say that
}

// patiently is get, repeated while there is no answer.
func (d direct) patiently(ctx context.Context, body []byte, most int) (answer, error) {
	for {
		got, err := d.get(ctx, body, most)
		if err == nil || errors.Is(err, jobs.ErrForbidden) {
			return got, err
		}
		if err := d.c.wait(ctx, err); err != nil {
			return answer{}, err
		}
	}
}

// get returns all messages that the broker sends for a request. An error says that the
// answer is not complete.
func (d direct) get(ctx context.Context, body []byte, most int) (answer, error) {
	messages := make(chan *nats.Msg, most+1) // with the end
	sub, err := d.c.NC.ChanSubscribe(d.c.NC.NewInbox(), messages)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	// A slow link may take longer for all of a large answer than for one that is lost.
	idle := time.NewTimer(Patience)
	defer idle.Stop()
	verb := d.c.API("DIRECT.GET." + d.stream)
	ctx, done := d.c.refused.watch(ctx, verb)
	defer done()
	if err := d.c.NC.PublishRequest(verb, sub.Subject, body); err != nil {
		return answer{}, err
	}
	for got := (answer{}); ; {
		var msg *nats.Msg
		select {
		case msg = <-messages:
			idle.Reset(Patience)
		case <-ctx.Done():
			return answer{}, refusal(ctx, ctx.Err())
		case <-idle.C:
			return answer{}, context.DeadlineExceeded
		}
		if msg == nil {
			return answer{}, nats.ErrConnectionClosed
		}
		if over, err := d.take(msg, &got); over || err != nil {
			return got, err
		}
	}
}

// take adds what a message of an answer says, and reports whether it was the last one.
func (d direct) take(msg *nats.Msg, to *answer) (over bool, err error) {
	switch status := msg.Header.Get("Status"); {
	case status == "" && d.plain && len(msg.Header) == 0:
		to.messages = append(to.messages, Message{Data: msg.Data})
	case status == "":
		m, err := stored(msg)
		if err != nil {
			return true, err
		}
		to.messages, to.last = append(to.messages, m), m.Seq
	case status == "404" && d.many && !strings.HasPrefix(msg.Header.Get("Description"), "No Results"):
		return true, errReplaced
	case status == "503":
		return true, nats.ErrNoResponders
	case status == "204", status == "404":
		to.upTo, _ = strconv.ParseUint(msg.Header.Get("Nats-UpTo-Sequence"), 10, 64) // else unsaid
		if last, err := strconv.ParseUint(msg.Header.Get("Nats-Last-Sequence"), 10, 64); err == nil && last > 0 {
			to.last = last
		}
		to.over = status == "204" && msg.Header.Get("Nats-Num-Pending") == "0"
		return true, nil
	default:
		return true, errors.New("read " + d.stream + ": status " + status + " " + msg.Header.Get("Description"))
	}
	return false, nil
}

// Since is [Conn.Scan] of the range for what was stored since a time, by the broker's clock.
func (r Range) Since(ctx context.Context, c *Conn, since time.Time) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		body, err := json.Marshal(map[string]any{"start_time": since.UTC(), "next_by_subj": r.Subject, "batch": 1})
		if err != nil {
			yield(Message{}, err)
			return
		}
		first, err := direct{c: c, stream: r.Stream}.patiently(ctx, body, 1)
		if err != nil || len(first.messages) == 0 {
			if err != nil {
				yield(Message{}, err)
			}
			return
		}
		r.From = first.messages[0].Seq
		c.Scan(ctx, r)(yield)
	}
}

// Behind returns the sequence of the last message of the stream if the range is not empty,
// else zero: as far as a reader has to come that wants all that is stored now. It asks the
// stream's leader.
func (r Range) Behind(ctx context.Context, c *Conn) (uint64, error) {
	next, err := reader{c: c, Range: r}.rest(ctx)
	if err != nil || len(next) == 0 {
		return 0, err
	}
	return r.last(ctx, c)
}
