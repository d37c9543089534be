// Package wire reads and writes the broker's streams by subject and sequence,
// with errors that say what is known about a write.
//
// A write that is not answered may have been stored. Every write therefore
// carries a mark of its own; when the answer is missing, the last message of
// the subject is read back and the mark tells whose it is. What is read for a
// decision is read from the stream's leader.
package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/pause"
)

// Patience is how long one request may go unanswered before it is doubted.
const Patience = 2 * time.Second

// again lies between two attempts while the broker is away.
const again = 150 * time.Millisecond

// markHeader names the writer of a message.
const markHeader = "Penstock-Write"

// ErrConflict says that the subject has moved on since it was read.
var ErrConflict = errors.New("another client has written since")

// A Conn is a connection to the broker.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream
	// Bound: the client's role takes what is on the broker as it is, and makes
	// no stream, bucket or consumer.
	Bound bool

	api     string // begins the subjects of the broker's own requests
	refused *refusals
	batches chan struct{} // has a value for each batch that is being read

	commits committers
}

// New returns a Conn over a connection that its owner opens and closes. The
// role is the one of the connection's credential; empty where it has none.
func New(nc *nats.Conn, role jobs.Role) (*Conn, error) {
	c := &Conn{
		NC: nc, Bound: !role.All(), api: "$JS.API.",
		refused: &refusals{role: role, waiting: map[string]map[int]context.CancelCauseFunc{}},
		batches: make(chan struct{}, batchesAtOnce), commits: committers{of: map[string]*committer{}},
	}
	if c.Bound {
		// What a role may ask of the broker reaches its account under another
		// name: the broker keeps this one for accounts with a store of their own.
		c.api = subject.RoleAPI + "."
	}
	js, err := jetstream.NewWithAPIPrefix(nc, strings.TrimSuffix(c.api, "."))
	if err != nil {
		return nil, err
	}
	c.JS = js
	c.refused.listen(nc)
	return c, nil
}

// API is the subject of one of the broker's own requests.
func (c *Conn) API(verb string) string { return c.api + verb }

// A Message is one stored message.
type Message struct {
	Subject string
	Seq     uint64
	Time    time.Time // the broker's clock
	Header  nats.Header
	Data    []byte
}

// Gone reports whether the message only says that its key has been removed.
func (m Message) Gone() bool {
	return m.Header.Get("KV-Operation") != "" || m.Header.Get("Nats-Marker-Reason") != ""
}

// A Write is one message to be stored if Expect is still the sequence of the
// last one of its subject; zero expects that there is none.
type Write struct {
	Stream  string
	Subject string
	Data    []byte
	Header  nats.Header
	Expect  uint64
	TTL     time.Duration // zero keeps it
}

// Put stores w and returns its sequence, or [ErrConflict]. While the broker
// does not answer it tries until ctx ends; an error then does not say whether
// the message will be stored.
func (c *Conn) Put(ctx context.Context, w Write) (uint64, error) {
	mark := rand.Text()
	msg := w.message(mark)
	if Fenced {
		msg.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(w.Expect, 10))
	}
	commits := c.commits.to(c, w.Stream)
	return c.settle(ctx, w, mark, func(ctx context.Context) (uint64, error) {
		seq, err := commits.put(ctx, msg)
		if errors.Is(err, errAlone) {
			return c.publish(ctx, msg)
		}
		return seq, err
	})
}

// behindMost is how often a server is asked again that does not have what this client has
// seen of a subject: in a cluster it may lag, or may not know yet that another one leads.
const behindMost = 20

// settle repeats send until it is known what became of the write.
func (c *Conn) settle(ctx context.Context, w Write, mark string, send func(context.Context) (uint64, error)) (uint64, error) {
	doubt, behind := false, 0
	for {
		seq, err := send(ctx)
		if err == nil {
			return seq, nil
		}
		conflict := errors.Is(err, ErrConflict)
		if conflict && !doubt || !conflict && !unanswered(err) {
			return 0, err
		}
		doubt = true
		last, lastErr := c.Last(ctx, w.Stream, w.Subject)
		switch {
		case lastErr == nil && last.Header.Get(markHeader) == mark:
			return last.Seq, nil
		case lastErr == nil && last.Seq > w.Expect:
			return 0, ErrConflict
		case lastErr == nil && last.Seq < w.Expect, errors.Is(lastErr, jobs.ErrNotFound) && w.Expect != 0:
			// What was there may have been removed, too.
			if behind++; behind == behindMost {
				return 0, ErrConflict
			}
		}
		if err := c.wait(ctx, err); err != nil {
			return 0, err
		}
	}
}

func (w Write) message(mark string) *nats.Msg {
	msg := nats.NewMsg(w.Subject)
	for name, values := range w.Header {
		msg.Header[name] = values
	}
	msg.Data = w.Data
	msg.Header.Set(markHeader, mark)
	if w.TTL > 0 {
		msg.Header.Set("Nats-TTL", strconv.FormatInt(max(1, int64(w.TTL/time.Second)), 10))
	}
	return msg
}

// Publish stores a message whatever the subject holds. It may store it twice
// when an answer is lost, so it is for subjects that refuse or replace a
// second one.
func (c *Conn) Publish(ctx context.Context, msg *nats.Msg) error {
	for {
		_, err := c.publish(ctx, msg)
		if err == nil || !unanswered(err) {
			return err
		}
		if err := c.wait(ctx, err); err != nil {
			return err
		}
	}
}

