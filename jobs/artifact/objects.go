package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// The layout is the one of every NATS object store, so its tools read it. The
// chunks are written here one by one, each behind the one before: a library
// that sends them ahead sends the wrong bytes again when the broker restarts.

const (
	chunkBytes  = 256 << 10
	stream      = "OBJ_" + subject.Artifacts
	cleanWithin = 10 * time.Second
)

// meta describes an object, in the store's own format.
type meta struct {
	Name    string `json:"name"`
	Bucket  string `json:"bucket"`
	NUID    string `json:"nuid"`
	Size    int64  `json:"size"`
	Chunks  int    `json:"chunks"`
	Digest  string `json:"digest"`
	Deleted bool   `json:"deleted,omitempty"`
	Options struct {
		ChunkSize int `json:"max_chunk_size"`
	} `json:"options"`
}

// An objectStore reads and writes the contents of artifacts.
type objectStore struct {
	conn     *wire.Conn
	maxBytes int64 // of one object
	names    *objectNames
	stored   func(bytes int64) // see [Counting]
}

func metaSubject(object string) string {
	return "$O." + subject.Artifacts + ".M." + base64.URLEncoding.EncodeToString([]byte(object))
}

func chunkSubject(nuid string) string { return "$O." + subject.Artifacts + ".C." + nuid }

func digest(sum hash.Hash) string {
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum.Sum(nil))
}

// write stores what r holds and returns its size and hash.
func (o objectStore) write(ctx context.Context, object, name string, r io.Reader) (jobs.Artifact, error) {
	old, err := o.meta(ctx, object)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return jobs.Artifact{}, err
	}
	m := meta{Name: object, Bucket: subject.Artifacts, NUID: jobs.NewID()}
	m.Options.ChunkSize = chunkBytes
	sum := sha256.New()
	err = o.writeChunks(ctx, &m, io.TeeReader(&limited{from: r, name: name, left: o.maxBytes, max: o.maxBytes}, sum))
	if err == nil {
		m.Digest = digest(sum)
		err = o.writeMeta(ctx, m)
	}
	if err != nil {
		o.removeChunks(ctx, m.NUID)
		return jobs.Artifact{}, err
	}
	if old.NUID != "" {
		o.removeChunks(ctx, old.NUID)
	}
	o.count(m.Size - old.Size)
	return jobs.Artifact{Name: name, Bytes: m.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

func (o objectStore) count(bytes int64) {
	if o.stored != nil {
		o.stored(bytes)
	}
}

func (o objectStore) writeChunks(ctx context.Context, m *meta, r io.Reader) error {
	w := wire.Write{Stream: stream, Subject: chunkSubject(m.NUID)}
	chunk := make([]byte, chunkBytes)
	for {
		n, readErr := io.ReadFull(r, chunk)
		if readErr != nil && readErr != io.EOF && readErr != io.ErrUnexpectedEOF {
			return readErr
		}
		if n > 0 {
			var err error
			w.Data = chunk[:n]
			if w.Expect, err = o.conn.Put(ctx, w); err != nil {
				return err
			}
			m.Chunks, m.Size = m.Chunks+1, m.Size+int64(n)
		}
		if readErr != nil {
			return nil
		}
	}
}

func (o objectStore) writeMeta(ctx context.Context, m meta) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(metaSubject(m.Name))
	msg.Data = data // the last one counts
	return o.conn.Publish(ctx, msg)
}

// removeChunks removes content that no description names. A worker may write to
// the store but not purge it: [Store.Sweep] finds what it leaves, and what stays
// because the broker is away.
func (o objectStore) removeChunks(ctx context.Context, nuid string) {
	if o.conn.Bound {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	_ = o.conn.Purge(ctx, stream, chunkSubject(nuid))
}

func (o objectStore) meta(ctx context.Context, object string) (meta, error) {
	msg, err := o.conn.Last(ctx, stream, metaSubject(object))
	if err != nil {
		return meta{}, err
	}
	var m meta
	if err := json.Unmarshal(msg.Data, &m); err != nil {
		return meta{}, fmt.Errorf("description of %s: %w", object, err)
	}
	if m.Deleted {
		return m, jobs.ErrNotFound
	}
	return m, nil
}

// open reads an object chunk by chunk.
func (o objectStore) open(ctx context.Context, object string) (io.ReadCloser, error) {
	m, err := o.meta(ctx, object)
	if err != nil {
		return nil, err
	}
	next, stop := iter.Pull2(o.conn.Scan(ctx, wire.Range{Stream: stream, Subject: chunkSubject(m.NUID)}))
	return &reading{meta: m, next: next, stop: stop, sum: sha256.New()}, nil
}

// reading is an object that is being read.
type reading struct {
	meta meta
	next func() (wire.Message, error, bool)
	stop func()
	sum  hash.Hash
	rest bytes.Reader
	n    int64
}

func (o *reading) Read(p []byte) (int, error) {
	for o.rest.Len() == 0 {
		m, err, ok := o.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			if o.n != o.meta.Size || digest(o.sum) != o.meta.Digest {
				return 0, fmt.Errorf("%s: %w: its parts do not make up what was stored", o.meta.Name, io.ErrUnexpectedEOF)
			}
			return 0, io.EOF
		}
		o.sum.Write(m.Data)
		o.n += int64(len(m.Data))
		o.rest.Reset(m.Data)
	}
	return o.rest.Read(p)
}

func (o *reading) Close() error {
	o.stop()
	return nil
}

// limited refuses to be read beyond its limit.
type limited struct {
	from      io.Reader
	name      string
	left, max int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, &TooLargeError{l.name, l.max}
	}
	return n, err
}

// purge removes all objects of a job, whatever became of them, and returns how many messages that
// were. The description goes after the content, so that a purge that is repeated finds the rest.
func (o objectStore) purge(ctx context.Context, job string) (removed int, err error) {
	descriptions, err := o.names.of(ctx, job)
	if err != nil {
		return 0, err
	}
	for _, at := range descriptions {
		remove := []string{}
		for m, err := range o.conn.Scan(ctx, wire.Range{Stream: stream, Subject: at}) {
			var is meta
			if err == nil {
				err = json.Unmarshal(m.Data, &is)
			}
			if err != nil {
				return removed, fmt.Errorf("description %s: %w", at, err)
			}
			remove = append(remove, chunkSubject(is.NUID))
		}
		for _, at := range append(remove, at) {
			n, err := wire.Range{Stream: stream, Subject: at}.Remove(ctx, o.conn)
			if removed += n; err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}
