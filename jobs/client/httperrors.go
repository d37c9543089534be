package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// ErrUnauthenticated says that an HTTP server has refused the token, or wants one.
var ErrUnauthenticated = fmt.Errorf("%w: no token, or one that is not valid", jobs.ErrForbidden)

// A ForeignServerError says that a server does not answer as Penstock does.
type ForeignServerError struct {
	Server string
	Answer string // what it answers, in words
}

func (e *ForeignServerError) Error() string {
	return fmt.Sprintf("server %s does not answer as penstock serve does: %s", e.Server, e.Answer)
}

// unsent is the error of a request that got no answer. A server that is not there has
// taken nothing; what became of the request is open otherwise.
func (w *web) unsent(c call, err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok { // it names the address, which is our own affair
		err = outer.Err
	}
	network, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("ask to %s: %w", c.row.Name, err)
	case ok && network.Op == "dial":
		return fmt.Errorf("%w %s: server %s: %w", ErrNoDispatcher, c.row.Name, w.base, err)
	case untrusted(err):
		return fmt.Errorf("server %s: %w", w.base, err)
	}
	return noAnswer(c, err)
}

// untrusted reports whether client and server have found no way to speak: asking again
// does not change that.
func untrusted(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	network, ok := errors.AsType[*net.OpError](err)
	return unverified || ok && network.Op == "remote error" || errors.Is(err, http.ErrSchemeMismatch)
}

// A problem is the answer to a request that was not fulfilled, as RFC 9457 has it.
type problem struct {
	Detail string            `json:"detail"`
	Code   jobs.ErrorCode    `json:"code"`
	Fields []jobs.FieldError `json:"fields"`
}

// refusal returns the error that an answer tells, or nil if the request was fulfilled.
func (w *web) refusal(answer *http.Response) error {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // the zero value is another type
	fulfilled := answer.StatusCode >= 200 && answer.StatusCode < 300
	if fulfilled && kind != "text/html" {
		return nil
	}
	beginning, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20)) // an answer that is cut is one without a problem
	var told problem
	if answer.StatusCode == http.StatusTooManyRequests {
		return tooSoon(answer)
	}
	if kind == "application/problem+json" && json.Unmarshal(beginning, &told) == nil && told.Code != "" {
		return told.err(w.base)
	}
	switch answer.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // a proxy whose server is away
		return fmt.Errorf("%w: what answers for %s says %s", jobs.ErrUnavailable, w.base, answer.Status)
	}
	return &ForeignServerError{w.base, describe(answer, kind, beginning)}
}

// A tooSoonError says that a server takes no request of ours for a while. It has done
// nothing.
type tooSoonError struct {
	after time.Duration
	error // with its code
}

func (e *tooSoonError) Unwrap() error { return e.error }

func tooSoon(answer *http.Response) error {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		seconds = 1
	}
	return &tooSoonError{min(time.Duration(seconds)*time.Second, answerWithin), &jobs.CodedError{
		Code: jobs.CodeBusy, Message: "requests come too soon after each other: the server takes the next one after " + strconv.Itoa(seconds) + " s",
	}}
}

// spaced does what asks a server, again where that came too soon.
func spaced(ctx context.Context, ask func() error) error {
	for began := time.Now(); ; {
		err := ask()
		soon, ok := errors.AsType[*tooSoonError](err)
		if !ok || time.Since(began) > answerWithin {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(soon.after):
		}
	}
}

func (p problem) err(server string) error {
	if p.Code == "unauthenticated" {
		return fmt.Errorf("%w: server %s", ErrUnauthenticated, server)
	}
	return operation.Refusal{Error: operation.RefusalError{Code: p.Code, Message: p.Detail, Fields: p.Fields, What: "request"}}.Err()
}

// describe says in a line what a server has answered that is no Penstock.
func describe(answer *http.Response, kind string, beginning []byte) string {
	if to := answer.Header.Get("Location"); to != "" {
		return fmt.Sprintf("%s, to %s", answer.Status, printable(to))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(beginning)), "\n")
	switch {
	case kind == "text/html":
		return answer.Status + ", a page for browsers"
	case (kind == "text/plain" || kind == "") && line != "":
		return answer.Status + ", " + printable(line)
	}
	return answer.Status
}

// printable is the beginning of a text, without what a terminal would obey.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
	return fmt.Sprintf("%.200s", text)
}
