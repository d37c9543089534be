package token

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Most is how many tokens a pool has at most.
const Most = 1000

// markerFor is how long the store remembers that a token was removed. It is much
// longer than a [Verifier] goes without reading everything.
const markerFor = 24 * time.Hour

var bucket = subject.KVStream(subject.Tokens)

// Config says where the tokens are. The zero value is an installation on one broker.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	// Role is the one of the connection's credential. The bucket is the operator's; all
	// other roles are refused.
	Role     jobs.Role
	Replicas int // of the bucket; default is the installation's, or 1
	// Upgrade changes a bucket that exists to this configuration.
	Upgrade bool
}

// A Store keeps tokens. Its methods may be called from any goroutine.
type Store struct {
	conn  *wire.Conn
	names subject.Names
}

// Open creates the bucket, or binds to the one that is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	conn, names, err := part.Open(ctx, nc, part.Config{
		Prefix: cfg.Prefix, Role: cfg.Role, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade, Assets: assets,
	})
	if err != nil {
		return nil, err
	}
	return &Store{conn, names}, nil
}

// Assets returns the bucket, for callers that compare it. If cfg names no replicas, it
// takes those of the installation.
func Assets(cfg Config, has wire.Installed) ([]wire.Asset, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	return assets(names, cmp.Or(cfg.Replicas, has.Replicas)), nil
}

func assets(names subject.Names, replicas int) []wire.Asset {
	return []wire.Asset{wire.BucketAsset(jetstream.KeyValueConfig{
		Bucket: subject.Tokens, MaxValueSize: 4 << 10, Replicas: replicas,
		// Under a subject that no role imports. Uses are not repeated: they are many.
		RePublish: &jetstream.RePublish{Source: subject.Token(">"), Destination: names.TokensAll(), HeadersOnly: true},
	}).Expiring()}
}

// A record is what the bucket has of a token.
type record struct {
	Name    string     `json:"name"`
	Role    jobs.Role  `json:"role"`
	Hash    string     `json:"hash"`
	Created time.Time  `json:"created"`
	By      string     `json:"by"`
	Expires *time.Time `json:"expires,omitempty"`
	removed bool
}

// expired reports whether the token is accepted no more because of its age.
func (r record) expired(now time.Time) bool { return r.Expires != nil && !now.Before(*r.Expires) }

func (r record) token() operation.Token {
	return operation.Token{Name: r.Name, Role: r.Role, Fingerprint: fingerprint(r.Hash), Created: r.Created, By: r.By, Expires: r.Expires}
}

// decode reads a record. One that was removed says so. Whatever does not name one of
// the roles that a token may have is none: an empty role may do everything.
func decode(m wire.Message) (r record, ok bool) {
	err := json.Unmarshal(m.Data, &r)
	r.removed = m.Gone()
	return r, err == nil && m.Subject == subject.Token(r.Name) && slices.Contains(jobs.TokenRoles, r.Role)
}

// A use is when a token was last accepted. The fingerprint tells the token from one
// that had its name before.
type use struct {
	Fingerprint string    `json:"fingerprint"`
	At          time.Time `json:"at"`
}

// Add keeps a token. To add the same token again is to add it once, so that a request
// may be repeated whose answer got lost. Another one of that name is a [jobs.ErrExists].
func (s *Store) Add(ctx context.Context, want operation.TokenRequest, by string) (operation.Token, error) {
	now := time.Now().UTC()
	rec := record{Name: want.Name, Role: want.Role, Hash: want.Hash, Created: now, By: by}
	if want.Lifetime > 0 {
		rec.Expires = new(now.Add(time.Duration(want.Lifetime)))
	}
	if err := s.room(ctx, rec); err != nil {
		return operation.Token{}, err
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return operation.Token{}, err
	}
	for w := (wire.Write{Stream: bucket, Subject: subject.Token(rec.Name), Data: data}); ; {
		_, err := s.conn.Put(ctx, w)
		if err == nil {
			return rec.token(), nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return operation.Token{}, fmt.Errorf("store token %s: %w", rec.Name, err)
		}
		last, err := s.conn.Last(ctx, bucket, w.Subject)
		switch there, _ := decode(last); {
		case errors.Is(err, jobs.ErrNotFound):
			w.Expect = 0
		case err != nil:
			return operation.Token{}, fmt.Errorf("store token %s: %w", rec.Name, err)
		case last.Gone():
			w.Expect = last.Seq
		case there.Hash == rec.Hash && there.Role == rec.Role:
			return there.token(), nil
		default:
			return operation.Token{}, fmt.Errorf("token %s %w: remove it, or take another name", rec.Name, jobs.ErrExists)
		}
	}
}

