// Package operation is the table of what can be asked of a pool: one row for each
// request, with its types, the roles that may make it, and what it changes.
//
//	client ──request──▶ <prefix>.api.<name> ──▶ dispatcher ──▶ answer, or [Refusal]
//
// Everything that lists requests is made from this table: the subjects that a
// dispatcher serves, the permissions of the roles, the schemas and the reference
// page. A request and its answer are one JSON object each. A request with a field
// that its type does not have is refused, with the field named. Lists come in
// pages: an answer that has Next continues with the request that has it as After.
// The package holds values only.
package operation

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// Headers of requests.
const (
	// CallerHeader says, in a word, which program makes the request: cli, batch. It is
	// kept with what the request changes, for people who ask who did that; nothing is
	// allowed or refused by it.
	CallerHeader = "Penstock-By"
	// JobIDHeader is the id that the job of a request to submit, fork or schedule-run is
	// to have, a UUIDv7 that the submitter has chosen. So the submitter may send the
	// request again when it has heard no answer, and there is one job. Plain publishes have it, too, since their acknowledgement
	// cannot tell an id.
	JobIDHeader = "Penstock-Job-Id"
)

// A Row says of one operation what every interface needs to know.
type Row struct {
	Name     string // the last token of its subject
	Sentence string
	// Roles lists the roles that may ask for it, besides the operator, who may
	// ask for everything.
	Roles   []jobs.Role
	Changes bool
	// Waits: it may take as long as the request allows, up to [MaxWait].
	Waits bool
	// About, if not nil, names what a request is about. Requests about one thing
	// are answered one after the other, in the order in which they came.
	About           func(request []byte) string
	Request, Answer reflect.Type

	what string // names the request in a refusal; empty: a request
}

// Allows reports whether a role may ask for the operation.
func (r Row) Allows(role jobs.Role) bool { return role.All() || slices.Contains(r.Roles, role) }

// An Operation is a row with its types.
type Operation[Q, A any] struct {
	Row
	check func(Q) error
}

var all []Row

// All returns the table, in the order in which the reference lists it.
func All() []Row { return slices.Clone(all) }

// A request says what is wrong with it.
type request interface{ check() error }

// define adds a row to the table.
func define[Q request, A any](row Row) Operation[Q, A] { return add[Q, A](row, Q.check) }

// defineDocument adds a row to the table whose request is a document of the pool, which is
// validated where it is kept.
func defineDocument[Q, A any](row Row) Operation[Q, A] {
	return add[Q, A](row, func(Q) error { return nil })
}

func add[Q, A any](row Row, check func(Q) error) Operation[Q, A] {
	row.Request, row.Answer = reflect.TypeFor[Q](), reflect.TypeFor[A]()
	all = append(all, row)
	return Operation[Q, A]{row, check}
}

// maxRequest is the payload of a message that a broker takes by default. What a request
// holds, a job or a message to a session, has bounds of its own.
const maxRequest = 1 << 20

// Decode reads a request and checks it. Every error is a [*jobs.InvalidError].
func (o Operation[Q, A]) Decode(data []byte) (Q, error) {
	var request Q
	if len(data) > 0 {
		err := jobs.DecodeBounded(data, &request, maxRequest)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok && o.what != "job" {
			invalid.What = cmp.Or(o.what, "request")
		}
		if err != nil {
			return request, err
		}
	}
	return request, o.check(request)
}

// A Refusal is the answer to a request that was not fulfilled. Fields is
// there when the request itself was at fault.
type Refusal struct {
	Error RefusalError `json:"error" jsonschema:"Why the request was not fulfilled."`
}

// A RefusalError says why a request was not fulfilled.
type RefusalError struct {
	Code    jobs.ErrorCode    `json:"code" jsonschema:"The code, for programs."`
	Message string            `json:"message" jsonschema:"What is wrong, for people."`
	Fields  []jobs.FieldError `json:"fields,omitempty" jsonschema:"The fields of the request that are wrong."`
	What    string            `json:"what,omitempty" jsonschema:"What is invalid, if it is not a job."` // what is invalid, if it is not a job
}

// Refuse makes the refusal of an error.
func Refuse(err error) Refusal {
	r := RefusalError{Code: jobs.Code(err), Message: err.Error()}
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
		r.Fields, r.What = invalid.Fields, invalid.What
	} else if field, ok := errors.AsType[*jobs.FieldError](err); ok {
		r.Fields, r.What = []jobs.FieldError{*field}, "request"
	}
	return Refusal{r}
}

// Err returns the error that the refusal was made of, as far as its code and its
// fields tell: errors.Is and errors.As find the same in it.
func (r Refusal) Err() error {
	err := &jobs.CodedError{Code: r.Error.Code, Message: r.Error.Message}
	switch {
	case len(r.Error.Fields) > 0:
		err.Cause = &jobs.InvalidError{Fields: r.Error.Fields, What: r.Error.What}
	case slices.Contains(control.Refusals, control.Refusal(r.Error.Code)):
		err.Cause = control.Refuse(control.Refusal(r.Error.Code), "%s", r.Error.Message)
	}
	return err
}

// aboutJob names the job of a request: what is sent to one agent arrives in the
// order in which it was sent, and other agents' messages do not wait for it.
func aboutJob(data []byte) string {
	var request Ref
	_ = json.Unmarshal(data, &request) // the handler refuses what cannot be read
	return request.ID
}
