package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/modelapi"
)

// A Credential is one of several keys of a model API.
type Credential struct {
	Name string // for people, without anything of the key; empty: a digest
	Key  Key
	// Place tells keys apart that are the same, and used at several endpoints.
	Place string
	// Endpoint is where calls with the key go; nil: where those of the gate do. TLS is that of its
	// connections; nil: that of the gate.
	Endpoint *endpoint.Endpoint
	TLS      *tls.Config
	// Weight is the key's share of the sessions, in proportion to those of the others; 0 is 1.
	Weight float64
	// Queues are those whose jobs use the key; "*" is all. A key without any is for the
	// queues that no key names.
	Queues []string
}

// A credential is a key in use.
type credential struct {
	Credential
	governor *governor.Governor // nil: nothing governs the calls
	client   *http.Transport
}

// anyQueue stands for all queues.
const anyQueue = "*"

// credentials are the keys of the settings.
func credentials(cfg Config, api modelapi.API) ([]*credential, error) {
	given := cfg.Keys
	switch {
	case len(given) == 0 && cfg.Key == "":
		return nil, errors.New("gate: no key for the model API; set one in the worker's settings")
	case len(given) == 0:
		given = []Credential{{Key: cfg.Key}}
	case len(given) > 1 && !cfg.Govern:
		return nil, errors.New("gate: several keys need a governor, which chooses one for each call")
	}
	var all []*credential
	var governed []governor.Key
	for _, c := range given {
		if c.Key == "" || c.Endpoint == nil && !plainKey(c.Key) {
			return nil, errors.New("gate: " + c.title() + " is empty, or has spaces, line ends or characters that no key has; look at how it is set")
		}
		id := ratelimit.Name(api.Name, string(c.Key)+c.Place)
		if slices.ContainsFunc(governed, func(other governor.Key) bool { return other.ID == id }) {
			return nil, fmt.Errorf("gate: %s is the same as another one", c.title())
		}
		if err := c.defaults(cfg, api); err != nil {
			return nil, err
		}
		all, governed = append(all, &credential{Credential: c, client: transport(cfg, c.TLS)}), append(governed, governor.Key{ID: id, Name: c.Name, Weight: c.Weight})
	}
	if cfg.Govern {
		for i, g := range governor.New(governed...) {
			all[i].governor = g
		}
	}
	return all, nil
}

// plainKey reports whether a key has only characters that keys have.
func plainKey(k Key) bool {
	return k != "" && !strings.ContainsFunc(string(k), func(r rune) bool { return r <= ' ' || r > '~' })
}

// defaults fills in what the credential has of the gate.
func (c *Credential) defaults(cfg Config, api modelapi.API) (err error) {
	if c.TLS == nil {
		c.TLS = cfg.TLS
	}
	if c.Endpoint != nil {
		return nil
	}
	ec := endpoint.Config{API: api.Name, URL: cfg.Upstream, Secret: string(c.Key)}
	if cfg.Bearer {
		ec.Header = "Authorization"
	}
	c.Endpoint, err = endpoint.New(Native(ec))
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	return nil
}

// Native fills in what an endpoint that speaks an API has of its provider: base URL and header of the
// key.
func Native(cfg endpoint.Config) endpoint.Config {
	api := modelapi.All[cfg.API]
	cfg.URL, cfg.Header = orDefault(cfg.URL, api.Upstream), orDefault(cfg.Header, api.Header)
	return cfg
}

func (c Credential) title() string {
	if c.Name == "" {
		return "the key"
	}
	return "key " + c.Name
}

// of returns the keys that the jobs of a queue use.
func (g *Gate) of(queue string) []*credential {
	var own, common []*credential
	named := false
	for _, c := range g.keys {
		switch {
		case slices.Contains(c.Queues, queue):
			own, named = append(own, c), true
		case slices.Contains(c.Queues, anyQueue):
			own = append(own, c)
		case len(c.Queues) == 0:
			common = append(common, c)
		}
	}
	if named {
		return own
	}
	return append(own, common...)
}

// Serves reports whether there is a key for the jobs of a queue.
func (g *Gate) Serves(queue string) bool { return g != nil && len(g.of(queue)) > 0 }

// KeyNames returns the names of the keys that the jobs of a queue use; a key without one is left
// out.
func (g *Gate) KeyNames(queue string) []string {
	if g == nil {
		return nil
	}
	var names []string
	for _, c := range g.of(queue) {
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	return names
}

// governors returns those of keys.
func governors(keys []*credential) governor.Set {
	var set governor.Set
	for _, c := range keys {
		if c.governor != nil {
			set = append(set, c.governor)
		}
	}
	return set
}

// Governors returns what keeps the calls of all sessions of a queue within the limits of the
// provider, for each key; none: nothing does.
func (g *Gate) Governors(queue string) governor.Set { return governors(g.of(queue)) }

// AllGovernors returns those of every key.
func (g *Gate) AllGovernors() governor.Set { return governors(g.keys) }

const (
	// maxDenied bounds what a session remembers of keys that may not use a model.
	maxDenied = 64
	// maxMoves bounds how often it tells that it goes on with another key.
	maxMoves = 20
)

// A denial is a key that may not do what a session asks of a model.
type denial struct {
	key   *credential
	model string
}

// A choice is which keys a session uses. The zero value has used none.
type choice struct {
	mu     sync.Mutex
	denied map[denial]bool // guarded by mu
	last   *credential     // guarded by mu
	moves  int             // to another key; guarded by mu
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
func (c *choice) may(all []*credential, model string) []*credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(k *credential) bool { return c.denied[denial{k, model}] })
}

// move notes with which key the session goes on, and reports whether that is another one.
func (c *choice) move(to *credential) (from *credential, moved bool) {
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
func (c *choice) current() *credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// stays notes with which key the session goes on.
func (s *Session) stays(k *credential) {
	if from, moved := s.choice.move(k); moved && s.Moved != nil {
		s.Moved(from.governor.Name(), k.governor.Name())
	}
}

// usable returns the keys that the call may be made with: all, if there is none that the session
// was not denied.
func (c *call) usable() []*credential {
	all := c.g.of(c.s.limits.Queue)
	if may := c.s.choice.may(all, c.asks.Model); len(may) > 0 {
		return may
	}
	return all
}

// others reports whether there is another key that the provider does not refuse.
func (c *call) others() bool {
	return slices.ContainsFunc(c.s.choice.may(c.g.of(c.s.limits.Queue), c.asks.Model), func(other *credential) bool {
		return other != c.key && !other.governor.Standing().Refused
	})
}

// errNoKey means that no key is for the queue of the session.
var errNoKey = errors.New("no key of the model API is for this queue")

// enter chooses a key, and waits until the call may be made with it.
func (c *call) enter(ctx context.Context, arrived time.Time) error {
	keys := c.usable()
	last := c.s.choice.current()
	switch {
	case len(keys) == 0:
		return errNoKey
	case keys[0].governor == nil || !c.route.Asks:
		c.key = keys[0]
		for _, k := range keys {
			if k == last || c.key.governor != nil && c.key.governor.Standing().Refused {
				c.key = k
			}
		}
		return nil
	}
	before := time.Now()
	defer func() { c.result.Waited += time.Since(before) }()
	asks := governor.Call{Model: c.asks.Model, Arrived: arrived, Patience: c.patience()}
	if last != nil {
		asks.Stay = last.governor
	}
	for {
		pass, err := governors(keys).Acquire(ctx, asks)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(keys, func(k *credential) bool { return k.governor == pass.Of() })
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
