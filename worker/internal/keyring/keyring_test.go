package keyring

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/internal/endpoint"
)

func newRing(govern bool) *Ring {
	return New(Config{
		API: "anthropic", Govern: govern,
		Endpoint: func(key Secret) (*endpoint.Endpoint, error) {
			return endpoint.New(endpoint.Config{API: "anthropic", URL: "https://api.example", Secret: string(key)})
		},
		Transport: func(*tls.Config) *http.Transport { return &http.Transport{} },
	})
}

func credential(name string) Credential { return Credential{Name: name, Key: Secret("sk-" + name)} }

// A key that stays is the same; one that is named, weighed or placed in other queues has what was known of it, and its
// calls go on; one with another secret, or at another place, is new.
func TestWhatStays(t *testing.T) {
	t.Parallel()
	gateway, err := endpoint.New(endpoint.Config{API: "anthropic", URL: "https://gateway.example", Secret: "sk-a", Header: "X-Key"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change              func(*Credential)
		same, known, others bool
	}{
		"nothing":      {func(*Credential) {}, true, true, false},
		"name":         {func(c *Credential) { c.Name = "b" }, false, true, false},
		"weight":       {func(c *Credential) { c.Weight = 3 }, false, true, false},
		"queues":       {func(c *Credential) { c.Queues = []string{"*"} }, false, true, false},
		"certificates": {func(c *Credential) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS13} }, false, true, false},
		"endpoint":     {func(c *Credential) { c.Endpoint = gateway }, false, true, false},
		"secret":       {func(c *Credential) { c.Key = "sk-other" }, false, false, true},
		"place":        {func(c *Credential) { c.Place = "bedrock" }, false, false, true},
	} {
		r, first := newRing(true), credential("a")
		if change := r.set(t, first); change != (Change{Added: 1}) {
			t.Errorf("%s: at first %+v", name, change)
		}
		before := r.Now()
		next := first
		c.change(&next)
		change := r.set(t, credential("new"), next)
		was, is := before.All()[0], r.Now().All()[1]
		if (was == is) != c.same || (was.Governor == is.Governor) != c.known || is.Governor.Name() != next.Name {
			t.Errorf("%s: the key is the same: %v, with the same governor: %v", name, was == is, was.Governor == is.Governor)
		}
		want := Change{Added: 1}
		if c.others {
			want = Change{Added: 2, Removed: 1}
		}
		if change != want || before.Current() || !r.Now().Current() || len(before.All()) != 1 {
			t.Errorf("%s: %+v, and those before are current: %v", name, change, before.Current())
		}
	}
}

func (r *Ring) set(t *testing.T, keys ...Credential) Change {
	t.Helper()
	use, err := r.Prepare(keys)
	if err != nil {
		t.Fatal(err)
	}
	return use()
}

// Wrong keys change nothing, and their secrets are in no error; keys that are right change nothing before they are used.
func TestPrepareChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRing(true)
	r.set(t, credential("a"))
	before := r.Now()
	for what, wrong := range map[string][]Credential{
		"twice": {credential("b"), {Name: "c", Key: "sk-b"}}, "empty": {credential("b"), {Name: "c"}}, "spaces": {{Name: "c", Key: "two words"}},
	} {
		if use, err := r.Prepare(wrong); err == nil || use != nil || strings.Contains(err.Error(), "sk-b") || strings.Contains(err.Error(), "two words") || !strings.Contains(err.Error(), "key c") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Prepare([]Credential{credential("b")}); err != nil {
		t.Error(err)
	}
	if r.Now() != before || !before.Current() {
		t.Error("there are other keys")
	}
	alone := newRing(false)
	if _, err := alone.Prepare([]Credential{credential("a"), credential("b")}); err == nil {
		t.Error("without a governor there may be two keys")
	}
	if alone.set(t, credential("a")); alone.Now().All()[0].Governor != nil {
		t.Error("there is a governor")
	}
	alone.Close()
	if got := fmt.Sprintf("%v %+v", credential("a"), credential("a").Key); strings.Contains(got, "sk-a") {
		t.Errorf("the key shows: %s", got)
	}
}
