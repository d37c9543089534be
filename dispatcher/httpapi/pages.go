package httpapi

import (
	"net/http"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// pagesPath is where the pages of people are.
const pagesPath = "/ui/"

// isPage reports whether a request is for a page, or for what leads to one.
func (cfg Config) isPage(r *http.Request) bool {
	return cfg.Pages != nil && (strings.HasPrefix(r.URL.Path, pagesPath) || r.URL.Path == "/" || r.URL.Path == "/ui")
}

// servePage answers a request for a page. A stream of one ends with the server.
func (s *Server) servePage(c *call) {
	if !strings.HasPrefix(c.r.URL.Path, pagesPath) {
		http.Redirect(c, c.r, pagesPath, http.StatusSeeOther)
		return
	}
	if c.accepts("text/event-stream") {
		ctx, done := s.untilEnding(c.r.Context())
		defer done()
		c.r = c.r.WithContext(ctx)
	}
	s.cfg.Pages(c, c.r, c.who, c.unknown)
}

// attach hands on a request for a WebSocket, unless the page of another origin has made it:
// it is a GET, and no browser asks whether that may.
func (s *Server) attach(c *call, _ Route) error {
	changing := *c.r
	changing.Method = http.MethodPost
	if err := s.origin.Check(&changing); err != nil {
		return refused(codeCrossOrigin, "%v", err)
	}
	if s.cfg.Attach == nil {
		return refused(jobs.CodeNotFound, "this server has no terminals")
	}
	if err := c.params(nil); err != nil {
		return err
	}
	return s.cfg.Attach(c, c.r, c.who, func() error { _, err := s.cfg.identify(c.r); return err })
}

// sessionName is the name of a browser's cookie. Over TLS a browser lets only this host,
// and no page without TLS, set one of that name.
func sessionName(r *http.Request) string {
	if secure(r) {
		return "__Host-penstock"
	}
	return "penstock"
}

// secure reports whether a browser speaks TLS, to us or to a proxy before us. A client
// that says so and does not harms itself alone.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// SessionCookie returns the cookie that gives a browser's requests a credential, as the
// header Authorization does for other clients. An empty one takes the cookie back.
func SessionCookie(r *http.Request, credential string) *http.Cookie {
	cookie := &http.Cookie{
		Name: sessionName(r), Value: credential, Path: "/", HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode,
	}
	if credential == "" {
		cookie.MaxAge = -1
	}
	return cookie
}

// withSession returns a request as a client without cookies would send it. A header that
// is there counts, and not the cookie.
func withSession(r *http.Request) *http.Request {
	cookie, err := r.Cookie(sessionName(r))
	if err != nil || r.Header.Get("Authorization") != "" {
		return r
	}
	other := r.WithContext(r.Context())
	other.Header = r.Header.Clone()
	other.Header.Set("Authorization", "Bearer "+cookie.Value)
	return other
}
