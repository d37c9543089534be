package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A clock is a verifier's, which a test puts forward.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// A door is a verifier that runs until the test ends, and what its log was told.
type door struct {
	*token.Verifier
	t *testing.T
	clock

	mu      sync.Mutex
	refused []string
}

func open(t *testing.T, s *token.Store) *door {
	t.Helper()
	d := &door{t: t}
	d.Verifier = token.NewVerifier(s, token.VerifierConfig{Now: d.now, Hooks: token.Hooks{Refused: func(name string, why token.Reason) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.refused = append(d.refused, name+" "+string(why))
	}}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	d.until("the tokens are read", func() bool {
		_, err := d.Verify(token.New().Reveal())
		return errors.Is(err, token.ErrRefused)
	})
	return d
}

func (d *door) until(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(jobstest.Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not within %v: %s", jobstest.Patience, what)
		}
	}
}

// lets reports whether a token is accepted, as the one of that name and role.
func (d *door) lets(secret token.Secret, name string, role jobs.Role) bool {
	d.t.Helper()
	who, err := d.Verify(secret.Reveal())
	if err == nil && who != (token.Identity{Name: name, Role: role}) {
		d.t.Errorf("the token of %s is taken for %+v", name, who)
	}
	if err != nil && !errors.Is(err, token.ErrRefused) {
		d.t.Errorf("%s: %v", name, err)
	}
	return err == nil
}

// told reports whether the log has been told last that a token was refused, and why.
func (d *door) told(want string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.refused) > 0 && d.refused[len(d.refused)-1] == want
}

func added(t *testing.T, s *token.Store, name string, role jobs.Role, lifetime time.Duration) token.Secret {
	t.Helper()
	secret := token.New()
	want := operation.TokenRequest{Name: name, Role: role, Hash: secret.Hash(), Lifetime: jobs.Duration(lifetime)}
	if _, err := s.Add(jobstest.Context(t), want, "test"); err != nil {
		t.Fatal(err)
	}
	return secret
}

func listed(t *testing.T, s *token.Store) []operation.Token {
	t.Helper()
	list, err := s.List(jobstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Two dispatchers accept a token when it is there, and refuse it when it is removed,
// each within a second; a presenter cannot tell why, the log can.
func TestTwoDispatchers(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	one, other := jobstest.Tokens(t, server.Connect()), jobstest.Tokens(t, server.Connect())
	doors := []*door{open(t, one), open(t, other)}
	secret := added(t, one, "ci", jobs.RoleSubmitter, 0)
	for _, d := range doors {
		d.until("the token is accepted", func() bool { return d.lets(secret, "ci", jobs.RoleSubmitter) })
	}
	began := time.Now()
	if err := other.Remove(jobstest.Context(t), "ci"); err != nil {
		t.Fatal(err)
	}
	for _, d := range doors {
		d.until("the token is refused", func() bool { return !d.lets(secret, "ci", jobs.RoleSubmitter) })
		if !d.told("ci removed") {
			t.Errorf("the log was told %v", d.refused)
		}
	}
	t.Logf("refused after %v", time.Since(began))
	removed, unknown := verify(doors[0], secret.Reveal()), verify(doors[0], token.New().Reveal())
	if garbage := verify(doors[0], "x"); removed != unknown || unknown != garbage {
		t.Errorf("a presenter can tell apart: %q, %q, %q", removed, unknown, garbage)
	}
	// The name is free again, for another token.
	again := added(t, one, "ci", jobs.RoleViewer, 0)
	doors[1].until("the new token is accepted", func() bool { return doors[1].lets(again, "ci", jobs.RoleViewer) })
	if doors[1].lets(secret, "ci", "") {
		t.Error("the removed token came back with its name")
	}
}

func verify(d *door, presented string) string {
	_, err := d.Verify(presented)
	return fmt.Sprint(err)
}

// Who is refused cannot be seen from what an empty role may: everything.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := jobstest.Tokens(t, jobstest.Start(t).Connect())
	d := open(t, s)
	const lifetime = 20 * time.Second
	short, long := added(t, s, "short", jobs.RoleOperator, lifetime), added(t, s, "long", jobs.RoleViewer, 24*time.Hour)
	d.until("both are accepted", func() bool {
		return d.lets(short, "short", jobs.RoleOperator) && d.lets(long, "long", jobs.RoleViewer)
	})
	if list := listed(t, s); list[1].Expires == nil || !list[1].Expires.Equal(list[1].Created.Add(lifetime)) {
		t.Errorf("short expires at %v, was created at %v", list[1].Expires, list[1].Created)
	}
	d.forward(lifetime)
	if d.lets(short, "short", "") || !d.told("short expired") {
		t.Errorf("the token is accepted beyond its end; the log was told %v", d.refused)
	}
	if !d.lets(long, "long", jobs.RoleViewer) {
		t.Error("the other token is refused, too")
	}
}

// While the broker is away tokens are good for a while, and then it is not known any
// more: that is no refusal. When it is back, they are good again.
func TestTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	s := jobstest.Tokens(t, server.Connect())
	secret := added(t, s, "ci", jobs.RoleViewer, 0)
	d := open(t, s)
	server.Down()
	if !d.lets(secret, "ci", jobs.RoleViewer) {
		t.Error("a broker that is away for a moment makes a token unknown")
	}
	d.forward(time.Minute)
	for _, presented := range []token.Secret{secret, token.New()} {
		if _, err := d.Verify(presented.Reveal()); !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, token.ErrRefused) {
			t.Errorf("after a minute without the broker: %v", err)
		}
	}
	server.Up()
	d.until("the token is accepted", func() bool { _, err := d.Verify(secret.Reveal()); return err == nil })
	if err := s.Remove(jobstest.Context(t), "ci"); err != nil {
		t.Fatal(err)
	}
	d.until("the token is refused", func() bool { return !d.lets(secret, "ci", jobs.RoleViewer) })
}

