package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/keyring"
	"github.com/penstock-run/penstock/worker/internal/modelapi"
)

// A Key is a credential. Formatting and marshalling hide it.
type Key = keyring.Secret

// A Credential is one of several keys of a model API.
type Credential = keyring.Credential

// Prepare checks keys that are to replace those of the gate, also where it has been serving for long. Use
// does so: each request that is sent to the provider from then on has one of them, and those that
// were sent before end with the key that they have. Use returns how many keys came and went.
func (g *Gate) Prepare(keys []Credential) (use func() keyring.Change, err error) {
	if use, err = g.ring.Prepare(keys); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	return use, nil
}

// endpoint is that of the gate itself.
func (g *Gate) endpoint(key Key) (*endpoint.Endpoint, error) {
	cfg := endpoint.Config{API: g.api.Name, URL: g.cfg.Upstream, Secret: string(key)}
	if g.cfg.Bearer {
		cfg.Header = "Authorization"
	}
	return endpoint.New(Native(cfg))
}

// Native fills in what an endpoint that speaks an API has of its provider: base URL and header of the
// key.
func Native(cfg endpoint.Config) endpoint.Config {
	api := modelapi.All[cfg.API]
	cfg.URL, cfg.Header = orDefault(cfg.URL, api.Upstream), orDefault(cfg.Header, api.Header)
	return cfg
}

// Empty reports whether there are no keys.
func (g *Gate) Empty() bool { return len(g.ring.Now().All()) == 0 }

// Serves reports whether there is a key for the jobs of a queue.
func (g *Gate) Serves(queue string) bool { return g != nil && len(g.ring.Now().Of(queue)) > 0 }

// KeyNames returns the names of the keys that the jobs of a queue use; a key without one is left
// out.
func (g *Gate) KeyNames(queue string) []string {
	if g == nil {
		return nil
	}
	var names []string
	for _, k := range g.ring.Now().Of(queue) {
		if k.Name != "" {
			names = append(names, k.Name)
		}
	}
	return names
}

// Governors returns what keeps the calls of all sessions of a queue within the limits of the
// provider, for each key; none: nothing does.
func (g *Gate) Governors(queue string) governor.Set {
	return keyring.Governors(g.ring.Now().Of(queue))
}

// AllGovernors returns those of every key, until changed is closed.
func (g *Gate) AllGovernors() (all governor.Set, changed <-chan struct{}) {
	now := g.ring.Now()
	return keyring.Governors(now.All()), now.Changed()
}

const (
	// maxDenied bounds what a session remembers of keys that may not use a model.
	maxDenied = 64
	// maxMoves bounds how often it tells that it goes on with another key.
	maxMoves = 20
)

// A denial is a key that may not do what a session asks of a model.
type denial struct {
	key   *governor.Governor
	model string
}

// A choice is which keys a session uses, by their governors, which stay when other keys are
// replaced. The zero value has used none.
type choice struct {
	mu     sync.Mutex
	denied map[denial]bool    // guarded by mu
	last   *governor.Governor // guarded by mu
	moves  int                // to another key; guarded by mu
}

// deny remembers a key that may not be used for a model.
func (c *choice) deny(d denial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied == nil {
		c.denied = map[denial]bool{}
	}
	if len(c.denied) < maxDenied {
		c.denied[d] = true
	}
}

// may returns the keys that may be used for a model.
func (c *choice) may(all []*keyring.Key, model string) []*keyring.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(k *keyring.Key) bool { return c.denied[denial{k.Governor, model}] })
}

// move notes with which key the session goes on, and reports whether that is another one.
func (c *choice) move(to *governor.Governor) (from *governor.Governor, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, c.last = c.last, to
	if from == nil || from == to || c.moves >= maxMoves {
		return from, false
	}
	c.moves++
	return from, true
}

// current returns the key that was used last; nil: none was.
func (c *choice) current() *governor.Governor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// stays notes with which key the session goes on. A key that has another secret is still the same for
// people.
func (s *Session) stays(k *governor.Governor) {
	if from, moved := s.choice.move(k); moved && s.Moved != nil && from.Name() != k.Name() {
		s.Moved(from.Name(), k.Name())
	}
}

// usable returns those keys that a call of a model may be made with: all, if there is none that the
// session was not denied.
func (c *choice) usable(all []*keyring.Key, model string) []*keyring.Key {
	if may := c.may(all, model); len(may) > 0 {
		return may
	}
	return all
}

// others reports whether there is another key that the provider does not refuse.
func (c *call) others() bool {
	return slices.ContainsFunc(c.s.choice.may(c.g.ring.Now().Of(c.s.limits.Queue), c.asks.Model), func(other *keyring.Key) bool {
		return other.Governor != c.key.Governor && !other.Governor.Standing().Refused
	})
}

// errNoKey means that no key is for the queue of the session, or none any more.
var errNoKey = errors.New("no key of the model API is for this queue")

// enter chooses a key, and waits until the call may be made with it. If the keys are replaced meanwhile it
// chooses among the new ones: a key that was removed may be one that nobody trusts any more.
func (c *call) enter(ctx context.Context, arrived time.Time) error {
	for {
		now := c.g.ring.Now()
		err := c.choose(ctx, now, arrived)
		if now.Current() || ctx.Err() != nil {
			return err
		}
		c.done()
	}
}

// choose chooses among the keys of one moment.
func (c *call) choose(ctx context.Context, now *keyring.Keys, arrived time.Time) error {
	keys := c.s.choice.usable(now.Of(c.s.limits.Queue), c.asks.Model)
	last := c.s.choice.current()
	switch {
	case len(keys) == 0:
		return errNoKey
	case keys[0].Governor == nil || !c.route.Asks:
		c.key = keys[0]
		for _, k := range keys {
			if k.Governor == last || c.key.Governor != nil && c.key.Governor.Standing().Refused {
				c.key = k
			}
		}
		return nil
	}
	before := time.Now()
	defer func() { c.result.Waited += time.Since(before) }()
	asks := governor.Call{Model: c.asks.Model, Arrived: arrived, Patience: c.patience(), Stay: last, Changed: now.Changed()}
	for {
		pass, err := keyring.Governors(keys).Acquire(ctx, asks)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(keys, func(k *keyring.Key) bool { return k.Governor == pass.Of() })
		c.pass, c.answer, c.key = pass, governor.Answer{}, keys[at]
		err = c.afford(ctx)
		if err == nil {
			return nil
		}
		c.done()
		keys = slices.Delete(slices.Clone(keys), at, at+1)
		if !errors.Is(err, budget.ErrSpent) || len(keys) == 0 {
			c.s.overspent(err)
			return err
		}
	}
}

// afford reserves from the budgets of the key.
func (c *call) afford(ctx context.Context) (err error) {
	releaseAll(c.hold.keyed)
	c.hold.keyed, err = c.s.reserveAll(ctx, c.s.keyed[c.key.Name], c.most)
	return err
}
