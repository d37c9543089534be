package backup

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// manifestName is written last: a file without it is not whole.
const manifestName = "manifest.json"

func fileOf(stream string) string { return "streams/" + stream }

// A writer writes the streams of a broker to a file, one after the other.
type writer struct {
	cfg  Config
	conn *wire.Conn
	zip  *zip.Writer
	man  Manifest
	all  map[string]state
}

// Write writes a backup of a pool. What it has written is one only when it
// returns without an error.
func Write(ctx context.Context, nc *nats.Conn, to io.Writer, cfg Config) (Manifest, error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return Manifest{}, err
	}
	// What another version means by its streams is not known here.
	if _, err := conn.Assets().Installed(ctx, records); err != nil {
		return Manifest{}, err
	}
	w := &writer{cfg: cfg, conn: conn, zip: zip.NewWriter(to)}
	w.man = Manifest{Format: Format, Release: cfg.Release, Prefix: cfg.Prefix, Jobs: map[jobs.State]int{}}
	if w.all, err = streams(ctx, conn); err != nil {
		return Manifest{}, err
	}
	if err := w.write(ctx); err != nil {
		return Manifest{}, err
	}
	text, err := json.MarshalIndent(w.man, "", "\t")
	if err != nil {
		return Manifest{}, err
	}
	f, err := w.zip.Create(manifestName)
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = w.zip.Close()
	}
	return w.man, err
}

func (w *writer) write(ctx context.Context) error {
	for _, name := range first {
		if _, ok := w.all[name]; !ok {
			continue
		}
		if err := w.stream(ctx, name, w.all[name].Config, func(e *entry) error { return e.scan(ctx, toTheEnd) }); err != nil {
			return err
		}
	}
	lines := map[string]state{}
	if _, ok := w.all[records]; ok {
		err := w.stream(ctx, records, w.all[records].Config, func(e *entry) (err error) {
			lines, err = w.records(ctx, e)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if !kept(name) || name == records || slices.Contains(first, name) {
			continue
		}
		line := lines[name]
		err := w.stream(ctx, name, line.Config, func(e *entry) error { return e.scan(ctx, line.State.Last) })
		if err != nil {
			return err
		}
	}
	return nil
}

// tries is how often a moment is looked for in which no job changes. One is a
// request and a read.
const tries = 200

// records reads the records, and finds out where the other streams ended at a
// moment at which no job changed.
func (w *writer) records(ctx context.Context, e *entry) (map[string]state, error) {
	known := map[string]string{} // what a record says, by its subject
	changed := false
	e.met = func(m wire.Message) {
		if says := words(m); known[m.Subject] != says {
			known[m.Subject], changed = says, true
		}
	}
	if err := e.scan(ctx, toTheEnd); err != nil {
		return nil, err
	}
	for range tries {
		lines, err := streams(ctx, w.conn)
		if err != nil {
			return nil, err
		}
		changed = false
		if err := e.scan(ctx, toTheEnd); err != nil {
			return nil, err
		}
		if changed {
			continue
		}
		w.man.Taken = lines[records].Now
		for _, says := range known {
			if state, _, ok := strings.Cut(says, " "); ok {
				w.man.Jobs[jobs.State(state)]++
			}
		}
		return lines, nil
	}
	return nil, ErrBusy
}

// words returns all that a record says, except that its worker is alive.
func words(m wire.Message) string {
	var rec jobs.Record
	if m.Gone() || json.Unmarshal(m.Data, &rec) != nil {
		return ""
	}
	rec.Beat = 0
	if rec.State == jobs.Executing {
		rec.Epoch = 0 // the claim itself cannot know it
	}
	text, _ := json.Marshal(rec) // as it was read
	return string(rec.State) + " " + string(text)
}

// An entry is a stream that is being written.
type entry struct {
	Stream
	conn *wire.Conn
	tw   *archive.Writer
	next uint64
	met  func(wire.Message) // may be nil
}

// stream writes one stream; read reads it.
func (w *writer) stream(ctx context.Context, name string, config json.RawMessage, read func(*entry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := w.zip.CreateHeader(&zip.FileHeader{Name: fileOf(name), Method: zip.Store})
	if err != nil {
		return err
	}
	sum := sha256.New()
	compress := s2.NewWriter(io.MultiWriter(f, sum), s2.WriterConcurrency(1))
	e := &entry{Stream: Stream{Name: name, Config: config}, conn: w.conn, tw: archive.NewWriter(compress), next: 1}
	if err = read(e); err == nil {
		// The end has a mark, so that one that is cut off is seen to be.
		err = e.tw.WriteHeader(&archive.Header{})
	}
	if err == nil {
		err = compress.Close()
	}
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	e.SHA256 = hexOf(sum)
	w.man.Streams = append(w.man.Streams, e.Stream)
	if w.cfg.Progress != nil {
		w.cfg.Progress(e.Stream)
	}
	return nil
}

func hexOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// toTheEnd is a sequence that no message has.
const toTheEnd = math.MaxUint64

// scan writes the messages that follow, up to a sequence. A message that changes meanwhile is met again at its new place.
func (e *entry) scan(ctx context.Context, upTo uint64) error {
	for m, err := range e.conn.Scan(ctx, wire.Range{Stream: e.Name, Subject: ">", From: e.next}) {
		if err != nil {
			return err
		}
		if m.Seq > upTo {
			break
		}
		if err := e.put(m); err != nil {
			return err
		}
	}
	if upTo != toTheEnd {
		e.Last = max(e.Last, upTo)
	}
	return nil
}

func (e *entry) put(m wire.Message) error {
	header := storedHeaders(m)
	err := e.tw.WriteHeader(&archive.Header{
		Name: m.Subject, Sequence: m.Seq, Timestamp: m.Time.UnixNano(),
		HeaderSize: int64(len(header)), PayloadSize: int64(len(m.Data)),
	})
	if err == nil {
		_, err = e.tw.Write(header)
	}
	if err == nil {
		_, err = e.tw.Write(m.Data)
	}
	if err != nil {
		return err
	}
	if e.Messages++; e.First == 0 {
		e.First = m.Seq
	}
	e.Bytes += uint64(len(m.Subject) + len(header) + len(m.Data))
	e.Last, e.next = m.Seq, m.Seq+1
	if e.met != nil {
		e.met(m)
	}
	return nil
}
