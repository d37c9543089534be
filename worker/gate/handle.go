package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/inspection"
	"github.com/penstock-run/penstock/worker/internal/keyring"
	"github.com/penstock-run/penstock/worker/internal/modelapi"
	"github.com/penstock-run/penstock/worker/internal/scrub"
	"github.com/penstock-run/penstock/worker/internal/tokencount"
)

// maxBody is the largest body that the provider accepts.
const maxBody = 32 << 20

var (
	errBody    = errors.New("body")
	errSpent   = errors.New("budget is spent")
	errSilence = errors.New("the provider paused for too long")
	errPacked  = errors.New("the provider sent a compressed answer, which cannot be counted")
	errMoved   = errors.New("the provider answered with a redirect")
)

// A call is a request that is being forwarded.
type call struct {
	g     *Gate
	s     *Session
	route modelapi.Route
	query string // as it is sent on
	began time.Time
	asks  inspection.Inquiry
	hold  reservation
	most  budget.Amount // that it can use
	key   *keyring.Key  // with which it is made
	// secrets are the values that the answer must not have.
	secrets []string
	count   *tokencount.Counter
	pass    governor.Pass   // of the provider's limits
	answer  governor.Answer // what the last answer says of them
	result  Call
	used    jobs.Usage // already reported to the session
	cost    float64    // the same, in US dollars
}

// handle serves one request from the jail to its end.
func (g *Gate) handle(w http.ResponseWriter, r *http.Request, q *quota) {
	c := &call{g: g, s: q.session}
	if what := c.allowed(r); what != "" {
		g.violation(w, r, q.session, wrong{http.StatusForbidden, "permission_error", what, ""})
		return
	}
	if c.route.Local {
		w.WriteHeader(http.StatusOK)
		return
	}
	// A waiting call has not sent its body yet: bodies are large.
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	select {
	case <-q.over: // the slot was freed by a call that was cut a moment before this one
		panic(http.ErrAbortHandler)
	default:
	}
	size := r.ContentLength
	if size < 0 || size > g.maxBody {
		size = g.maxBody // length unknown, or too long
	}
	if q.room.Acquire(r.Context(), size) != nil {
		panic(http.ErrAbortHandler)
	}
	defer q.room.Release(size)
	c.began = time.Now()
	body, err := c.read(w, r, q)
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch asked, forbidden := errors.AsType[forbiddenError](err); {
	case forbidden:
		g.violation(w, r, q.session, wrong{http.StatusBadRequest, "invalid_request_error", asked.what, asked.field})
	case err == nil:
		c.forward(w, r, body)
	case isLarge:
		g.refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("penstock: a request has at most %d bytes", large.Limit))
	case errors.Is(err, errBody):
		g.violation(w, r, q.session, wrong{http.StatusBadRequest, "invalid_request_error", err.Error(), ""})
	default:
		panic(http.ErrAbortHandler) // the client hung up
	}
}

// allowed finds the route of a request, or says what is wrong with it.
func (c *call) allowed(r *http.Request) (wrong string) {
	switch {
	case r.Method == http.MethodConnect:
		return "tunnel"
	case r.URL.IsAbs() || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/"):
		return "proxy request"
	case !localHost(r.Host):
		return "host"
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	var ok bool
	if c.route, c.asks.Model, ok = c.g.api.Find(r.Method, path); !ok {
		return "path"
	}
	if c.query, ok = c.g.api.Query(c.route, r.URL.RawQuery); !ok {
		return "query"
	}
	return ""
}

// localHost reports whether a request means the gate itself.
func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return endpoint.Loopback(strings.Trim(host, "[]"))
}

// read reads the body. It returns errBody for one that is not allowed.
func (c *call) read(w http.ResponseWriter, r *http.Request, q *quota) ([]byte, error) {
	if !c.route.Body {
		return nil, c.s.limits.permit(c.asks, r.Header)
	}
	rc := http.NewResponseController(w)
	steady := &steadyReader{from: http.MaxBytesReader(w, r.Body, c.g.maxBody), rc: rc, until: time.Now().Add(bodyTime)}
	body, err := io.ReadAll(steady)
	if err != nil {
		return nil, err
	}
	q.inspector.Lock()
	defer q.inspector.Unlock()
	if c.asks, err = c.g.api.Rules.Inspect(body, c.asks.Model, c.s.limits.Remote); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	if err = c.s.limits.permit(c.asks, r.Header); err != nil {
		return nil, err
	}
	return body, rc.SetReadDeadline(time.Time{})
}

