package httpapi

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

const (
	// maxBody bounds what a request sends: a message of the broker holds no more.
	maxBody = 1 << 20
	// strangerTime is how long a request that is not admitted may take.
	strangerTime = time.Second
)

// securityHeaders stand in every answer. What an agent wrote is in many of them, and no
// browser is to take it for a page, or to keep it.
var securityHeaders = map[string]string{
	"Cache-Control":                "no-store",
	"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

// admit decides whether a request is to be looked at, and tells whose it is.
func (s *Server) admit(c *call) error {
	// A client that does not read what it asked for could hold a connection for ever.
	// What takes longer than that moves the deadline.
	_ = c.control().SetWriteDeadline(time.Now().Add(c.patience)) // every connection of ours has one
	if !s.named(c.r) {
		return refused(codeMisdirected, "the request is for %q, which is no name of this server", c.r.Host)
	}
	if err := s.origin.Check(c.r); err != nil {
		return refused(codeCrossOrigin, "%v", err)
	}
	if _, pattern := s.mux.Handler(c.r); pattern == deliveries {
		return nil // whose handler looks at its proof
	}
	var err error
	c.who, err = s.cfg.identify(c.r)
	if s.cfg.isPage(c.r) && err != nil { // which is for everyone: the login bounds what it costs
		c.unknown = err
		return nil
	}
	if tooOften := s.guard.admit(c, err); tooOften != nil {
		return tooOften
	}
	return err
}

// identify tells whose a request is. A browser has a cookie in place of a header.
func (cfg Config) identify(r *http.Request) (Identity, error) {
	if cfg.Authenticate == nil {
		return Identity{}, ErrUnauthenticated
	}
	return cfg.Authenticate(withSession(r))
}

// named reports whether a request names this server. A page on a foreign name whose
// address its owner has changed to ours (DNS rebinding) does not.
func (s *Server) named(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || slices.ContainsFunc(s.cfg.Hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	wanted, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return wanted.IsLoopback()
	}
	here, err := netip.ParseAddrPort(local.String())
	return err == nil && here.Addr().Unmap().WithZone("") == wanted.Unmap().WithZone("")
}

// unrouted is the error of a request that has no route, or nil. Paths with .. or // have
// none: the multiplexer would redirect them.
func (s *Server) unrouted(c *call) error {
	clean := path.Clean(c.r.URL.EscapedPath()) == c.r.URL.EscapedPath()
	if _, pattern := s.mux.Handler(c.r); pattern != "" && clean {
		return nil
	}
	var allowed []string
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := *c.r
		other.Method = method
		if _, pattern := s.mux.Handler(&other); pattern != "" && clean && method != c.r.Method {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return refused(jobs.CodeNotFound, "there is no %s; /v1/openapi.json lists what there is", c.r.URL.Path)
	}
	c.Header().Set("Allow", strings.Join(allowed, ", "))
	return refused(codeMethod, "%s takes %s, and not %s", c.r.URL.Path, strings.Join(allowed, " or "), c.r.Method)
}

// permit refuses a route to a role that may not ask for its operation.
func (route Route) permit(who Identity) error {
	if slices.Contains(route.Roles(), who.Role) {
		return nil
	}
	role := "no role"
	if who.Role != "" {
		role = "role " + string(who.Role)
	}
	var may []string
	for _, role := range route.Roles() {
		may = append(may, string(role))
	}
	return refused(jobs.CodeForbidden, "not allowed: %s may not %s %s; %s may", role, route.Method, route.Path, strings.Join(may, ", "))
}

// readBody reads what a request sends, as far as its method sends anything: JSON, which
// may be in an envelope of one of these types.
func (c *call) readBody(envelopes []string) error {
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead || c.r.Method == http.MethodDelete {
		if c.r.ContentLength != 0 {
			return invalid("(body)", "is not read: a request of this method has none")
		}
	} else {
		var err error
		if c.body, err = c.readJSON(envelopes); err != nil {
			return err
		}
	}
	_ = c.control().SetReadDeadline(time.Time{}) // it was for the request
	return nil
}

func (c *call) readJSON(envelopes []string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c, c.r.Body, maxBody))
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refused(jobs.CodeTooLarge, "the body is longer than the %d bytes that are allowed", tooLong.Limit)
	}
	if err != nil {
		return nil, invalid("(body)", "ends too early")
	}
	if len(body) == 0 {
		return nil, nil
	}
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if allowed := append([]string{"application/json"}, envelopes...); err != nil || !slices.Contains(allowed, kind) {
		return nil, refused(codeMediaType, "the body is not said to be %s", strings.Join(allowed, " or "))
	}
	return body, nil
}