// A verifier that has not read the store yet does not say that a token is wrong.
func TestBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	v := token.NewVerifier(jobstest.Tokens(t, jobstest.Start(t).Connect()), token.VerifierConfig{})
	if _, err := v.Verify(token.New().Reveal()); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := v.Verify("garbage"); !errors.Is(err, token.ErrRefused) {
		t.Errorf("garbage: %v", err)
	}
}

// However often a token is used, its last use is stored once a minute, by all
// dispatchers together.
func TestLastUse(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	nc := server.Connect()
	s := jobstest.Tokens(t, nc)
	secret := added(t, s, "ci", jobs.RoleViewer, 0)
	if list := listed(t, s); list[0].LastUsed != nil {
		t.Errorf("used at %v before it was presented", list[0].LastUsed)
	}
	before := stored(t, nc)
	doors := []*door{open(t, s), open(t, jobstest.Tokens(t, server.Connect()))}
	for _, d := range doors {
		for range 1000 {
			d.lets(secret, "ci", jobs.RoleViewer)
		}
	}
	lastUse := func() time.Time {
		if used := listed(t, s)[0].LastUsed; used != nil {
			return *used
		}
		return time.Time{}
	}
	doors[0].until("the use is stored", func() bool { return !lastUse().IsZero() })
	first := lastUse()
	doors[0].forward(61 * time.Second)
	doors[0].until("a use a minute later is stored", func() bool {
		_, _ = doors[0].Verify(secret.Reveal()) // at first it may not be known
		return lastUse().After(first)
	})
	if n := stored(t, nc) - before; n != 2 {
		t.Errorf("2,000 uses within a minute and some after it were stored %d times, want twice", n)
	}
	// The use of a token is not the use of the next one of its name.
	if err := s.Remove(jobstest.Context(t), "ci"); err != nil {
		t.Fatal(err)
	}
	added(t, s, "ci", jobs.RoleViewer, 0)
	late := fmt.Sprintf(`{"fingerprint":%q,"at":"2026-11-23T00:00:00Z"}`, secret.Hash()[:12])
	if _, err := nc.Request("$KV.ps_tokens.used.ci", []byte(late), jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	if used := listed(t, s)[0].LastUsed; used != nil {
		t.Errorf("the new token was used at %v", used)
	}
}

// stored returns how many messages the bucket has stored so far.
func stored(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	msg, err := nc.Request("$JS.API.STREAM.INFO.KV_ps_tokens", nil, jobstest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		State struct {
			Last int `json:"last_seq"`
		} `json:"state"`
	}
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		t.Fatal(err)
	}
	return info.State.Last
}

// A full store takes no new token, and says so; those that it has are verified and can
// be removed.
func TestAFullStore(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	s := jobstest.Tokens(t, server.Connect())
	secret := added(t, s, "ci", jobs.RoleViewer, 0)
	d := open(t, s)
	server.Limit(server.Used())
	want := operation.TokenRequest{Name: "more", Role: jobs.RoleViewer, Hash: token.New().Hash()}
	if _, err := s.Add(jobstest.Context(t), want, "test"); jobs.Code(err) != jobs.CodeFull {
		t.Errorf("add to a full store: %v", err)
	}
	if !d.lets(secret, "ci", jobs.RoleViewer) {
		t.Error("a full store makes a token unknown")
	}
	if err := s.Remove(jobstest.Context(t), "ci"); err != nil {
		t.Fatal(err)
	}
	d.until("the token is refused", func() bool { return !d.lets(secret, "ci", jobs.RoleViewer) })
}