// How long a body may take, and pause. It comes from this host, and a slow client holds
// memory that other calls of the session wait for.
const (
	bodyTime  = time.Minute
	bodyPause = 10 * time.Second
)

// A steadyReader fails if the bytes of a body arrive too slowly.
type steadyReader struct {
	from  io.Reader
	rc    *http.ResponseController
	until time.Time
}

func (s *steadyReader) Read(p []byte) (int, error) {
	limit := time.Now().Add(bodyPause)
	if limit.After(s.until) {
		limit = s.until
	}
	if err := s.rc.SetReadDeadline(limit); err != nil {
		return 0, err
	}
	return s.from.Read(p)
}

// forward calls the provider and passes its answer on.
func (c *call) forward(w http.ResponseWriter, r *http.Request, body []byte) {
	var err error
	c.most = c.bound(int64(len(body)))
	if c.hold, err = c.s.reserve(r.Context(), c.most); err != nil {
		if !errors.Is(err, budget.ErrSpent) {
			panic(http.ErrAbortHandler) // the client hung up
		}
		c.g.refuse(w, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf(
			"penstock: %s is spent; the job ends here", c.s.spentBudget()))
		return
	}
	defer func() { c.hold.release() }()
	ctx, cut := context.WithCancelCause(r.Context())
	defer cut(nil)
	c.s.begin(c, cut)
	defer c.s.end(c)
	c.result = Call{Route: c.route.Method + " " + c.route.Path, Model: c.asks.Model}

	res, sent, err := c.ask(ctx, r, body)
	defer func() { c.done() }()
	if h := heldBy(err); h != nil {
		c.part(ctx, w, h)
		return
	}
	if errors.Is(err, budget.ErrSpent) { // that of a key, and there is no other one
		err = errSpent
	}
	if err != nil {
		c.unreachable(ctx, w, err, sent)
		return
	}
	defer res.Body.Close()
	c.result.Status, c.result.RetryAfter = res.StatusCode, governor.Wait(res.Header, nil, time.Now())
	c.counts(strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"), res.StatusCode >= 400)
	c.head(w, res)
	if err = send(w, nil, c.g.cfg.Silence); err == nil {
		err = c.copy(ctx, cut, w, res.Body)
	}
	c.tally()
	if kind := c.count.Kind(); kind != "" && c.answer.Kind == governor.Served {
		c.answer.Kind = kindOf(jobs.APIFailure{Kind: kind}, 0) // within its answer
	}
	c.finish(r.Context(), err)
	if err != nil {
		// The answer is incomplete. To end it normally would hide that.
		panic(http.ErrAbortHandler)
	}
}

// head passes on the status and the headers of an answer.
func (c *call) head(w http.ResponseWriter, res *http.Response) {
	modelapi.Pass(w.Header(), res.Header, c.g.api.Answer)
	for name, values := range w.Header() {
		for _, secret := range c.secrets {
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, secret) }) {
				w.Header().Del(name)
			}
		}
	}
	w.WriteHeader(res.StatusCode)
}

// request is the outgoing request: of the agent's request it has the route, the allowed
// headers and the inspected body, and nothing else.
func (c *call) request(ctx context.Context, r *http.Request, body []byte) (*http.Request, error) {
	header, model := http.Header{}, c.asks.Model
	if body == nil {
		model = ""
	}
	modelapi.Pass(header, r.Header, c.g.api.Request)
	if body != nil {
		header.Set("Content-Type", "application/json") // as it was read
	}
	return c.key.Endpoint.Request(ctx, endpoint.Call{
		Method: r.Method, Path: r.URL.Path, Query: c.query, Header: header, Model: model, Body: body,
	})
}

// acceptable refuses answers that would redirect the agent or hide their usage.
func acceptable(res *http.Response) error {
	switch enc := res.Header.Get("Content-Encoding"); {
	case enc != "" && enc != "identity":
		return errPacked
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return errMoved
	}
	return nil
}

