package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A Problem is the answer to a request that was not fulfilled: application/problem+json
// of RFC 9457.
type Problem struct {
	Type      string            `json:"type" jsonschema:"Where the documentation says more about the code."`
	Title     string            `json:"title" jsonschema:"What the code means."`
	Status    int               `json:"status" jsonschema:"The status of the answer."`
	Detail    string            `json:"detail" jsonschema:"What is wrong, for people."`
	Code      jobs.ErrorCode    `json:"code" jsonschema:"The code, for programs."`
	Fields    []jobs.FieldError `json:"fields,omitempty" jsonschema:"The fields, parameters or headers of the request that are wrong."`
	Hint      string            `json:"hint,omitempty" jsonschema:"What to do about it."`
	RequestID string            `json:"request_id" jsonschema:"The id of the request, for those who search the server's log for it."`
}

// docs is where the reference of the routes is.
const docs = "https://penstock.run/docs/reference/http#"

// Codes of conditions that only HTTP has.
const (
	codeUnauthenticated jobs.ErrorCode = "unauthenticated"
	codeCrossOrigin     jobs.ErrorCode = "cross_origin"
	codeMethod          jobs.ErrorCode = "method_not_allowed"
	codeMediaType       jobs.ErrorCode = "unsupported_media_type"
	codeMisdirected     jobs.ErrorCode = "misdirected"
	codeChanged         jobs.ErrorCode = "changed"
	codeTooMany         jobs.ErrorCode = "too_many_requests"
)

// ErrUnauthenticated says that a request has no credential, or a wrong one.
var ErrUnauthenticated error = &jobs.CodedError{Code: codeUnauthenticated, Message: "no credential, or one that is not valid"}

// A codeStatus is the row of an error code.
type codeStatus struct {
	code   jobs.ErrorCode
	status int
	hint   string
	title  string // empty: what package jobs says
}

// statuses is the one table from codes to statuses, in the order in which the reference
// lists them.
var statuses = []codeStatus{
	{code: jobs.CodeInvalid, status: 400, hint: "correct the fields; /v1/openapi.json says what each may be"},
	{code: jobs.CodeAmbiguous, status: 409, hint: "use more characters of the id"},
	{code: jobs.CodeNotFound, status: 404},
	{code: jobs.CodeExists, status: 409, hint: "take another name, or remove what has it first"},
	{code: jobs.CodeFinished, status: 409, hint: "retry, resume and fork bring a finished job back"},
	{code: jobs.CodeNotFinished, status: 409, hint: "/v1/jobs/{id}/wait waits for its end"},
	{code: jobs.CodeNotRetryable, status: 409, hint: "resume and fork go on from a job that succeeded"},
	{code: jobs.CodeForbidden, status: 403, hint: "use a credential of a role that may"},
	{code: jobs.CodeFull, status: 507, hint: "repeat the request when the broker has room"},
	{code: jobs.CodeQuota, status: 403, hint: "repeat the request when some jobs have ended, or were purged; serve --quota allows more"},
	{code: jobs.CodeTooLarge, status: 413, hint: "send less, or ask for less with limit"},
	{code: jobs.CodeUnavailable, status: 503, hint: "repeat the request; penstock serve must run, and reach its broker"},
	{code: jobs.CodeInternal, status: 500, hint: "the log of penstock serve may say more"},
	{code: jobs.CodeNotReady, status: 409, hint: "/v1/jobs/{id}/why says what the job waits for"},
	{code: jobs.CodeOver, status: 409, hint: "resume continues the conversation once the job has finished"},
	{code: jobs.CodeCannot, status: 422},
	{code: jobs.CodeNothing, status: 409},
	{code: jobs.CodeUnfit, status: 422},
	{code: jobs.CodeBusy, status: 503, hint: "repeat the request"},
	{code: jobs.CodeLost, status: 503, hint: "repeat the request"},
	{code: codeUnauthenticated, status: 401, title: "The request has no credential, or one that is not valid.", hint: "send Authorization: Bearer with a token; the file http-token in the data directory of penstock serve has one"},
	{code: codeCrossOrigin, status: 403, title: "A page of another origin has sent the request."},
	{code: codeMethod, status: 405, title: "The path does not take this method."},
	{code: codeMediaType, status: 415, title: "The body is not said to be JSON.", hint: "send Content-Type: application/json; curl --json does"},
	{code: codeTooMany, status: 429, title: "Requests come too soon after each other.", hint: "wait as long as Retry-After says; serve --http-rate allows more"},
	{code: codeChanged, status: 409, title: "More jobs are selected than may be changed.", hint: "count them again with dry_run=true"},
	{code: codeMisdirected, status: 421, title: "The request names a host that the server is not.", hint: "serve --http-host NAME lets it be reached by that name"},
}

// Problems lists what each code is answered with, in the order of the reference.
func Problems() []Problem {
	var all []Problem
	for _, row := range statuses {
		all = append(all, row.problem())
	}
	return all
}

func (row codeStatus) problem() Problem {
	return Problem{Type: docs + string(row.code), Title: row.meaning(), Status: row.status, Code: row.code, Hint: row.hint}
}

// rowOf returns the row of a code.
func rowOf(code jobs.ErrorCode) codeStatus {
	at := slices.IndexFunc(statuses, func(row codeStatus) bool { return row.code == code })
	if at < 0 {
		return codeStatus{code: jobs.CodeInternal, status: http.StatusInternalServerError}
	}
	return statuses[at]
}

// meaning says what the code means.
func (row codeStatus) meaning() string {
	if row.title != "" {
		return row.title
	}
	for _, known := range jobs.ErrorCodes {
		if known.Code == row.code {
			return known.Meaning
		}
	}
	return "The server met an error."
}

// ProblemOf makes the answer to a request that was not fulfilled.
func ProblemOf(err error, request string) Problem {
	p, refusal := rowOf(jobs.Code(err)).problem(), operation.Refuse(err).Error
	p.Detail, p.Fields, p.RequestID = refusal.Message, refusal.Fields, request
	return p
}

// refuse answers a request with a problem.
func (s *Server) refuse(c *call, err error) {
	p := ProblemOf(err, c.id)
	if p.Status >= http.StatusInternalServerError {
		s.cfg.Logger.Warn("a request was not fulfilled", "request", c.id, "method", c.r.Method, "route", c.r.Pattern, "code", p.Code, "err", err)
	}
	switch p.Status {
	case http.StatusUnauthorized:
		c.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		c.Header().Set("Retry-After", "1")
	}
	body, failed := json.Marshal(p)
	if failed != nil {
		panic(failed) // it is text and numbers
	}
	c.Header().Set("Content-Type", "application/problem+json")
	c.WriteHeader(p.Status)
	_, _ = c.Write(append(body, '\n')) // if this fails the client is gone
}

// refuseStranger answers a request that was not admitted, and ends its connection: what
// else it sends is not read.
func (s *Server) refuseStranger(c *call, err error) {
	_ = c.control().SetReadDeadline(time.Now().Add(strangerTime)) // every connection of ours has one
	c.Header().Set("Connection", "close")
	s.refuse(c, err)
}

// invalid is the error of a request with one wrong field.
func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// refused is an error with a code.
func refused(code jobs.ErrorCode, form string, args ...any) error {
	return &jobs.CodedError{Code: code, Message: fmt.Sprintf(form, args...)}
}
