// Package artifact keeps patches, logs and bundles in the object store, and the
// results of attempts next to them.
//
// Everything is named by job and epoch, so an attempt that has lost its lease
// writes to a place that no reader uses. An artifact is either complete or
// absent; the package itself computes its size and hash.
//
//	JOB/EPOCH/NAME           what the worker stores: patches, bundles, recordings, parts
//	JOB/EPOCH/agent/NAME     what the agent's programs send; see [Store.PutSent]
//
// No name of the worker's has a slash and every name of the agent's begins with
// the same prefix, so an agent cannot replace anything that the worker stores.
// Results, salvages, capsules and deliveries, on which decisions depend, are not
// artifacts: they have keys of their own, which no name leads to.
package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Config says how the store is laid out. The zero value is an installation on
// one broker.
type Config struct {
	Role      jobs.Role     // of the connection's credential
	Replicas  int           // of each stream; default is the installation's, or 1
	Retention time.Duration // of an artifact; default 30 days
	Results   time.Duration // how long results, and lists of artifacts, are kept; default 30 days
	MaxBytes  int64         // of one artifact; default 1 GiB
	// StoreBytes bounds the whole store; what does not fit is refused.
	// Default is no bound but the server's.
	StoreBytes int64
	// Upgrade changes buckets that exist to this configuration.
	Upgrade bool
	// Bind takes what is on the broker as it is, and makes nothing there.
	Bind bool
}

// A TooLargeError reports an artifact that is larger than the store allows.
type TooLargeError struct {
	Name string
	Max  int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("artifact %s is larger than %d bytes: raise the store's limit, or write less", e.Name, e.Max)
}

// A Store keeps the artifacts and results of all jobs. Its methods may be
// called from any goroutine.
type Store struct {
	conn    *wire.Conn
	objects objectStore
}

// Counting returns a store for one attempt: stored is told how many bytes more each of its
// writes has stored, or less where something was replaced or dropped.
func Counting(s *Store, stored func(bytes int64)) *Store {
	counting := *s
	counting.objects.stored = stored
	return &counting
}

// Open creates what is missing on the broker, or binds to what is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 1<<30)
	conn, _, err := part.Open(ctx, nc, part.Config{
		Role: cfg.Role, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade, Bind: cfg.Bind, Assets: cfg.assets,
	})
	if err != nil {
		return nil, err
	}
	return &Store{conn: conn, objects: objectStore{conn: conn, maxBytes: cfg.MaxBytes, names: newObjectNames(conn)}}, nil
}

// Assets returns the buckets that the store needs on the broker, for callers that
// compare them. If cfg names no replicas, it takes those of the installation.
func Assets(cfg Config, has wire.Installed) []wire.Asset {
	return cfg.assets(subject.Names{}, cmp.Or(cfg.Replicas, has.Replicas))
}

func (cfg Config) assets(_ subject.Names, replicas int) []wire.Asset {
	const month = 30 * 24 * time.Hour
	return []wire.Asset{
		wire.ObjectsAsset(jetstream.ObjectStoreConfig{Bucket: subject.Artifacts, TTL: cmp.Or(cfg.Retention, month), MaxBytes: cfg.StoreBytes, Replicas: replicas}),
		wire.BucketAsset(jetstream.KeyValueConfig{Bucket: subject.Results, TTL: cmp.Or(cfg.Results, month), MaxValueSize: 512 << 10, Replicas: replicas}).Compressed(),
	}
}