// room refuses a token beyond the most that a pool has, and one that has another name
// already. Two that are added at once may both be let in.
func (s *Store) room(ctx context.Context, rec record) error {
	all, _, err := s.read(ctx)
	if err != nil {
		return err
	}
	for name, there := range all {
		if there.Hash == rec.Hash && name != rec.Name {
			return invalid("hash", "is that of token "+name+": make a new token for another name")
		}
	}
	if _, has := all[rec.Name]; !has && len(all) >= Most {
		return invalid("name", fmt.Sprintf("there are %d tokens, and no more are allowed: remove one", len(all)))
	}
	return nil
}

func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "token", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// read returns the tokens and their uses, by name.
func (s *Store) read(ctx context.Context) (map[string]record, map[string]use, error) {
	all, uses := map[string]record{}, map[string]use{}
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: bucket, Subject: subject.Key(subject.Tokens, ">")}) {
		if err != nil {
			return nil, nil, fmt.Errorf("read the tokens: %w", err)
		}
		if name, is := strings.CutPrefix(m.Subject, subject.TokenUse("")); is {
			var u use
			if json.Unmarshal(m.Data, &u) == nil {
				uses[name] = u
			}
			continue
		}
		// One that changes during the scan is met again.
		rec, ok := decode(m)
		if delete(all, strings.TrimPrefix(m.Subject, subject.Token(""))); ok && !rec.removed {
			all[rec.Name] = rec
		}
	}
	return all, uses, nil
}

// List returns the tokens by name.
func (s *Store) List(ctx context.Context) ([]operation.Token, error) {
	all, uses, err := s.read(ctx)
	list := make([]operation.Token, 0, len(all))
	for _, rec := range all {
		t := rec.token()
		if u := uses[rec.Name]; u.Fingerprint == t.Fingerprint && !u.At.IsZero() {
			t.LastUsed = &u.At
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b operation.Token) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}

// Remove takes a token back. That is stored as a message of its own, which verifiers
// hear of at once. A store without room for it takes the token back all the same, and
// verifiers notice when they read everything again, half a minute later.
func (s *Store) Remove(ctx context.Context, name string) error {
	if jobs.CheckToken("name", name) != nil {
		return fmt.Errorf("token %q: %w", name, jobs.ErrNotFound)
	}
	for {
		last, err := s.conn.Last(ctx, bucket, subject.Token(name))
		if err == nil && last.Gone() {
			err = jobs.ErrNotFound
		}
		if err == nil {
			err = part.Remove(ctx, s.conn, wire.Write{Stream: bucket, Subject: last.Subject, Data: last.Data, Expect: last.Seq, TTL: markerFor})
		}
		switch {
		case err == nil:
			return s.conn.Purge(ctx, bucket, subject.TokenUse(name))
		case !errors.Is(err, wire.ErrConflict):
			return fmt.Errorf("remove token %s: %w", name, err)
		}
	}
}

// used stores when a token was accepted, unless that is stored already of a time
// shortly before.
func (s *Store) used(ctx context.Context, name string, u use) error {
	var before use
	last, err := s.conn.Last(ctx, bucket, subject.TokenUse(name))
	if err == nil {
		err = json.Unmarshal(last.Data, &before)
	}
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("read the last use of token %s: %w", name, err)
	}
	if before.Fingerprint == u.Fingerprint && u.At.Sub(before.At) < usesEvery {
		return nil
	}
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	_, err = s.conn.Put(ctx, wire.Write{Stream: bucket, Subject: subject.TokenUse(name), Data: data, Expect: last.Seq})
	if errors.Is(err, wire.ErrConflict) {
		return nil // another dispatcher has done so
	}
	return err
}