// Last reads the last message of a subject, which may have wildcards, from
// the stream's leader. It tries until ctx ends while the broker is away.
func (c *Conn) Last(ctx context.Context, stream, subject string) (Message, error) {
	return c.get(ctx, stream, map[string]any{"last_by_subj": subject})
}

// At reads the message with a sequence, as Last does.
func (c *Conn) At(ctx context.Context, stream string, seq uint64) (Message, error) {
	return c.get(ctx, stream, map[string]any{"seq": seq})
}

func (c *Conn) get(ctx context.Context, stream string, which map[string]any) (Message, error) {
	body, err := json.Marshal(which)
	if err != nil {
		return Message{}, err
	}
	var reply struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := c.Ask(ctx, "STREAM.MSG.GET."+stream, body, &reply); err != nil {
		return Message{}, err
	}
	m := Message{Subject: reply.Message.Subject, Seq: reply.Message.Seq, Time: reply.Message.Time, Data: reply.Message.Data}
	if len(reply.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(reply.Message.Header); err != nil {
			return Message{}, fmt.Errorf("headers of %s in %s: %w", m.Subject, stream, err)
		}
	}
	return m, nil
}

// Ask sends a request to the broker's own API and decodes the reply. It tries
// until ctx ends while there is no answer, or the answer is "not now", as it is
// while the brokers of a cluster choose a leader; so it is for requests that
// may be repeated. A refusal of the broker is an [APIError], or the error
// that it stands for.
func (c *Conn) Ask(ctx context.Context, verb string, body []byte, reply any) error {
	return c.askWithin(ctx, Patience, verb, body, reply)
}

func (c *Conn) askWithin(ctx context.Context, patience time.Duration, verb string, body []byte, reply any) error {
	for {
		err := c.askOnce(ctx, patience, &nats.Msg{Subject: c.API(verb), Data: body}, reply)
		if err == nil || !unanswered(err) {
			return err
		}
		if err := c.wait(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Conn) askOnce(ctx context.Context, patience time.Duration, msg *nats.Msg, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if patience > Patience {
		ctx = whileConnected(ctx, c.NC)
	}
	answer, err := c.Request(ctx, msg)
	if err != nil {
		return err
	}
	var refused struct {
		Error *APIError `json:"error"`
	}
	err = json.Unmarshal(answer.Data, &refused)
	if err == nil && refused.Error != nil {
		return refused.Error.known()
	}
	if err := errors.Join(err, json.Unmarshal(answer.Data, reply)); err != nil {
		return &replyError{msg.Subject, err}
	}
	return nil
}

// Purge removes every message of a subject.
func (c *Conn) Purge(ctx context.Context, stream, subject string) error {
	return c.PurgeBefore(ctx, stream, subject, 0)
}

// PurgeBefore removes the messages of a subject whose sequence is lower; of zero, all.
func (c *Conn) PurgeBefore(ctx context.Context, stream, subject string, seq uint64) error {
	_, err := Range{Stream: stream, Subject: subject}.removeBefore(ctx, c, seq)
	return err
}

// Now is the time of the broker that a stream is written through.
func (c *Conn) Now(ctx context.Context, stream string) (time.Time, error) {
	var info struct {
		Now time.Time `json:"ts"`
	}
	err := c.Ask(ctx, "STREAM.INFO."+stream, nil, &info)
	if err == nil && info.Now.IsZero() {
		err = errors.New("the server did not tell its time")
	}
	return info.Now, err
}

// whileConnected returns a context that ends, too, soon after the connection was lost and
// made again: what was asked before that is not answered.
func whileConnected(ctx context.Context, nc *nats.Conn) context.Context {
	before := nc.Stats().Reconnects
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		for pause.For(ctx, again) {
			if nc.Stats().Reconnects != before {
				end(nats.ErrDisconnected)
			}
		}
	}()
	return ctx
}

// publish stores a message in one round trip, bounded by Patience.
func (c *Conn) publish(ctx context.Context, msg *nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	reply, err := c.Request(ctx, msg)
	if err != nil {
		return 0, err
	}
	return ackOf(reply.Data)
}

func ackOf(data []byte) (uint64, error) {
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("acknowledgement of the server: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error.known()
	}
	return ack.Seq, nil
}

// Request is one round trip. What the broker does not let this client ask is
// [jobs.ErrForbidden].
func (c *Conn) Request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, done := c.refused.watch(ctx, msg.Subject)
	defer done()
	reply, err := c.NC.RequestMsgWithContext(ctx, msg)
	return reply, refusal(ctx, err)
}

// wait lets some time pass before the next attempt. Why is the error of the
// last one.
func (c *Conn) wait(ctx context.Context, why error) error {
	if c.NC.IsClosed() {
		return c.Closed()
	}
	if !pause.For(ctx, again) {
		return fmt.Errorf("%w: %w (last: %s)", jobs.ErrUnavailable, ctx.Err(), why.Error())
	}
	return nil
}

// Closed says why the connection is closed.
func (c *Conn) Closed() error {
	if err := c.NC.LastError(); errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return fmt.Errorf("%w: the server accepts this credential no more", jobs.ErrForbidden)
	}
	return fmt.Errorf("%w: the connection is closed", jobs.ErrUnavailable)
}
