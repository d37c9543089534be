package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
)

// HTTPConfig names a pool by its HTTP interface, and the caller by its token.
type HTTPConfig struct {
	// Server is the address: https://host, with a port if it is another one than 443.
	// http:// is for this host alone, since tokens could be read on the way to others.
	Server string
	Token  string
	TLS    *tls.Config // nil: the authorities of the system
	By     string      // as in [Config]
}

const (
	// maxAnswer bounds what is read of an answer: a page holds a thousand entries.
	maxAnswer = 256 << 20
	// maxSilence is how long a stream or a file may say nothing before its connection is
	// taken for lost. A server writes to a quiet stream every 15 seconds.
	maxSilence = 45 * time.Second
)

// web is the transport over HTTP.
type web struct {
	base  string // the address, without a path
	token string
	http  *http.Client
}

// OpenHTTP returns a client of a pool's HTTP interface. It asks the server who it is, and
// which role the token has there. Close the client.
func OpenHTTP(ctx context.Context, cfg HTTPConfig) (*Client, error) {
	cfg.By = cmp.Or(cfg.By, "client")
	if err := jobs.CheckToken("by", cfg.By); err != nil {
		return nil, err
	}
	base, err := ServerAddress(cfg.Server)
	if err != nil {
		return nil, err
	}
	dial := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	w := &web{base: base, token: cfg.Token, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: cfg.TLS, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, // shorter than the server's
			ResponseHeaderTimeout: 2 * answerWithin,
			DisableCompression:    true, // proxies that compress hold back what is to come at once
		},
		// What another place gets with the token is not for us to decide.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var server struct {
		Version string    `json:"version"`
		Role    jobs.Role `json:"role"`
	}
	limited, done := context.WithTimeout(ctx, answerWithin)
	defer done()
	answer, err := w.once(limited, call{row: operation.Row{Name: "version"}}, route.Version, nil, nil)
	if err == nil && (json.Unmarshal(answer, &server) != nil || server.Role == "") {
		err = &ForeignServerError{base, "what it answers has no role"}
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return newClient(Config{Role: server.Role, By: cfg.By}, w), nil
}

func (w *web) close() { w.http.CloseIdleConnections() }

// ServerAddress checks the address of an HTTP interface, and returns it as it is used.
func ServerAddress(address string) (string, error) {
	u, err := url.Parse(address)
	wrong := func(reason string) error {
		return &jobs.InvalidError{What: "address", Fields: []jobs.FieldError{{Field: "server", Reason: reason}}}
	}
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return "", wrong("is not written as https://host or https://host:port")
	case u.User != nil:
		return "", wrong("has a user: a token is what opens an HTTP server")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", wrong("has a path: leave it out")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "", wrong("is http:// on another host: the token could be read on the way, so write https://")
	}
	return u.Scheme + "://" + u.Host, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w *web) request(ctx context.Context, c call, body json.RawMessage) (json.RawMessage, error) {
	r := route.Of(c.row)
	if r.Method == "" {
		return nil, fmt.Errorf("%s has no route over HTTP", c.row.Name)
	}
	var fields map[string]json.RawMessage
	if !r.TakesBody() || len(r.Wildcards()) > 0 { // else the body is all, and may be whatever it is
		var err error
		if fields, err = fieldsOf(body); err != nil {
			return nil, err
		}
	}
	answer, err := w.send(ctx, c, r, fields, body)
	if err == nil && c.row.Name == operation.Patch.Name { // which is a file over HTTP
		return json.Marshal(operation.PatchContent{Patch: answer})
	}
	return answer, err
}

// send makes a request, again while no server is there to have taken it.
func (w *web) send(ctx context.Context, c call, r route.Route, fields map[string]json.RawMessage, body []byte) ([]byte, error) {
	began := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		var answer []byte
		err := spaced(ctx, func() (err error) {
			limited, done := context.WithTimeout(ctx, c.within)
			defer done()
			answer, err = w.once(limited, c, r, fields, body)
			return err
		})
		if !errors.Is(err, ErrNoDispatcher) || time.Since(began) > comingUp {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

func (w *web) once(ctx context.Context, c call, r route.Route, fields map[string]json.RawMessage, body []byte) ([]byte, error) {
	request, err := w.newRequest(ctx, r, fields, body)
	if err != nil {
		return nil, err
	}
	if c.jobID != "" {
		request.Header.Set(operation.JobIDHeader, c.jobID)
	}
	c.trace.Put(request.Header.Set)
	answer, err := w.http.Do(request)
	if err != nil {
		return nil, w.unsent(c, err)
	}
	defer answer.Body.Close() // what it returns says nothing of what was read
	if err := w.refusal(answer); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, noAnswer(c, err)
	case len(content) > maxAnswer:
		return nil, &jobs.CodedError{Code: jobs.CodeTooLarge, Message: fmt.Sprintf("the answer to %s has more than %d bytes: ask for less", c.row.Name, maxAnswer)}
	}
	return content, nil
}

// newRequest makes the request of a route: fields that its path names stand there, the
// others in the query, or in the body.
func (w *web) newRequest(ctx context.Context, r route.Route, fields map[string]json.RawMessage, body []byte) (*http.Request, error) {
	target, err := address(r, fields)
	if err != nil {
		return nil, err
	}
	var content io.Reader
	if r.TakesBody() {
		content = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, w.base+target, content)
	if err != nil {
		return nil, err
	}
	if r.TakesBody() {
		request.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	return request, nil
}

// fieldsOf are the fields of a request.
func fieldsOf(body []byte) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(body) > 0 && json.Unmarshal(body, &fields) != nil {
		return nil, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "(request)", Reason: "is not an object in JSON"}}}
	}
	return fields, nil
}

// address is the path of a request, with its query.
func address(r route.Route, fields map[string]json.RawMessage) (string, error) {
	inPath, target := r.Wildcards(), r.Path
	for _, name := range inPath {
		value := text(fields[name])
		if value == "" || value == "." || value == ".." { // as names of parts of a path these mean another path
			return "", &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: name, Reason: "is missing: it names what the request is about"}}}
		}
		target = strings.NewReplacer("{"+name+"}", url.PathEscape(value), "{"+name+"...}", escapeParts(value)).Replace(target)
	}
	query := url.Values{}
	for name, value := range fields {
		var list []json.RawMessage
		switch {
		case r.TakesBody() || slices.Contains(inPath, name) || string(value) == "null":
		case json.Unmarshal(value, &list) == nil:
			for _, part := range list {
				query.Add(name, text(part))
			}
		default:
			query.Set(name, text(value))
		}
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target, nil
}

// escapeParts escapes the parts of a path, and not what is between them.
func escapeParts(value string) string {
	parts := strings.Split(value, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// text is a value as a query has it.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
