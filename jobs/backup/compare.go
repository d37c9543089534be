package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A DifferentError says that a broker does not hold what a backup does.
type DifferentError struct {
	Stream  string
	Subject string
	Seq     uint64
	How     string
}

func (e *DifferentError) Error() string {
	return fmt.Sprintf("stream %s: message %d on %s %s", e.Stream, e.Seq, e.Subject, e.How)
}

// Compare reads what a broker holds after [File.Restore], message by message, and
// returns a [*DifferentError] where that is not what the file holds. Nothing else may have
// changed the streams meanwhile. A message may be missing only where the broker itself
// removes it: one that is too old, that another one of its subject has replaced, or
// whose time to be sent has come.
func (f *File) Compare(ctx context.Context, nc *nats.Conn) error {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return err
	}
	for _, s := range f.Streams {
		if err := f.compare(ctx, conn, s); err != nil {
			return fmt.Errorf("compare with the backup: %w", err)
		}
	}
	return nil
}

func (f *File) compare(ctx context.Context, conn *wire.Conn, s Stream) error {
	c, err := newComparison(s)
	if err != nil {
		return err
	}
	if c.now, err = conn.Now(ctx, s.Name); err != nil {
		return err
	}
	from, err := f.zip.Open(fileOf(s.Name))
	if err != nil {
		return err
	}
	defer from.Close()
	next, stop := iter.Pull2(conn.Scan(ctx, wire.Range{Stream: s.Name, Subject: ">"}))
	defer stop()
	there, err, more := next()
	r := archive.NewReader(s2.NewReader(from))
	for {
		h, readErr := r.Next()
		if readErr != nil {
			return fmt.Errorf("read the backup: %w", readErr)
		}
		if h.Sequence == 0 { // the end
			if err == nil && more {
				err = c.beyond(there)
			}
			return cmp.Or(err, c.end())
		}
		content, readErr := io.ReadAll(r)
		if readErr != nil {
			return fmt.Errorf("read the backup: message %d: %w", h.Sequence, readErr)
		}
		if err != nil {
			return err
		}
		if more && there.Seq < h.Sequence {
			return &DifferentError{s.Name, there.Subject, there.Seq, "is not in the backup"}
		}
		if !more || there.Seq > h.Sequence {
			c.lost(h, content)
			continue
		}
		if err := c.same(h, content, there); err != nil {
			return err
		}
		there, err, more = next()
	}
}

// A comparison is of one stream.
type comparison struct {
	stream     string
	maxAge     time.Duration
	perSubject int
	schedules  bool      // the broker sends its messages when their time comes
	now        time.Time // of the broker
	// absent are the subjects of messages that are not there, with their last sequence
	// and the number of messages of the subject that came later.
	absent map[string]*absence
}

type absence struct {
	seq   uint64
	later int
}

func newComparison(s Stream) (*comparison, error) {
	var cfg struct {
		MaxAge     time.Duration `json:"max_age"`
		PerSubject int           `json:"max_msgs_per_subject"`
		Schedules  bool          `json:"allow_msg_schedules"`
	}
	if err := json.Unmarshal(s.Config, &cfg); err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	return &comparison{stream: s.Name, maxAge: cfg.MaxAge, perSubject: cfg.PerSubject, schedules: cfg.Schedules, absent: map[string]*absence{}}, nil
}

// same compares a message with the one of the backup, and notes that there is one.
func (c *comparison) same(h *archive.Header, content []byte, there wire.Message) error {
	c.replaces(h)
	header := storedHeaders(there)
	if there.Subject == h.Name && there.Time.UnixNano() == h.Timestamp && int64(len(header)) == h.HeaderSize &&
		bytes.Equal(content[:h.HeaderSize], header) && bytes.Equal(content[h.HeaderSize:], there.Data) {
		return nil
	}
	return &DifferentError{c.stream, h.Name, h.Sequence, "is not what it was"}
}

// lost notes that a message of the backup is not there.
func (c *comparison) lost(h *archive.Header, content []byte) {
	c.replaces(h)
	if at := time.Unix(0, h.Timestamp); c.maxAge > 0 && at.Add(c.maxAge).Before(c.now) || c.over(at, content[:h.HeaderSize]) {
		return
	}
	c.absent[h.Name] = &absence{seq: h.Sequence}
}

func (c *comparison) replaces(h *archive.Header) {
	if gone := c.absent[h.Name]; gone != nil {
		if gone.later++; c.perSubject > 0 && gone.later >= c.perSubject {
			delete(c.absent, h.Name)
		}
	}
}

// over reports whether a message was only to live until now, or to be sent by now.
func (c *comparison) over(stored time.Time, header []byte) bool {
	_, lines, _ := strings.Cut(string(header), "\r\n")
	for line := range strings.SplitSeq(lines, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Nats-Ttl":
			if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && !stored.Add(time.Duration(seconds)*time.Second).After(c.now) {
				return true
			}
		case "Nats-Schedule":
			if due, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(value, "@at ")); err == nil && !due.After(c.now) {
				return true
			}
		}
	}
	return false
}

// beyond returns an error if a message was stored after the restore, by another program than
// the broker: that marks what it removes as too old, and sends messages whose time has come.
func (c *comparison) beyond(m wire.Message) error {
	if c.schedules || m.Gone() {
		return nil
	}
	return &DifferentError{c.stream, m.Subject, m.Seq, "is not in the backup"}
}

func (c *comparison) end() error {
	for name, gone := range c.absent {
		return &DifferentError{c.stream, name, gone.seq, "is missing"}
	}
	return nil
}
