// Package forge opens pull requests on GitHub, GitLab, Gitea and Forgejo.
//
//	address of a repository ─▶ which forge has it, and under which name
//	Find ─▶ Create | Update ─▶ Decorate
//
// Each forge holds the credential of the pool and sends it to the host of its own
// settings, nowhere else. No method tries a request again: the caller decides, by the kind
// of the [Error], and by Find, which tells whether a request that was lost had arrived.
package forge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Change is what a pull request asks to merge.
type Change struct {
	Repo  string // its name on the forge, of [Place]
	Head  string // the branch, in the same repository
	Base  string // the branch that it is for; empty: the default branch
	Title string
	Body  string
}

// A Pull is a pull request that there is.
type Pull struct {
	Number int
	URL    string // its page
	Body   string
}

// Kind says what a caller can do about an [Error].
type Kind string

// The kinds of errors.
const (
	Away     Kind = "away"     // the forge did not answer, or is broken: another try may succeed
	Busy     Kind = "busy"     // too many requests: none before Wait has passed
	Denied   Kind = "denied"   // the credential is not valid
	Missing  Kind = "missing"  // the repository is not there, or the credential has no right to it
	Conflict Kind = "conflict" // there is one already, or there is nothing to merge: Find tells
	Invalid  Kind = "invalid"  // the forge does not understand it
)

// An Error says why a forge did not do what it was asked for. It has no credential in it.
type Error struct {
	Kind    Kind
	Status  int // of the answer; 0: there was none
	Message string
	Wait    time.Duration // of Busy
}

func (e *Error) Error() string { return e.Message }

// What a request may take, and how much of an answer is read.
const (
	answerWithin = 30 * time.Second
	maxAnswer    = 8 << 20
	// busyWait is for forges that do not say how long to wait, and maxWait for those that say
	// too much.
	busyWait = time.Minute
	maxWait  = 24 * time.Hour
)

// A place is where a forge is: of its API, and of its repositories.
type place struct {
	api   *url.URL
	hosts []string // of repositories, as their addresses name them, with the port where it is not the scheme's
	path  string   // that repositories' paths begin with
	depth int      // how many groups may be around a repository; 0: any number
}

// segment is a part of a repository's name.
var segment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,255}$`) })

// scpLike is the address of git's own for ssh.
var scpLike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:[^@/:]+@)?([^@/:]+):([^:]+)$`) })

// Repository returns the name under which the forge has the repository with an address,
// and whether it is one of this forge.
func (p place) Repository(address string) (name string, ok bool) {
	host, path := "", ""
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host, path = u.Host, u.Path
		if u.Scheme == "ssh" {
			host = u.Hostname() // the port is that of ssh, and says nothing
		}
		path = strings.TrimPrefix(path, p.path)
	} else if found := scpLike().FindStringSubmatch(address); found != nil {
		host, path = found[1], found[2]
	}
	if !p.has(host) {
		return "", false
	}
	name = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	parts := strings.Split(name, "/")
	if len(parts) < 2 || p.depth > 0 && len(parts) != p.depth+1 {
		return "", false
	}
	for _, part := range parts {
		if !segment().MatchString(part) || part == "." || part == ".." {
			return "", false
		}
	}
	return name, true
}

func (p place) has(host string) bool {
	for _, h := range p.hosts {
		bare, _, err := net.SplitHostPort(h)
		if strings.EqualFold(h, host) || err == nil && strings.EqualFold(bare, host) {
			return true
		}
	}
	return false
}

// A secret returns a credential. It is asked before each request, so that a file may change.
type secret func() (string, error)

// secretOf reads a file, or has the value itself; nil: there is neither.
func secretOf(value, file string) secret {
	switch {
	case file != "":
		return func() (string, error) {
			data, err := os.ReadFile(file)
			if err == nil && len(strings.TrimSpace(string(data))) == 0 {
				err = errors.New("it is empty")
			}
			if err != nil {
				return "", &Error{Kind: Denied, Message: fmt.Sprintf("credential file %s: %v", file, err)}
			}
			return strings.TrimSpace(string(data)), nil
		}
	case value != "":
		return func() (string, error) { return value, nil }
	}
	return nil
}

// A signer puts the credential into the requests to one host, and bounds the answers.
type signer struct {
	host string
	put  func(ctx context.Context, h http.Header) error
	next http.RoundTripper
}

// RoundTrip is that of [http.RoundTripper].
func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == s.host { // and not where an answer leads to
		r = r.Clone(r.Context())
		if err := s.put(r.Context(), r.Header); err != nil {
			return nil, err
		}
	}
	got, err := s.next.RoundTrip(r)
	if err == nil {
		got.Body = bounded{io.LimitReader(got.Body, maxAnswer), got.Body}
	}
	return got, err
}

type bounded struct {
	io.Reader
	io.Closer
}

// doer returns a client that sends a credential to the host of an API.
func (p place) doer(put func(ctx context.Context, h http.Header) error) *http.Client {
	next := http.RoundTripper(http.DefaultTransport)
	return &http.Client{Timeout: answerWithin, Transport: signer{host: p.api.Host, put: put, next: next}}
}

// lost is the error of a request without an answer.
func lost(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the address, which may be long
	}
	return &Error{Kind: Away, Message: fmt.Sprintf("no answer: %v", err)}
}

// refusal is the error of an answer: limited says that it names a limit itself.
func refusal(got *http.Response, message string, limited bool) error {
	e := &Error{Status: got.StatusCode, Message: fmt.Sprintf("%s %s answered %d: %s", got.Request.Method, got.Request.URL.Path, got.StatusCode, message)}
	switch code := got.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusForbidden && (limited || got.Header.Get("Retry-After") != "" || got.Header.Get("X-RateLimit-Remaining") == "0"):
		e.Kind, e.Wait = Busy, wait(got.Header, time.Now())
	case code >= 500:
		e.Kind = Away
	case code == http.StatusUnauthorized:
		e.Kind = Denied
	case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone, code == http.StatusUnavailableForLegalReasons:
		e.Kind = Missing
	case code == http.StatusConflict, code == http.StatusUnprocessableEntity:
		e.Kind = Conflict
	default:
		e.Kind = Invalid
	}
	return e
}

// wait is how long an answer asks to wait: in seconds, until a date, or until a limit is
// whole again.
func wait(h http.Header, now time.Time) time.Duration {
	asked := busyWait
	after := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil {
		asked = time.Duration(min(max(seconds, 1), int(maxWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		asked = at.Sub(now)
	} else {
		for _, name := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} {
			if unix, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil && unix > 0 {
				asked = time.Unix(unix, 0).Sub(now) + time.Second
			}
		}
	}
	return min(max(asked, time.Second), maxWait)
}
