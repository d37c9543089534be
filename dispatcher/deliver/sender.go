package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/webhook"
	"github.com/penstock-run/penstock/sandbox/address"
)

// Bounds of one attempt.
const (
	connectWithin = 5 * time.Second // names looked up and all
	answerWithin  = 15 * time.Second
	maxResponse   = 1 << 10  // of an answer's body that is kept
	maxHeader     = 16 << 10 // of an answer's header
	maxRetryAfter = 24 * time.Hour
)

// Settings say where events may be sent.
type Settings struct {
	AllowPrivate []string `yaml:"allow_private" env:"ALLOW_PRIVATE" doc:"networks besides the public ones where webhooks may send events to, by http, too: 10.0.0.0/8"`
}

// Networks are those of the settings, as values.
func (s Settings) Networks() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range s.AllowPrivate {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("allow_private: %q is not a network such as 10.0.0.0/8", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// A Sender posts events to receivers. It connects to no address that leads into this
// host or its networks, unless those are allowed: it asks for each connection, when the
// name has been looked up, so that no name and no spelling of an address gets around it.
type Sender struct {
	allowed  []netip.Prefix
	resolver *net.Resolver // nil: the host's
	within   time.Duration // for one attempt
	clients  map[string]*http.Client
}

// NewSender returns a sender that may connect to the networks that are allowed, besides
// all public ones.
func NewSender(allowed []netip.Prefix) *Sender { return newSender(allowed, nil) }

func newSender(allowed []netip.Prefix, resolver *net.Resolver) *Sender {
	s := &Sender{allowed: slices.Clone(allowed), resolver: resolver, within: answerWithin}
	s.clients = map[string]*http.Client{"https": s.client("https"), "http": s.client("http")}
	return s
}

// client posts by one scheme, since what may be connected to depends on it.
func (s *Sender) client(scheme string) *http.Client {
	dialer := &net.Dialer{Timeout: connectWithin, KeepAlive: 30 * time.Second, Resolver: s.resolver, Control: func(_, to string, _ syscall.RawConn) error {
		return s.mayConnect(scheme, to)
	}}
	return &http.Client{
		Transport: &http.Transport{
			// No proxy: it would be the one that connects, and ask nobody.
			Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectWithin, ResponseHeaderTimeout: answerWithin,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			// What is compressed is longer than it looks, and nobody reads it.
			DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			MaxIdleConns: 100, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: 30 * time.Second,
		},
		// Where an event is sent its owner has said, and not the receiver.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// close ends the connections that wait for another attempt.
func (s *Sender) close() {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

// An AddressError says that nothing is sent to an address.
type AddressError struct {
	Address netip.Addr
	Plain   bool // it is public, and the scheme is http
}

func (e *AddressError) Error() string {
	if e.Plain {
		return fmt.Sprintf("%s is not in webhooks.allow_private, and http is for addresses there: use https", e.Address)
	}
	return fmt.Sprintf("%s is not a public address: name its network in webhooks.allow_private of the settings of serve", e.Address)
}

// mayConnect judges an address and its port, as a connection is about to be made.
func (s *Sender) mayConnect(scheme, to string) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("address %q: %w", to, err)
	}
	return s.judge(scheme, at.Addr())
}

func (s *Sender) judge(scheme string, a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if slices.ContainsFunc(s.allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	if _, special := address.Special(a); special {
		return &AddressError{Address: a}
	}
	if scheme != "https" {
		return &AddressError{Address: a, Plain: true}
	}
	return nil
}

// Check refuses a URL of which it is known already that nothing can be sent there: before
// its name is looked up, and so without a promise.
func (s *Sender) Check(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return refused("is not a URL")
	}
	if u.Scheme == "http" && len(s.allowed) == 0 {
		return refused("begins with http://, which is for networks that webhooks.allow_private of the settings of serve names: use https://")
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil // a name
	}
	if err := s.judge(u.Scheme, a); err != nil {
		return refused(err.Error())
	}
	return nil
}

func refused(reason string) error {
	return &jobs.InvalidError{What: "webhook", Fields: []jobs.FieldError{{Field: "url", Reason: reason}}}
}

// An answer is what came of one attempt.
type answer struct {
	status     int
	response   string
	retryAfter time.Duration
	took       time.Duration
	err        error // nil: it was delivered
}

// send posts an event once.
func (s *Sender) send(ctx context.Context, hook webhook.Hook, m webhook.Message) answer {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	a := s.post(ctx, hook, m)
	a.took = time.Since(began)
	if errors.Is(a.err, context.DeadlineExceeded) {
		a.err = fmt.Errorf("no answer within %v", s.within)
	}
	return a
}

func (s *Sender) post(ctx context.Context, hook webhook.Hook, m webhook.Message) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, strings.NewReader(string(m.Body)))
	if err != nil {
		return answer{err: errors.New("the URL cannot be used")}
	}
	now := time.Now()
	signatures, err := sign(hook.Secrets(now), m, now)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Content-Type", cloudevent.StructuredType)
	request.Header.Set("User-Agent", "penstock-webhook")
	request.Header.Set(standardwebhooks.HeaderWebhookID, m.ID)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signatures)
	m.Trace.Put(request.Header.Set)
	client, ok := s.clients[request.URL.Scheme]
	if !ok {
		return answer{err: fmt.Errorf("scheme %q is not sent by", request.URL.Scheme)}
	}
	got, err := client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, which its reader has
	}
	if err != nil {
		return answer{err: err}
	}
	defer got.Body.Close()
	// The status decides; the beginning of the body is for people, if it comes in time.
	body, _ := io.ReadAll(io.LimitReader(got.Body, maxResponse))
	a := answer{status: got.StatusCode, response: strings.ToValidUTF8(string(body), "\uFFFD")}
	if a.status < 200 || a.status > 299 {
		a.err = fmt.Errorf("answered %d %s", a.status, http.StatusText(a.status))
		a.retryAfter = retryAfter(got.Header.Get("Retry-After"), now)
	}
	return a
}

// sign signs a message with each secret: a receiver takes any of them.
func sign(secrets []webhook.Secret, m webhook.Message, now time.Time) (string, error) {
	var all []string
	for _, secret := range secrets {
		signer, err := standardwebhooks.NewWebhook(string(secret))
		if err != nil {
			return "", errors.New("the secret is not one of Standard Webhooks")
		}
		signature, err := signer.Sign(m.ID, now, m.Body)
		if err != nil {
			return "", err
		}
		all = append(all, signature)
	}
	return strings.Join(all, " "), nil
}

// retryAfter reads for how long a receiver wants to be left alone: at most a day.
func retryAfter(text string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
