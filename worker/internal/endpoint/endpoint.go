// Package endpoint is where calls of a model API go, and how they are authorized there: the
// provider itself, a gateway that speaks as it does, or a cloud that sells its models.
//
//	call, as the agent made it ─▶ Request: host, path, model, credential ─▶ Azure OpenAI, Amazon Bedrock, Google Vertex
//	answer, as the agent reads it ◀─ Answer ◀────────────────────────────────────┘
//
// Agents speak the provider's own API in any case, so a session may go on at another
// endpoint. Credentials are in no error.
package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The kinds of endpoints; empty is one that speaks the API itself.
const (
	Azure   = "azure"
	Bedrock = "bedrock"
	Vertex  = "vertex"
	// Subscription is the provider itself, with the account of a person or a team instead of a key.
	Subscription = "subscription"
)

// ErrRefused means that no credential could be had, since what it is made with is not accepted.
var ErrRefused = errors.New("the credential is refused")

// ErrUnknown means that the endpoint has nothing like a call.
var ErrUnknown = errors.New("the endpoint has no such call")

// Config says where an endpoint is.
type Config struct {
	API string // whose calls it takes: anthropic, openai, google
	Via string // a kind; empty: it speaks the API
	URL string // base URL; empty is the default of the kind, which an endpoint that speaks the API lacks
	// File has the login of a subscription that is renewed; its Secret is empty. TokenURL is where: empty
	// is the provider's.
	File, TokenURL string
	// Secret is the key; for Bedrock a key or a file of credentials, for Vertex the file of
	// a service account.
	Secret string
	// Header is the one with the key; Authorization has it as a bearer.
	Header string
	// Headers are added to each request. Their values are secret.
	Headers map[string]string
	// Models are what the endpoint calls models, by the names that agents use; a name that ends with * stands for
	// all that begin so.
	Models map[string]string
	// Region is that of Bedrock or Vertex, Project that of Vertex, and Version that of Azure's
	// older paths.
	Region, Project, Version string
	// Client gets tokens, for Vertex and logins.
	Client *http.Client
}

// A Call is one of the provider's API.
type Call struct {
	Method, Path, Query string
	Header              http.Header
	Model               string // that it asks for
	Body                []byte // nil: none
}

// An Endpoint is in use. Its methods may be called from any goroutine.
type Endpoint struct {
	cfg  Config
	base *url.URL
	kind kind
}

// A kind turns calls into requests of an endpoint.
type kind interface {
	// target sets method, path and body of a request.
	target(t *target) error
	// authorize adds the credential, when all else is there.
	authorize(r *http.Request, body []byte) error
	// answer turns an answer into one of the provider's API.
	answer(res *http.Response)
	// secrets are the values that no answer may have.
	secrets() []string
}

// A target is a call on its way.
type target struct {
	Call
	model    string // as the endpoint calls it
	path     string // below the base URL, escaped
	streamed bool
}

// New returns an endpoint. It makes no requests.
func New(cfg Config) (*Endpoint, error) {
	e := &Endpoint{cfg: cfg}
	var err error
	base := cfg.URL
	switch cfg.Via {
	case "":
		e.kind = native{cfg}
	case Azure:
		e.kind = azure{cfg}
	case Bedrock:
		if base == "" {
			base = "https://bedrock-runtime." + cfg.Region + ".amazonaws.com"
		}
		e.kind, err = newBedrock(cfg)
	case Vertex:
		if base == "" {
			base = "https://" + strings.TrimPrefix(cfg.Region+"-", "global-") + "aiplatform.googleapis.com"
		}
		e.kind, err = newVertex(cfg)
	case Subscription:
		base, e.kind, err = subscription(cfg)
	default:
		return nil, fmt.Errorf("via: %q is not azure, bedrock, vertex or subscription", cfg.Via)
	}
	if err != nil {
		return nil, err
	}
	e.base, err = Base(base)
	return e, err
}

