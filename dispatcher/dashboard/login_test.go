package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
)

// A browser without a session gets the login and nothing else, and comes back to where it
// wanted to go; a session ends with its cookie.
func TestLogin(t *testing.T) {
	t.Parallel()
	p := open(t)
	for path, status := range map[string]int{"/": 303, "/ui": 303, "/ui/": 303, "/ui/nowhere": 303, "/ui/static/dashboard.css": 200, "/ui/login": 200} {
		got := p.ask("", "GET "+path, nil)
		if got.status != status || strings.Contains(got.body, "<nav") {
			t.Errorf("a stranger at %s: %d %s", path, got.status, got.body)
		}
	}
	if got := p.ask("", "GET /ui/nowhere?a=b", nil); got.header.Get("Location") != "/ui/login?next="+url.QueryEscape("/ui/nowhere?a=b") {
		t.Errorf("a stranger is sent to %s", got.header.Get("Location"))
	}
	if got := p.ask("", "GET /ui/", nil, "HX-Request", "true"); got.status != http.StatusUnauthorized || got.header.Get("HX-Redirect") != "/ui/login" {
		t.Errorf("htmx gets %d %v", got.status, got.header)
	}
	got := p.ask("", "POST /ui/login", url.Values{"token": {" viewer\n"}, "next": {"/ui/?x=1"}})
	cookie := got.header.Get("Set-Cookie")
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/ui/?x=1" || cookie != "penstock=viewer; Path=/; HttpOnly; SameSite=Strict" {
		t.Fatalf("logged in: %d %v", got.status, got.header)
	}
	if body := p.page("viewer", "/ui/"); !strings.Contains(body, "token-viewer") {
		t.Errorf("the page does not say whose it is: %s", body)
	}
	if got := p.ask("viewer", "GET /v1/version", nil); got.status != http.StatusOK || !strings.Contains(got.body, `"role":"viewer"`) {
		t.Errorf("the API with a cookie: %d %s", got.status, got.body)
	}
	if got := p.ask("viewer", "GET /v1/version", nil, "Authorization", "Bearer wrong"); got.status != http.StatusUnauthorized {
		t.Errorf("a wrong header beside a cookie: %d", got.status)
	}
	got = p.ask("viewer", "POST /ui/logout", nil)
	if got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Set-Cookie"), "penstock=; Path=/; Max-Age=0") {
		t.Errorf("logged out: %d %v", got.status, got.header)
	}
	over := p.ask("", "POST /ui/login", url.Values{"token": {"viewer"}}, "X-Forwarded-Proto", "https")
	if cookie := over.header.Get("Set-Cookie"); cookie != "__Host-penstock=viewer; Path=/; HttpOnly; Secure; SameSite=Strict" {
		t.Errorf("over TLS the cookie is %s", cookie)
	}
	if got := p.ask("viewer", "GET /ui/", nil, "X-Forwarded-Proto", "https"); got.status != http.StatusSeeOther {
		t.Errorf("over TLS a cookie that any page could have set is taken: %d", got.status)
	}
}

// A login leads to pages of ours alone.
func TestLoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	p := open(t)
	for _, next := range []string{
		"https://evil.example/", "//evil.example/ui/", "/\\evil.example/ui/", "/ui/../v1/jobs", "javascript:alert(1)", "/ui/\r\nX: y", "http:/ui/", "/ui/login", "/ui/logout", "/uix", "", "/ui//../../x", "\x00",
	} {
		got := p.ask("", "POST /ui/login", url.Values{"token": {"viewer"}, "next": {next}})
		if got.status != http.StatusSeeOther || got.header.Get("Location") != "/ui/" {
			t.Errorf("%q leads to %d %q", next, got.status, got.header.Get("Location"))
		}
		form := p.ask("", "GET /ui/login?next="+url.QueryEscape(next), nil)
		if !strings.Contains(form.body, `name="next" value="/ui/"`) {
			t.Errorf("the form keeps %q: %s", next, form.body)
		}
	}
}

// Other origins and foreign names reach neither the form nor a page.
func TestLoginOfForeignPages(t *testing.T) {
	t.Parallel()
	p := open(t)
	if got := p.ask("", "POST /ui/login", url.Values{"token": {"viewer"}}, "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden || got.header.Get("Set-Cookie") != "" {
		t.Errorf("a page of another origin logs in: %d %v", got.status, got.header)
	}
	if got := p.ask("operator", "POST /ui/logout", nil, "Sec-Fetch-Site", "same-site"); got.status != http.StatusForbidden {
		t.Errorf("a page of another origin logs out: %d", got.status)
	}
}

// After ten wrong tokens an address waits, whatever it tries next.
func TestGuessing(t *testing.T) {
	t.Parallel()
	p := open(t)
	for i := range 10 {
		if got := p.ask("", "POST /ui/login", url.Values{"token": {"wrong"}}); got.status != http.StatusUnauthorized || !strings.Contains(got.body, "does not accept") || strings.Contains(got.body, "wrong") {
			t.Fatalf("guess %d: %d %s", i, got.status, got.body)
		}
	}
	for _, request := range []string{"POST /ui/login", "GET /ui/login?code=x"} {
		got := p.ask("", request, url.Values{"token": {"viewer"}})
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s after ten guesses: %d %v", request, got.status, got.header)
		}
	}
	if got := p.ask("viewer", "GET /ui/", nil); got.status != http.StatusOK {
		t.Errorf("a session from that address: %d", got.status)
	}
}

// A link logs in once, with the token that asked for it.
func TestLink(t *testing.T) {
	t.Parallel()
	p := open(t)
	if got := p.ask("", "POST /ui/link", nil); got.status != http.StatusSeeOther {
		t.Errorf("a stranger asks for a link: %d", got.status)
	}
	if got := p.ask("viewer", "POST /ui/link", nil); got.status != http.StatusForbidden {
		t.Errorf("a page asks for a link: %d", got.status)
	}
	got := p.ask("", "POST /ui/link", nil, "Authorization", "Bearer operator")
	var link dashboard.Link
	if err := json.Unmarshal([]byte(got.body), &link); err != nil || got.status != http.StatusOK || link.Seconds != 60 || len(link.Path) < 40 {
		t.Fatalf("the link: %d %s %v", got.status, got.body, err)
	}
	p.ask("", "HEAD "+link.Path, nil) // of a program that looks what a link leads to
	used := p.ask("", "GET "+link.Path, nil)
	if used.status != http.StatusOK || !strings.Contains(used.body, `content="0; url=/ui/"`) || !strings.HasPrefix(used.header.Get("Set-Cookie"), "penstock=operator;") {
		t.Errorf("the link: %d %v", used.status, used.header)
	}
	if again := p.ask("", "GET "+link.Path, nil); again.status != http.StatusUnauthorized || again.header.Get("Set-Cookie") != "" {
		t.Errorf("the link again: %d %v", again.status, again.header)
	}
}