func TestAdd(t *testing.T) {
	t.Parallel()
	s := jobstest.Tokens(t, jobstest.Start(t).Connect())
	ctx := jobstest.Context(t)
	want := operation.TokenRequest{Name: "ci", Role: jobs.RoleViewer, Hash: token.New().Hash()}
	first, err := s.Add(ctx, want, "test")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Add(ctx, want, "test"); err != nil || again.Fingerprint != first.Fingerprint || !again.Created.Equal(first.Created) {
		t.Errorf("the same request again: %+v, %v; want %+v", again, err, first)
	}
	other := want
	other.Hash = token.New().Hash()
	if _, err := s.Add(ctx, other, "test"); jobs.Code(err) != jobs.CodeExists || !strings.Contains(err.Error(), "token ci exists already") {
		t.Errorf("another token of that name: %v", err)
	}
	promoted := want
	promoted.Role = jobs.RoleOperator
	if _, err := s.Add(ctx, promoted, "test"); jobs.Code(err) != jobs.CodeExists {
		t.Errorf("the same token with another role: %v", err)
	}
	promoted.Name = "ci2"
	if _, err := s.Add(ctx, promoted, "test"); jobs.Code(err) != jobs.CodeInvalid {
		t.Errorf("the same token by another name: %v", err)
	}
	for _, name := range []string{"nothing", "", "*", ">", "a.b", "CI"} {
		if err := s.Remove(ctx, name); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if list := listed(t, s); len(list) != 1 || list[0].Name != "ci" || list[0].By != "test" {
		t.Errorf("listed are %+v", list)
	}
}

// Names are of those that were removed again, too, and bounded.
func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	s := jobstest.Tokens(t, jobstest.Start(t).Connect())
	ctx := jobstest.Context(t)
	token.Fill(ctx, t, s, token.Most)
	want := operation.TokenRequest{Name: "more", Role: jobs.RoleViewer, Hash: token.New().Hash()}
	_, err := s.Add(ctx, want, "test")
	if jobs.Code(err) != jobs.CodeInvalid || !strings.Contains(err.Error(), "1000 tokens") {
		t.Errorf("one more: %v", err)
	}
	if err := s.Remove(ctx, "t7"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(ctx, want, "test"); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
	list := listed(t, s)
	if len(list) != token.Most || !slices.IsSortedFunc(list, func(a, b operation.Token) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d tokens are listed", len(list))
	}
}

// What another hand has written into the bucket lets nobody in: no role, a worker's, a
// role of a later release, another name than the key's.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	s := jobstest.Tokens(t, nc)
	d := open(t, s)
	var secrets []token.Secret
	for i, text := range []string{`{"name":"x0","hash":"HASH"}`, `{"name":"x1","role":"worker","hash":"HASH"}`, `{"name":"x2","role":"root","hash":"HASH"}`, `{"name":"y","role":"operator","hash":"HASH"}`, `{`} {
		secret := token.New()
		secrets = append(secrets, secret)
		if _, err := nc.Request(fmt.Sprintf("$KV.ps_tokens.token.x%d", i), []byte(strings.ReplaceAll(text, "HASH", secret.Hash())), jobstest.Patience); err != nil {
			t.Fatal(err)
		}
	}
	last := added(t, s, "last", jobs.RoleViewer, 0)
	d.until("what was written later is known", func() bool { return d.lets(last, "last", jobs.RoleViewer) })
	for i, secret := range secrets {
		if d.lets(secret, "", "") {
			t.Errorf("record %d lets its holder in", i)
		}
	}
	if list := listed(t, s); len(list) != 1 {
		t.Errorf("listed are %+v", list)
	}
}

// Nothing that is presented is accepted, crashes the verifier or looks to its presenter
// as anything but a refusal.
func FuzzVerify(f *testing.F) {
	f.Add("pst_" + strings.Repeat("a", 58))
	f.Add(token.New().Reveal())
	f.Add("pst_\x00")
	v := token.KnowingNothing()
	f.Fuzz(func(t *testing.T, presented string) {
		if _, err := v.Verify(presented); err != token.ErrRefused {
			t.Errorf("%q: %v", presented, err)
		}
	})
}