var artifactName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`) })

// SentPrefix begins the names of artifacts that an agent's programs have sent.
const SentPrefix = "agent/"

// keys returns the object's name, and the key under which it is listed.
func keys(job string, epoch uint64, name string) (object, listing string, err error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return "", "", err
	}
	if !artifactName().MatchString(strings.TrimPrefix(name, SentPrefix)) {
		return "", "", fmt.Errorf("artifact %q: use up to 128 of A-Z, a-z, 0-9, '.', '_' and '-', not beginning with '.'", name)
	}
	at := strconv.FormatUint(epoch, 10)
	// A dot would divide the key; the name itself is in the value.
	return job + "/" + at + "/" + name, job + "." + at + ".a." + hex.EncodeToString([]byte(name)), nil
}

// Put stores one artifact of the worker's own and returns its size and hash. The
// same name replaces what the attempt has stored before.
func (s *Store) Put(ctx context.Context, job string, epoch uint64, name string, r io.Reader) (jobs.Artifact, error) {
	if strings.Contains(name, "/") {
		return jobs.Artifact{}, fmt.Errorf("artifact %q: a name of the worker's own has no slash", name)
	}
	return s.put(ctx, job, epoch, name, r)
}

// PutSent stores what a program of the agent has sent under a name of its choice.
// It is listed, and read, as [SentPrefix] and that name.
func (s *Store) PutSent(ctx context.Context, job string, epoch uint64, name string, r io.Reader) (jobs.Artifact, error) {
	return s.put(ctx, job, epoch, SentPrefix+name, r)
}

func (s *Store) put(ctx context.Context, job string, epoch uint64, name string, r io.Reader) (jobs.Artifact, error) {
	object, listing, err := keys(job, epoch, name)
	if err != nil {
		return jobs.Artifact{}, err
	}
	a, err := s.objects.write(ctx, object, name, r)
	if err != nil {
		return jobs.Artifact{}, fmt.Errorf("store artifact %s of job %s: %w", name, job, err)
	}
	// Listed last: what is listed is complete.
	if err := s.set(ctx, listing, a); err != nil {
		return jobs.Artifact{}, fmt.Errorf("list artifact %s of job %s: %w", name, job, err)
	}
	return a, nil
}

// Get opens an artifact. Close it.
func (s *Store) Get(ctx context.Context, job string, epoch uint64, name string) (io.ReadCloser, error) {
	object, _, err := keys(job, epoch, name)
	if err != nil {
		return nil, err
	}
	r, err := s.objects.open(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("artifact %s of job %s, epoch %d: %w", name, job, epoch, err)
	}
	return r, nil
}

// Check reads an artifact back, all of it, and returns what it is.
func (s *Store) Check(ctx context.Context, job string, epoch uint64, name string) (jobs.Artifact, error) {
	r, err := s.Get(ctx, job, epoch, name)
	if err != nil {
		return jobs.Artifact{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return jobs.Artifact{}, fmt.Errorf("read artifact %s of job %s back: %w", name, job, err)
	}
	return jobs.Artifact{Name: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// List returns the artifacts of an attempt, by name.
func (s *Store) List(ctx context.Context, job string, epoch uint64) ([]jobs.Artifact, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	var list []jobs.Artifact
	key := job + "." + strconv.FormatUint(epoch, 10) + ".a.*"
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, key)}) {
		if err != nil {
			return nil, fmt.Errorf("artifacts of job %s: %w", job, err)
		}
		var a jobs.Artifact
		if m.Gone() || json.Unmarshal(m.Data, &a) != nil {
			continue
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b jobs.Artifact) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Epochs returns the epochs of a job that have artifacts or a result, oldest
// first.
func (s *Store) Epochs(ctx context.Context, job string) ([]uint64, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	subjects, err := s.conn.Subjects(ctx, subject.KVStream(subject.Results), subject.Key(subject.Results, job+".>"))
	if err != nil {
		return nil, fmt.Errorf("attempts of job %s: %w", job, err)
	}
	var epochs []uint64
	for key := range subjects {
		var epoch uint64
		if _, err := fmt.Sscanf(key, subject.Key(subject.Results, job+".%d."), &epoch); err == nil && !slices.Contains(epochs, epoch) {
			epochs = append(epochs, epoch)
		}
	}
	slices.Sort(epochs)
	return epochs, nil
}

// PutResult stores the result of the attempt with that epoch.
func (s *Store) PutResult(ctx context.Context, epoch uint64, res jobs.Result) error {
	if err := jobs.CheckToken("job", res.Job); err != nil {
		return err
	}
	if err := s.set(ctx, res.Job+"."+strconv.FormatUint(epoch, 10)+".result", res); err != nil {
		return fmt.Errorf("store result of job %s: %w", res.Job, err)
	}
	return nil
}

// Result returns the result of a job as its record judges it: the one that
// its last attempt stored, else what the record itself says.
func (s *Store) Result(ctx context.Context, rec jobs.Record) (jobs.Result, error) {
	key := rec.ID + "." + strconv.FormatUint(rec.Epoch, 10) + ".result"
	m, err := s.conn.Last(ctx, subject.KVStream(subject.Results), subject.Key(subject.Results, key))
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return rec.Result(), nil
	}
	if err != nil {
		return jobs.Result{}, fmt.Errorf("result of job %s: %w", rec.ID, err)
	}
	var res jobs.Result
	if err := json.Unmarshal(m.Data, &res); err != nil {
		return jobs.Result{}, fmt.Errorf("result of job %s: %w", rec.ID, err)
	}
	return rec.Judged(res), nil
}

// LastResult returns the last result that an attempt of a job has stored, and that
// attempt's epoch.
func (s *Store) LastResult(ctx context.Context, job string) (jobs.Result, uint64, error) {
	epochs, err := s.Epochs(ctx, job)
	if err != nil {
		return jobs.Result{}, 0, err
	}
	for _, epoch := range slices.Backward(epochs) {
		key := subject.Key(subject.Results, job+"."+strconv.FormatUint(epoch, 10)+".result")
		m, err := s.conn.Last(ctx, subject.KVStream(subject.Results), key)
		var res jobs.Result
		switch {
		case errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone():
			continue
		case err == nil:
			err = json.Unmarshal(m.Data, &res)
		}
		if err != nil {
			return res, 0, fmt.Errorf("result of job %s: %w", job, err)
		}
		return res, epoch, nil
	}
	return jobs.Result{}, 0, fmt.Errorf("result of job %s: %w", job, jobs.ErrNotFound)
}

// set writes a value over any that is there: only one attempt has the key.
func (s *Store) set(ctx context.Context, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(subject.Key(subject.Results, key))
	msg.Data = data
	if err := s.conn.Publish(ctx, msg); err != nil {
		return err
	}
	s.objects.count(int64(len(data)))
	return nil
}
