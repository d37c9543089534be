package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
)

var (
	errorPage = ours("error")
	loginPage = ours("login")
	// enteredPage leads on by itself.
	enteredPage = ours("entered")
)

// themeCookie has the colors that somebody has chosen. It proves nothing.
const themeCookie = "penstock-theme"

// loginForm is the dot of the login.
type loginForm struct {
	Next  string
	Error string
}

// login shows the form, or takes a link that works once.
func (s *Server) login(v *Visit) error {
	query := v.R.URL.Query()
	if code := query.Get("code"); code != "" && v.R.Method == http.MethodGet {
		return s.enterByLink(v, code)
	}
	return v.Render(loginPage, Page{Title: "Log in", Data: loginForm{Next: local(query.Get("next"))}})
}

// logIn checks the token of the form.
func (s *Server) logIn(v *Visit) error {
	form := loginForm{Next: local(v.R.PostFormValue("next"))}
	if wait := s.guess.blocked(v.R.RemoteAddr, time.Now()); wait > 0 {
		return v.refuseLogin(http.StatusTooManyRequests, wait, form, "Too many tokens were refused from this address. Try again in "+took(wait)+".")
	}
	credential := strings.TrimSpace(v.R.PostFormValue("token"))
	_, err := s.cfg.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer " + credential}}})
	switch {
	case errors.Is(err, httpapi.ErrUnauthenticated):
		s.guess.failed(v.R.RemoteAddr, time.Now())
		return v.refuseLogin(http.StatusUnauthorized, 0, form, "The pool does not accept this token.")
	case err != nil:
		return err
	}
	return v.enter(credential, form.Next)
}

// enter gives the browser its cookie.
func (v *Visit) enter(credential, next string) error {
	http.SetCookie(v, httpapi.SessionCookie(v.R, credential))
	return v.Redirect(next)
}

func (v *Visit) refuseLogin(status int, wait time.Duration, form loginForm, why string) error {
	if wait > 0 {
		v.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	form.Error = why
	return v.Render(loginPage, Page{Title: "Log in", Status: status, Data: form})
}

// logOut takes the cookie back. The token stays: it is removed by penstock token rm.
func (s *Server) logOut(v *Visit) error {
	http.SetCookie(v, httpapi.SessionCookie(v.R, ""))
	http.Redirect(v, v.R, "/ui/login?done=logged-out", http.StatusSeeOther)
	return nil
}

// makeLink answers a program with a path that logs in a browser with the program's own
// token, once.
func (s *Server) makeLink(v *Visit) error {
	_, credential, _ := strings.Cut(v.R.Header.Get("Authorization"), " ")
	if credential == "" {
		return &jobs.CodedError{Code: jobs.CodeForbidden, Message: "not allowed: a link is made for a token, which the request has in its header Authorization"}
	}
	v.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(v).Encode(Link{Path: "/ui/login?code=" + s.links.add(credential, time.Now()), Seconds: int(linkTime / time.Second)})
}

// A Link is the answer to POST /ui/link.
type Link struct {
	Path    string `json:"path"`    // which a browser opens on this server, once
	Seconds int    `json:"seconds"` // how long it works
}

// enterByLink takes the code of a link.
func (s *Server) enterByLink(v *Visit, code string) error {
	if wait := s.guess.blocked(v.R.RemoteAddr, time.Now()); wait > 0 {
		return v.refuseLogin(http.StatusTooManyRequests, wait, loginForm{Next: "/ui/"}, "Too many tokens were refused from this address. Try again in "+took(wait)+".")
	}
	credential, ok := s.links.take(code, time.Now())
	if !ok {
		s.guess.failed(v.R.RemoteAddr, time.Now())
		return v.refuseLogin(http.StatusUnauthorized, 0, loginForm{Next: "/ui/"}, "This link was used already, or is too old. Run penstock ui again for another one.")
	}
	// Where another site or program has led to the link, the browser keeps the cookie from
	// a redirect. A page of ours may lead on.
	http.SetCookie(v, httpapi.SessionCookie(v.R, credential))
	return v.Render(enteredPage, Page{Title: "Logged in"})
}

// theme is what a cookie says of the colors.
func theme(r *http.Request) string {
	if cookie, err := r.Cookie(themeCookie); err == nil && (cookie.Value == "light" || cookie.Value == "dark") {
		return cookie.Value
	}
	return ""
}

// setTheme keeps the colors that were chosen.
func setTheme(v *Visit) error {
	cookie := &http.Cookie{Name: themeCookie, Value: v.R.PostFormValue("theme"), Path: "/ui/", MaxAge: 365 * 24 * 3600, SameSite: http.SameSiteStrictMode, HttpOnly: true, Secure: v.R.TLS != nil}
	if cookie.Value != "light" && cookie.Value != "dark" {
		cookie.Value, cookie.MaxAge = "", -1
	}
	http.SetCookie(v, cookie)
	back := v.R.PostFormValue("back")
	if v.refused != nil {
		http.Redirect(v, v.R, "/ui/login", http.StatusSeeOther)
		return nil
	}
	return v.Redirect(back)
}
