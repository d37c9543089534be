package inside

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/gate"
)

// How fast an attempt may ask, how often beyond that, and how many connections
// it may hold.
const (
	perSecond   = 20
	burst       = 100
	patience    = 1000 // refusals
	connections = 16
)

// shortLimit is how long a request is that has a text.
const shortLimit = 32 << 10

// How long the bytes of a request may take.
const (
	shortBody = 10 * time.Second
	longBody  = 10 * time.Minute
)

// Deeds are what requests come to. Several run at once, except for Result, and
// for Artifact. What they return goes to the agent: a [*RefusedError] as it is.
type Deeds struct {
	Milestone func(ctx context.Context, text string) error
	Artifact  func(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error)
	Result    func(ctx context.Context, value json.RawMessage) error
	Ask       func(ctx context.Context, ask Ask) (Answer, error)
	// Terminal answers what is asked about the terminals of the jail.
	Terminal func(ctx context.Context, r terminal.Request) (terminal.Answer, error)
	// Shut is told once that the door was shut, and why.
	Shut func(why string)
}

// A Door is one attempt's. It counts over all runs of the attempt's agent.
type Door struct {
	token    string
	shut     chan struct{} // closed when it is shut
	writing  chan struct{} // held by an artifact that is stored
	deciding chan struct{} // held by a result that is set

	mu      sync.Mutex
	tokens  float64 // requests that may come at once
	filled  time.Time
	refused int
	used    map[string]int // by the name of a bound
	bytes   int64          // of artifacts
	names   map[string]bool
}

// NewDoor returns a door with a token of its own.
func NewDoor() *Door {
	return &Door{
		token: strings.ToLower(rand.Text()), shut: make(chan struct{}), writing: make(chan struct{}, 1), deciding: make(chan struct{}, 1),
		tokens: burst, filled: time.Now(), used: map[string]int{}, names: map[string]bool{},
	}
}

// Token is what opens the door.
func (d *Door) Token() string { return d.token }

// URL is what the programs of the jail find in their environment.
func (d *Door) URL(address string) string {
	return (&url.URL{Scheme: "http", User: url.User(d.token), Host: address}).String()
}

// Serve answers what comes in on l until ctx ends, l is closed, or the door is
// shut. Then it cuts what is under way. It closes l.
func (d *Door) Serve(ctx context.Context, l net.Listener, deeds Deeds) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var closer sync.WaitGroup
	closer.Go(func() {
		select {
		case <-d.shut:
			cancel()
		case <-ctx.Done():
		}
	})
	err := gate.Server{Handler: d.handler(deeds), Auth: d.opens, Deny: deny, Connections: connections}.Serve(ctx, l)
	cancel()
	closer.Wait()
	return err
}

func (d *Door) handler(deeds Deeds) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, Deeds) (any, error){
		"POST /v1/milestones":      d.milestone,
		"PUT /v1/artifacts/{name}": d.artifact,
		"PUT /v1/result":           d.result,
		"POST /v1/asks":            d.ask,
		"POST /v1/terminals":       d.terminal,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := h(w, r, deeds)
			reply(w, answer, err)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that sends a byte now and then would hold a connection for ever.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(shortBody)) // every connection of ours has one
		if err := d.admit(deeds); err != nil {
			reply(w, nil, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func reply(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		refused, ok := errors.AsType[*RefusedError](err)
		if large, is := errors.AsType[*http.MaxBytesError](err); is {
			refused, ok = Refuse("too_large", "it is longer than the %d bytes that are left", large.Limit), true
		}
		if !ok {
			refused = Refuse("lost", "%v", err)
		}
		answer, status = refusal{refused}, refused.status()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(answer)) // who asked may have gone
}

// opens reports whether a request has the token. One without it does not
// count: if a jail shares the host's network it may come from any program, and must
// not close the door to the agent.
func (d *Door) opens(r *http.Request) bool {
	name, _, _ := r.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(name), []byte(d.token)) == 1
}

func deny(w http.ResponseWriter, _ *http.Request) {
	reply(w, nil, Refuse("forbidden", "the token is wrong: take the whole URL of the environment"))
}

