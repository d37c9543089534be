package backup

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A File is a backup that is whole: everything in it has been read, and
// compared with its sum.
type File struct {
	Manifest
	zip *zip.ReadCloser
}

// A BrokenError says that a file is no backup, or not a whole one.
type BrokenError struct {
	Path string
	Err  error
}

func (e *BrokenError) Error() string { return e.Path + " is not a whole backup: " + e.Err.Error() }
func (e *BrokenError) Unwrap() error { return e.Err }

// Open opens a backup and checks all of it. Close it.
func Open(path string) (*File, error) {
	z, err := zip.OpenReader(path)
	if errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, &BrokenError{path, err}
	}
	if err != nil {
		return nil, err
	}
	f := &File{zip: z}
	err = f.check()
	if other, ok := errors.AsType[*jobs.StoreVersionError](err); ok {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, other), z.Close())
	}
	if err != nil {
		return nil, errors.Join(&BrokenError{path, err}, z.Close())
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.zip.Close() }

// maxBackupManifest bounds what is read of the list of streams, which has some
// hundred bytes for each: the file may not be a backup at all.
const maxBackupManifest = 1 << 20

func (f *File) check() error {
	m, err := f.zip.Open(manifestName)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := json.NewDecoder(io.LimitReader(m, maxBackupManifest)).Decode(&f.Manifest); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	if f.Format < 1 || f.Format > Format {
		return fmt.Errorf("its format is %d, and this release knows up to %d: restore it with release %s or newer", f.Format, Format, f.Release)
	}
	for _, s := range f.Streams {
		if !kept(s.Name) {
			return fmt.Errorf("stream %q is not one of a pool", s.Name)
		}
		if err := s.checkStore(); err != nil {
			return err
		}
		if err := f.checkStream(s); err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	return nil
}

// checkStore refuses the records of a pool whose store has another version than the one
// of this release.
func (s Stream) checkStore() error {
	if s.Name != subject.Marker {
		return nil
	}
	var has wire.Installed
	return has.Parse(s.Config)
}

func (f *File) checkStream(s Stream) error {
	r, err := f.zip.Open(fileOf(s.Name))
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return err
	}
	if got := hexOf(sum); got != s.SHA256 {
		return fmt.Errorf("its sum is %s, not %s", got, s.SHA256)
	}
	return nil
}

// above is how far the numbers of records and events go on above those of
// before. The broker may look at each number when it starts, so it is not more.
const above = 1 << 20

// last is the sequence that a stream goes on from.
func (s Stream) last() uint64 {
	if s.Name == records || s.Name == subject.Events {
		return s.Last + above
	}
	return s.Last
}

// Restore creates all streams again on a broker that has none of them, and
// returns when each server that keeps one has all of it. The replicas are those
// of the backup unless a number is given. The records come last, so an
// interrupted restore cannot be taken for the pool that was backed up.
func (f *File) Restore(ctx context.Context, nc *nats.Conn, replicas int, progress func(Stream)) error {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return err
	}
	list := slices.Clone(f.Streams)
	slices.SortStableFunc(list, func(a, b Stream) int { return rank(a) - rank(b) })
	for _, s := range list {
		if err := f.restore(ctx, conn, s, replicas); err != nil {
			return fmt.Errorf("restore stream %s: %w", s.Name, err)
		}
		if progress != nil {
			progress(s)
		}
	}
	// At last, when all servers have had the time to copy most of them.
	for _, s := range list {
		if err := awaitCopies(ctx, conn, s); err != nil {
			return fmt.Errorf("restore stream %s: %w", s.Name, err)
		}
	}
	return nil
}

func rank(s Stream) int {
	if s.Name == records {
		return 1
	}
	return 0
}

// restore sends one stream to the broker in the form of the broker's own
// snapshots, so that sequences, times and headers are what they were.
func (f *File) restore(ctx context.Context, conn *wire.Conn, s Stream, replicas int) error {
	config, err := replicated(s.Config, replicas)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"config": config, "state": map[string]any{}})
	if err != nil {
		return err
	}
	var begun struct {
		Deliver string `json:"deliver_subject"`
	}
	if err := conn.Ask(ctx, "STREAM.RESTORE."+s.Name, body, &begun); err != nil {
		return err
	}
	from, err := f.zip.Open(fileOf(s.Name))
	if err != nil {
		return err
	}
	defer from.Close()
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(snapshot(w, from, s))
	}()
	last, err := send(ctx, conn.NC, begun.Deliver, r)
	r.CloseWithError(err)
	<-done
	if err == nil && last != s.last() {
		err = fmt.Errorf("the broker has brought it back up to %d, not %d", last, s.last())
	}
	return err
}

func replicated(config json.RawMessage, replicas int) (map[string]any, error) {
	cfg := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber() // durations in nanoseconds have more digits than a float
	if err := dec.Decode(&cfg); err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	if replicas > 0 {
		cfg["num_replicas"] = replicas
	}
	return cfg, nil
}

// snapshot writes a stream as the broker would have.
func snapshot(to io.Writer, from io.Reader, s Stream) error {
	compress := s2.NewWriter(to, s2.WriterConcurrency(1))
	w, r := archive.NewWriter(compress), archive.NewReader(s2.NewReader(from))
	last := s.last()
	state := map[string]uint64{"messages": s.Messages, "bytes": s.Bytes, "first_seq": s.First, "last_seq": last}
	if s.Messages == 0 {
		state["first_seq"] = last + 1
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&archive.Header{Name: "state.json", PayloadSize: int64(len(text))}); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	for {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if h.Sequence == 0 { // the end
			return compress.Close()
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("message %d: %w", h.Sequence, err)
		}
	}
}

// chunk is how much is sent to the broker at once, and sendWithin how long that
// may take; the last answer comes when everything is on the disk. Within
// subscribedWithin each server of a cluster knows the subscriber that takes the chunks.
const (
	chunk            = 128 << 10
	sendWithin       = 2 * time.Minute
	subscribedWithin = 10 * time.Second
)

// send sends a snapshot, and returns the last sequence of what came of it.
func send(ctx context.Context, nc *nats.Conn, to string, r io.Reader) (last uint64, err error) {
	var answer struct {
		Error *wire.APIError `json:"error"`
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	buf := make([]byte, chunk)
	for end := false; !end; {
		n, err := io.ReadFull(r, buf)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			end = true
		} else if err != nil {
			return 0, err
		}
		if n > 0 {
			reply, err := ask(ctx, nc, to, buf[:n])
			if err != nil {
				return 0, err
			}
			if len(reply) > 0 && json.Unmarshal(reply, &answer) == nil && answer.Error != nil {
				return 0, answer.Error
			}
		}
	}
	reply, err := ask(ctx, nc, to, nil) // the end; all is written before the answer
	if err == nil {
		err = json.Unmarshal(reply, &answer)
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	return answer.State.Last, err
}

func ask(ctx context.Context, nc *nats.Conn, to string, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	for begin := time.Now(); ; {
		msg, err := nc.RequestWithContext(ctx, to, data)
		if err == nil {
			return msg.Data, nil
		}
		// The server that leads the stream listens, but in a cluster the server of
		// this connection may hear of that later. What it refused went nowhere, so
		// it can be sent again.
		if !errors.Is(err, nats.ErrNoResponders) || time.Since(begin) > subscribedWithin {
			return nil, fmt.Errorf("send it to the broker: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