// Base reads a base URL. It refuses one that would send a key in the clear.
func Base(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, errors.New("the upstream is not a plain URL; write https://host")
	case u.Scheme == "https":
	case u.Scheme == "http" && Loopback(u.Hostname()):
	default:
		return nil, fmt.Errorf("upstream %s: the key would travel unencrypted; use https, or http on this host's loopback", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// Loopback reports whether a host is this one, by its loopback.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Same reports whether calls go to the same place with the same credential.
func (e *Endpoint) Same(other *Endpoint) bool {
	here, there := e.cfg, other.cfg
	here.Client, there.Client = nil, nil // each is made for its endpoint, in one way
	return reflect.DeepEqual(here, there)
}

// Account is that of a login, which stays while its tokens are renewed; empty: the endpoint has another credential.
func (e *Endpoint) Account() string {
	if c, ok := e.kind.(*chatGPT); ok {
		_, account := c.login.credential()
		return account
	}
	return ""
}

// Renews is to be told of an answer that refuses the credential. It reports whether the next request
// will have another one: that of a login may have ended before its time.
func (e *Endpoint) Renews(res *http.Response) bool {
	c, ok := e.kind.(*chatGPT)
	return ok && c.login.doubt(strings.TrimPrefix(res.Request.Header.Get("Authorization"), "Bearer "))
}

// Lists reports whether the endpoint has the list of models.
func (e *Endpoint) Lists() bool { return e.cfg.Via == "" }

// Request makes the request of a call: of the call it has what is allowed, and nothing else. The error is
// [ErrUnknown] or [ErrRefused].
func (e *Endpoint) Request(ctx context.Context, c Call) (*http.Request, error) {
	t := &target{Call: c, path: c.Path}
	var err error
	if t.model, err = e.model(c.Model); err != nil {
		return nil, err
	}
	if err := e.kind.target(t); err != nil {
		return nil, err
	}
	path, err := url.PathUnescape(t.path)
	if err != nil {
		return nil, ErrUnknown // no route has such a path
	}
	out := (&http.Request{
		Method: t.Method,
		URL:    &url.URL{Scheme: e.base.Scheme, Host: e.base.Host, Path: e.base.Path + path, RawPath: e.base.EscapedPath() + t.path, RawQuery: t.Query},
		Host:   e.base.Host, Header: t.Header.Clone(),
	}).WithContext(ctx)
	out.Header.Set("Accept-Encoding", "identity")
	for name, value := range e.cfg.Headers {
		out.Header.Set(name, value)
	}
	if t.Body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(t.Body)), int64(len(t.Body))
	}
	return out, e.kind.authorize(out, t.Body)
}

// safe is what a name of a model may be that the settings do not name, since it may come into a path.
var safe = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,255}$`) })

// model is what the endpoint calls a model.
func (e *Endpoint) model(asked string) (string, error) {
	asked = strings.TrimPrefix(asked, "models/")
	if asked == "" {
		return "", nil
	}
	if to, ok := e.cfg.Models[asked]; ok {
		return to, nil
	}
	best, found := "", asked
	for from, to := range e.cfg.Models {
		if before, all := strings.CutSuffix(from, "*"); all && strings.HasPrefix(asked, before) && len(from) > len(best) {
			best, found = from, to
		}
	}
	if e.cfg.Via != "" && best == "" && !safe().MatchString(asked) {
		return "", ErrUnknown
	}
	return found, nil
}

// Answer turns an answer into one of the provider's API.
func (e *Endpoint) Answer(res *http.Response) { e.kind.answer(res) }

// Secrets are the values that no answer may contain.
func (e *Endpoint) Secrets() []string {
	all := e.kind.secrets()
	for _, value := range e.cfg.Headers {
		all = append(all, value)
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// native is an endpoint that speaks the API.
type native struct{ Config }

func (n native) target(t *target) error {
	if t.model == strings.TrimPrefix(t.Model, "models/") {
		return nil
	}
	if n.API == "google" {
		before, after, _ := strings.Cut(t.path, ":")
		t.path = before[:strings.LastIndexByte(before, '/')+1] + escape(t.model) + ":" + after
		return nil
	}
	return t.change(func(body map[string]json.RawMessage) { body["model"] = encoded(t.model) })
}

func (n native) authorize(r *http.Request, _ []byte) error {
	switch n.Header {
	case "", "Authorization":
		r.Header.Set("Authorization", "Bearer "+n.Secret)
	default:
		r.Header.Set(n.Header, n.Secret)
	}
	return nil
}

func (n native) answer(*http.Response) {}

func (n native) secrets() []string { return []string{n.Secret} }

// azure is Azure OpenAI: with a version in the paths of its older API, which name the deployment.
type azure struct{ Config }

func (a azure) target(t *target) error {
	rest, _ := strings.CutPrefix(t.path, "/v1")
	switch {
	case a.Version == "":
		t.path = "/openai/v1" + rest
	case rest == "/chat/completions":
		t.path = "/openai/deployments/" + escape(t.model) + rest
	default:
		t.path = "/openai" + rest
	}
	if a.Version != "" {
		t.Query = url.Values{"api-version": {a.Version}}.Encode()
	}
	if t.Body == nil {
		return nil
	}
	return t.change(func(body map[string]json.RawMessage) { body["model"] = encoded(t.model) })
}

func (a azure) authorize(r *http.Request, _ []byte) error {
	r.Header.Set("Api-Key", a.Secret)
	return nil
}

func (a azure) answer(*http.Response) {}

func (a azure) secrets() []string { return []string{a.Secret} }

// change changes the fields of the body, which is an object.
func (t *target) change(fields func(map[string]json.RawMessage)) error {
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.Body, &body); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err) // it was inspected
	}
	fields(body)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(body)
	t.Body = bytes.TrimSpace(out.Bytes())
	return err
}

func encoded(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // a string, or several
	}
	return out
}

// escape writes one segment of a path as clouds sign it: all but plain characters escaped.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