// admit counts a request, and refuses one too many.
func (d *Door) admit(deeds Deeds) error {
	d.mu.Lock()
	now := time.Now()
	d.tokens = min(burst, d.tokens+perSecond*now.Sub(d.filled).Seconds())
	d.filled = now
	if d.tokens >= 1 {
		d.tokens--
		d.mu.Unlock()
		return nil
	}
	if d.refused >= patience {
		d.mu.Unlock()
		panic(http.ErrAbortHandler) // it is shut, and about to be closed
	}
	d.refused++
	shut := d.refused == patience
	d.mu.Unlock()
	if shut {
		close(d.shut)
		if deeds.Shut != nil {
			deeds.Shut("the agent's programs sent too many requests to their worker: nothing more is taken from them")
		}
	}
	return Refuse("too_many", "more than %d requests a second; wait a little", perSecond)
}

// use takes one of a number of things that an attempt has.
func (d *Door) use(what string, of int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used[what] >= of {
		return Refuse("too_many", "an attempt has %d %s, and this one has used them", of, what)
	}
	d.used[what]++
	return nil
}

func (d *Door) giveBack(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[what]--
}

// hold takes a lock that a slow client may keep, or gives up with the request.
func hold(ctx context.Context, lock chan struct{}) (release func(), err error) {
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *Door) milestone(w http.ResponseWriter, r *http.Request, deeds Deeds) (any, error) {
	var m milestone
	if err := read(w, r, shortLimit, &m); err != nil {
		return nil, err
	}
	if err := checkText("the milestone", m.Text); err != nil {
		return nil, err
	}
	if err := d.use("milestones", MaxMilestones); err != nil {
		return nil, err
	}
	return struct{}{}, deeds.Milestone(r.Context(), m.Text)
}

func (d *Door) result(w http.ResponseWriter, r *http.Request, deeds Deeds) (any, error) {
	data, err := body(w, r, MaxResult)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, Refuse("invalid", "it is not JSON")
	}
	release, err := hold(r.Context(), d.deciding)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.use("results", MaxResults); err != nil {
		return nil, err
	}
	return struct{}{}, deeds.Result(r.Context(), data)
}

func (d *Door) ask(w http.ResponseWriter, r *http.Request, deeds Deeds) (any, error) {
	var a Ask
	if err := read(w, r, shortLimit, &a); err != nil {
		return nil, err
	}
	if err := checkAsk(a); err != nil {
		return nil, err
	}
	if err := d.use("questions", MaxAsks); err != nil {
		return nil, err
	}
	if err := d.use("open questions", MaxOpen); err != nil {
		return nil, err
	}
	defer d.giveBack("open questions")
	return deeds.Ask(r.Context(), a)
}

func (d *Door) artifact(w http.ResponseWriter, r *http.Request, deeds Deeds) (any, error) {
	name := r.PathValue("name")
	if err := checkName(name); err != nil {
		return nil, err
	}
	if r.ContentLength > MaxArtifact {
		return nil, Refuse("too_large", "artifact %s has %d bytes, at most %d are taken", name, r.ContentLength, int64(MaxArtifact))
	}
	release, err := hold(r.Context(), d.writing)
	if err != nil {
		return nil, err
	}
	defer release()
	left, err := d.room(name)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > left {
		return nil, Refuse("too_large", "artifact %s has %d bytes, and %d are left for all", name, r.ContentLength, left)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(longBody))
	content := &counting{from: http.MaxBytesReader(w, r.Body, left)}
	file, err := deeds.Artifact(r.Context(), name, content)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += content.n
	return file, err
}

// room is how many bytes the artifact of that name may have.
func (d *Door) room(name string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.names[name] && len(d.names) >= MaxArtifacts {
		return 0, Refuse("too_many", "an attempt has %d artifacts, and this one has them", MaxArtifacts)
	}
	d.names[name] = true
	return min(MaxArtifact, MaxArtifactBytes-d.bytes), nil
}

// counting counts what is read.
type counting struct {
	from io.Reader
	n    int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}
