// Package keyring keeps the keys of one model API: whose jobs use them, where calls with them go, and
// what governs these. All of them can be replaced while calls are under way.
//
//	settings ─▶ Prepare: nothing wrong with them? ─▶ use ─▶ Now: the keys of this moment ─▶ a call chooses one
//	                                                  └ Changed: calls that wait for a key of before choose anew
//
// A call has the key that it was made with until it ends. A key that is there before and after keeps
// what is known of it: its governor, and its connections if nothing else of it has changed.
package keyring

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
	"github.com/penstock-run/penstock/worker/internal/governor"
)

// A Secret is a credential. Formatting and marshalling hide it.
type Secret string

// Format implements [fmt.Formatter].
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(key)") }

// MarshalText implements [encoding.TextMarshaler].
func (Secret) MarshalText() ([]byte, error) { return []byte("(key)"), nil }

// plain reports whether a secret has only characters that keys have.
func (s Secret) plain() bool {
	return !strings.ContainsFunc(string(s), func(r rune) bool { return r <= ' ' || r > '~' })
}

// A Credential is one of several keys of a model API.
type Credential struct {
	Name string // for people, without anything of the key; empty: a digest
	Key  Secret
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

func (c Credential) title() string {
	if c.Name == "" {
		return "the key"
	}
	return "key " + c.Name
}

// same reports whether nothing of a credential has changed. Certificates are not compared.
func (c Credential) same(other Credential) bool {
	return c.Name == other.Name && c.Key == other.Key && c.Place == other.Place && c.Weight == other.Weight && c.TLS == other.TLS &&
		slices.Equal(c.Queues, other.Queues) && c.Endpoint.Same(other.Endpoint)
}

// A Key is a credential in use.
type Key struct {
	Credential
	ID       string             // on the broker; see [ratelimit.Name]
	Governor *governor.Governor // nil: nothing governs the calls
	Client   *http.Transport
}

// Config is what the keys of an API have in common.
type Config struct {
	API string
	// Endpoint is that of keys without one of their own.
	Endpoint func(Secret) (*endpoint.Endpoint, error)
	// Transport makes the connections of a key; TLS is for keys without one of their own.
	Transport func(*tls.Config) *http.Transport
	TLS       *tls.Config
	Govern    bool // without it there is one key at the most
}

// A Ring is the keys of one API. Its methods may be called from any goroutine.
type Ring struct {
	cfg Config
	now atomic.Pointer[Keys]
	mu  sync.Mutex // makes one change after the other
}

// New returns a ring without keys.
func New(cfg Config) *Ring {
	r := &Ring{cfg: cfg}
	r.now.Store(&Keys{changed: make(chan struct{})})
	return r
}

// Now returns the keys of this moment.
func (r *Ring) Now() *Keys { return r.now.Load() }

// A Change says how many keys came and went; one with another secret did both.
type Change struct{ Added, Removed int }

// Prepare checks keys. Use has all calls that begin from then on use them, and no others.
func (r *Ring) Prepare(given []Credential) (use func() Change, err error) {
	if len(given) > 1 && !r.cfg.Govern {
		return nil, errors.New("several keys need a governor, which chooses one for each call")
	}
	var next []*Key
	for _, c := range given {
		if c.Key == "" || c.Endpoint == nil && !c.Key.plain() {
			return nil, errors.New(c.title() + " is empty, or has spaces, line ends or characters that no key has; look at how it is set")
		}
		k := &Key{Credential: c, ID: ratelimit.Name(r.cfg.API, string(c.Key)+c.Place)}
		if has(next, k.ID) {
			return nil, fmt.Errorf("%s is the same as another one", c.title())
		}
		if k.TLS == nil {
			k.TLS = r.cfg.TLS
		}
		if k.Endpoint == nil {
			if k.Endpoint, err = r.cfg.Endpoint(c.Key); err != nil {
				return nil, err
			}
		}
		next = append(next, k)
	}
	return func() Change { return r.use(next) }, nil
}

// has reports whether a key is among others.
func has(keys []*Key, id string) bool {
	return slices.ContainsFunc(keys, func(k *Key) bool { return k.ID == id })
}

func (r *Ring) use(next []*Key) (change Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.now.Load()
	kept := slices.DeleteFunc(slices.Clone(before.All()), func(k *Key) bool { return !has(next, k.ID) })
	change.Added, change.Removed = len(next)-len(kept), len(before.All())-len(kept)
	now := &Keys{changed: make(chan struct{})}
	for _, k := range next {
		if at := slices.IndexFunc(kept, func(old *Key) bool { return old.ID == k.ID && old.same(k.Credential) }); at >= 0 {
			k = kept[at]
		} else {
			k.Client = r.cfg.Transport(k.TLS)
		}
		now.all = append(now.all, k)
	}
	if r.cfg.Govern {
		r.govern(before, now)
	}
	r.now.Store(now)
	close(before.changed)
	for _, k := range before.all {
		if !slices.Contains(now.all, k) {
			k.Client.CloseIdleConnections() // those in use end with their calls
		}
	}
	return change
}

// govern gives keys that are new a governor, and the others the one that they had. A key in use
// has its own already: calls read it.
func (r *Ring) govern(before, now *Keys) {
	var keys []governor.Key
	for _, k := range now.all {
		keys = append(keys, governor.Key{ID: k.ID, Name: k.Name, Weight: k.Weight})
	}
	for i, g := range Governors(before.all).Next(keys...) {
		if now.all[i].Governor == nil {
			now.all[i].Governor = g
		}
	}
}

// Close closes idle connections.
func (r *Ring) Close() {
	for _, k := range r.Now().All() {
		k.Client.CloseIdleConnections()
	}
}

// Keys are those of one moment. They do not change.
type Keys struct {
	all     []*Key
	changed chan struct{} // closed once there are others
}

// All returns every key.
func (k *Keys) All() []*Key { return k.all }

// Changed returns a channel that is closed once there are others.
func (k *Keys) Changed() <-chan struct{} { return k.changed }

// Current reports whether there are no others.
func (k *Keys) Current() bool {
	select {
	case <-k.changed:
		return false
	default:
		return true
	}
}

// anyQueue stands for all queues.
const anyQueue = "*"

// Of returns the keys that the jobs of a queue use.
func (k *Keys) Of(queue string) []*Key {
	var own, common []*Key
	named := false
	for _, c := range k.all {
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

// Governors returns those of keys.
func Governors(keys []*Key) governor.Set {
	var set governor.Set
	for _, k := range keys {
		if k.Governor != nil {
			set = append(set, k.Governor)
		}
	}
	return set
}
