package token

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/pause"
)

const (
	// readEvery is how often a verifier reads everything again. What it hears in between
	// is enough, but for what a full store has forgotten and a suspended host has missed.
	readEvery = 30 * time.Second
	// trustedFor is how long what was read is good for.
	trustedFor = 30 * time.Second
	// usesEvery is how often the use of a token is stored.
	usesEvery = time.Minute
	// storeEvery is how often a verifier looks for uses that are to be stored.
	storeEvery = time.Second
	// again is the pause after an error.
	again = time.Second
)

// An Identity is who presents a token, and what the holder may do.
type Identity struct {
	Name string
	Role jobs.Role
}

// ErrRefused says that the pool does not accept a token, and does not say why.
var ErrRefused = errors.New("the pool does not accept this token")

// A Reason says why a token was refused: to the log, and never to its presenter.
type Reason string

// The reasons.
const (
	Malformed Reason = "malformed" // not a token, or a mistyped one
	Unknown   Reason = "unknown"
	Expired   Reason = "expired"
	Removed   Reason = "removed"
)

// VerifierConfig says how tokens are verified. The zero value will do.
type VerifierConfig struct {
	Now   func() time.Time // default time.Now
	Hooks Hooks
}

// Hooks let a program watch a [Verifier]. Every field may be nil. Hooks must not block.
type Hooks struct {
	// Refused: a token was presented and not accepted. Its name is empty where it has
	// none.
	Refused func(name string, why Reason)
	// Failed: the bucket could not be read, or a use could not be stored. The verifier
	// tries again.
	Failed func(err error)
}

// A Verifier knows the tokens of a store while Run runs. Its methods may be called
// from any goroutine.
type Verifier struct {
	store *Store
	cfg   VerifierConfig
	known atomic.Pointer[map[string]record] // by hash, also removed ones
	fresh atomic.Pointer[time.Time]         // when the store was last read to its end

	mu   sync.Mutex
	uses map[string]noted // by hash
}

// A noted use is stored once. It is kept until the next one may be stored.
type noted struct {
	use
	name   string
	stored bool
}

// NewVerifier returns a verifier. It accepts nothing before Run has read the store.
func NewVerifier(s *Store, cfg VerifierConfig) *Verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{store: s, cfg: cfg, uses: map[string]noted{}}
}

// Run follows the store until ctx ends, through restarts of the broker.
func (v *Verifier) Run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() { v.storeUses(ctx) })
	for ctx.Err() == nil {
		if err := v.follow(ctx); err != nil && ctx.Err() == nil {
			v.failed(err)
			pause.For(ctx, again)
		}
	}
	return nil
}

// follow reads everything, and then what is new, for as long as that is good for.
func (v *Verifier) follow(ctx context.Context) error {
	began := time.Now()
	known, changed := map[string]record{}, true
	caught := func() bool {
		if changed {
			v.known.Store(new(byHash(known)))
			changed = false
		}
		v.fresh.Store(new(wall(v.cfg.Now())))
		return time.Since(began) < readEvery
	}
	span := wire.Range{Stream: bucket, Subject: subject.Token("*")}
	for m, err := range v.store.conn.Tail(ctx, span, v.store.names.TokensAll(), caught) {
		if err != nil {
			return fmt.Errorf("read the tokens: %w", err)
		}
		changed = true
		if rec, ok := decode(m); ok {
			known[m.Subject] = rec
		} else {
			delete(known, m.Subject)
		}
	}
	return nil
}

func byHash(known map[string]record) map[string]record {
	all := make(map[string]record, len(known))
	for _, rec := range known {
		// One that was removed does not hide the same one under another name.
		if there, has := all[rec.Hash]; !has || there.removed {
			all[rec.Hash] = rec
		}
	}
	return all
}

// wall returns a time without its reading of the clock that stands still while the
// host is suspended.
func wall(t time.Time) time.Time { return t.Round(0) }

// Verify returns whose token was presented. One that is not accepted is an
// [ErrRefused], for whatever reason. Where it is not known whether it is
// accepted, because the store has not been read for a while, that is a
// [jobs.ErrUnavailable].
func (v *Verifier) Verify(presented string) (Identity, error) {
	secret, err := Parse(presented)
	if err != nil {
		return Identity{}, v.refuse("", Malformed)
	}
	now := v.cfg.Now()
	known, fresh := v.known.Load(), v.fresh.Load()
	if known == nil || fresh == nil || wall(now).Sub(*fresh).Abs() > trustedFor {
		return Identity{}, fmt.Errorf("%w: tokens cannot be verified now: the broker has not been read for %v", jobs.ErrUnavailable, trustedFor)
	}
	// The map is asked for a hash. How long that takes may depend on how hashes begin that
	// are stored, which brings nobody closer to a token with such a hash.
	hash := secret.Hash()
	rec, ok := (*known)[hash]
	switch {
	case !ok || subtle.ConstantTimeCompare([]byte(rec.Hash), []byte(hash)) != 1:
		return Identity{}, v.refuse("", Unknown)
	case rec.removed:
		return Identity{}, v.refuse(rec.Name, Removed)
	case rec.expired(now):
		return Identity{}, v.refuse(rec.Name, Expired)
	}
	v.note(rec, now)
	return Identity{rec.Name, rec.Role}, nil
}

func (v *Verifier) refuse(name string, why Reason) error {
	if v.cfg.Hooks.Refused != nil {
		v.cfg.Hooks.Refused(name, why)
	}
	return ErrRefused
}

func (v *Verifier) failed(err error) {
	if v.cfg.Hooks.Failed != nil {
		v.cfg.Hooks.Failed(err)
	}
}

// note leaves a use to be stored, unless one of the last minute is there.
func (v *Verifier) note(rec record, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, has := v.uses[rec.Hash]; !has {
		v.uses[rec.Hash] = noted{use: use{fingerprint(rec.Hash), now.UTC()}, name: rec.Name}
	}
}

// storeUses stores what was noted, until ctx ends.
func (v *Verifier) storeUses(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range v.due() {
			// Nothing depends on it, so one try is enough.
			limited, cancel := context.WithTimeout(ctx, 2*wire.Patience)
			err := v.store.used(limited, n.name, n.use)
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				v.failed(fmt.Errorf("store the last use of token %s: %w", n.name, err))
			}
		}
		pause.For(ctx, storeEvery)
	}
}

// due returns the uses that are to be stored, and forgets those of which the next may be.
func (v *Verifier) due() []noted {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	maps.DeleteFunc(v.uses, func(_ string, n noted) bool { return n.stored && now.Sub(n.At).Abs() >= usesEvery })
	var due []noted
	for hash, n := range v.uses {
		if !n.stored {
			due = append(due, n)
			n.stored = true
			v.uses[hash] = n
		}
	}
	return due
}
