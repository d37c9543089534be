// Package inside is the API of a worker for the programs in a jail: they store files,
// set the job's result, and report milestones, ask questions and use terminals.
//
//	command penstock in the jail ──HTTP──▶ Server ──▶ Handlers of the attempt
//	(Client)                        (checks, counts)
//
// Every client is the agent, which is hostile. The server trusts nothing: each request
// is bounded in size, number and rate, and names consist of listed characters. The
// worker never opens a file by a name from a request: contents arrive as bytes. The
// server shuts for good if a client keeps exceeding the rate.
//
//	POST /v1/milestones        {"text":…}
//	PUT  /v1/artifacts/NAME    the file's bytes
//	PUT  /v1/result            JSON
//	POST /v1/asks              {"question":…,"options":[…],"timeout":"5m"}; the response waits for the answer
//	POST /v1/terminals         {"verb":…}, as [terminal.Request], and "wait":"5s"
//
// The environment of the jail has one URL with the address and a token. A request
// without the token is refused, and does not count.
package inside

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// Limits on the requests of one attempt.
const (
	MaxText          = 4 << 10   // of a milestone, and of a question
	MaxResult        = 64 << 10  // of a result
	MaxArtifact      = 256 << 20 // of one artifact
	MaxArtifactBytes = 512 << 20 // of all of them, including those that failed
	MaxArtifacts     = 100
	MaxMilestones    = 1000
	MaxResults       = 100 // how often it may be set
	MaxAsks          = 100
	MaxOpen          = 4 // questions at once
)

// An Ask is a question of a program in a jail. Timeout bounds how long it waits;
// zero leaves that to the job's idle_timeout.
type Ask struct {
	control.Question
	Timeout jobs.Duration `json:"timeout,omitempty"`
}

// An Answer is the outcome of an Ask. Text is the answer, or why there is none.
type Answer struct {
	How  string `json:"how"` // answered declined expired
	Text string `json:"text"`
}

// Unanswered is what a program gets whose question has had no answer in time.
var Unanswered = Answer{How: "expired", Text: "the question was not answered"}

// A RefusedError is a request without effect.
type RefusedError struct {
	Code    string `json:"code"` // invalid, too_large, too_many, forbidden, over or lost
	Message string `json:"message"`
}

func (e *RefusedError) Error() string { return e.Message }

// Refuse makes a RefusedError.
func Refuse(code, format string, args ...any) *RefusedError {
	return &RefusedError{code, fmt.Sprintf(format, args...)}
}

// status is the status of HTTP for a refusal's code.
func (e *RefusedError) status() int {
	switch e.Code {
	case "invalid":
		return http.StatusBadRequest
	case "too_large":
		return http.StatusRequestEntityTooLarge
	case "too_many":
		return http.StatusTooManyRequests
	case "forbidden":
		return http.StatusForbidden
	case "over":
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// refusal is the body of the answer to a refused request.
type refusal struct {
	Error *RefusedError `json:"error"`
}

type milestone struct {
	Text string `json:"text"`
}

func encode(v any) []byte {
	data, _ := json.Marshal(v) // our own structs
	return append(data, '\n')
}