// copy forwards the answer piece by piece as it arrives, and counts it.
func (c *call) copy(ctx context.Context, cut context.CancelCauseFunc, w http.ResponseWriter, from io.Reader) error {
	silence := time.AfterFunc(c.g.cfg.Silence, func() { cut(errSilence) })
	defer silence.Stop()
	blank := scrub.New(c.secrets...)
	buf := make([]byte, 32<<10)
	last := time.Now()
	defer func() {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilence) {
			last = time.Now() // until then the model may have gone on
		}
		c.count.Finish(last.Sub(c.began))
	}()
	for {
		n, err := from.Read(buf)
		silence.Reset(c.g.cfg.Silence)
		if n > 0 {
			last = time.Now()
			c.count.Write(buf[:n])
			c.tally()
			if err := send(w, blank.Next(buf[:n]), c.g.cfg.Silence); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return send(w, blank.Rest(), c.g.cfg.Silence)
		}
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// send writes to the agent at once. An agent that does not read is cut off.
func send(w http.ResponseWriter, p []byte, patience time.Duration) error {
	rc := http.NewResponseController(w)
	err := rc.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = w.Write(p)
	}
	if err == nil {
		err = rc.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// unreachable answers a call that got no answer, so that the agent retries if that may
// help. Sent: the provider has the request, and may charge for it.
func (c *call) unreachable(ctx context.Context, w http.ResponseWriter, err error, sent bool) {
	late, isLate := errors.AsType[net.Error](err)
	err = errors.Join(context.Cause(ctx), err)
	c.result.Status = http.StatusBadGateway
	defer c.finish(ctx, err)
	if sent && (ctx.Err() != nil || isLate && late.Timeout()) {
		c.counts(true, false)
		c.count.Finish(time.Since(c.began))
		c.tally()
	}
	switch {
	case errors.Is(err, errSpent):
		c.result.Status = http.StatusBadRequest
		c.g.refuse(w, c.result.Status, "invalid_request_error", "penstock: the budget was spent while this call was under way")
	case errors.Is(err, errNoKey):
		c.result.Status = http.StatusUnauthorized
		c.g.refuse(w, c.result.Status, "authentication_error", "penstock: "+errNoKey.Error())
	case errors.Is(err, endpoint.ErrUnknown):
		c.result.Status = http.StatusNotFound
		c.g.refuse(w, c.result.Status, "not_found_error", "penstock: the endpoint of the model API has no such call")
	case errors.Is(err, endpoint.ErrRefused):
		c.result.Status = http.StatusUnauthorized
		c.g.refuse(w, c.result.Status, "authentication_error", "penstock: the credential of the model API is refused")
	case errors.Is(err, errPacked), errors.Is(err, errMoved):
		c.g.refuse(w, c.result.Status, "api_error", "penstock: the model API gave an answer that cannot be passed on")
	default:
		c.g.refuse(w, c.result.Status, "api_error", "penstock: the model API does not answer")
	}
}

// finish records how the call ended.
func (c *call) finish(ctx context.Context, err error) {
	c.result.Err, c.result.Usage, c.result.Took = err, c.used, time.Since(c.began)
	c.judge(err != nil && errors.Is(context.Cause(ctx), context.Canceled))
	c.s.note(func(m *Meter) {
		switch {
		case c.result.Status == http.StatusTooManyRequests:
			m.Limited++
		case c.result.Status >= 500:
			m.Failed++
		}
	})
	if c.g.cfg.Hooks.Called != nil {
		c.g.cfg.Hooks.Called(c.s.id, c.result)
	}
}

// wrong says what is wrong with a request.
type wrong struct {
	status            int
	kind, what, field string
}

// stranger answers a client without the session's token. It is reported once,
// since the client is not the session's own: it may be any program of the host if
// the jail shares the host's network.
func (g *Gate) stranger(w http.ResponseWriter, s *Session) {
	first := false
	s.note(func(m *Meter) { m.Strangers++; first = m.Strangers == 1 })
	if first && s.Refused != nil {
		s.Refused(Violation{What: "a request without the key that the jail has"})
	}
	g.refuse(w, http.StatusUnauthorized, "authentication_error", "penstock: not the key of this session: take it from the environment of the agent")
}

func (g *Gate) violation(w http.ResponseWriter, r *http.Request, s *Session, v wrong) {
	s.note(func(m *Meter) { m.Violations++ })
	if s.Refused != nil {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		s.Refused(Violation{What: v.what, Field: v.field, Method: cut(r.Method), Path: strings.Trim(fmt.Sprintf("%.1000q", path), `"`)})
	}
	g.refuse(w, v.status, v.kind, "penstock: not allowed from inside the jail: "+v.what)
}

// refuse answers in the provider's own format.
func (g *Gate) refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(g.api.Refusal(status, kind, message)) // fails only if the client has gone
}
