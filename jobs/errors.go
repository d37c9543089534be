package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Conditions that more than one package checks for.
var (
	// ErrNotFound: no job, session, batch or artifact has that name.
	ErrNotFound = errors.New("not found")
	// ErrFenced: another attempt has the lease, or the lease has run out. The
	// caller must end the agent and publish nothing more.
	ErrFenced = errors.New("lease lost")
	// ErrCancelled: a user or a client asked for the job to end.
	ErrCancelled = errors.New("cancelled")
	// ErrDraining: the worker shuts down; the attempt does not count.
	ErrDraining = errors.New("worker is draining")
	// ErrFinished: the job has ended, so what was asked for cannot be done.
	ErrFinished = errors.New("job has finished")
	// ErrNotFinished: the job has not ended, so it has no result yet.
	ErrNotFinished = errors.New("job has not finished")
	// ErrUnavailable: the broker does not answer.
	ErrUnavailable = errors.New("server does not answer")
	// ErrExists: there is something of that name already.
	ErrExists = errors.New("exists already")
	// ErrFull: the broker has no room left, so nothing was accepted.
	ErrFull = errors.New("the server's store is full: free or add disk space, or raise its limit")
	// ErrPurged is [ErrNotFound] of a job whose data was removed on request.
	ErrPurged = fmt.Errorf("%w: its data was purged", ErrNotFound)
)

// A StoreVersionError says that the streams of a pool are of another version than this
// program reads. Nothing was read or changed.
type StoreVersionError struct {
	Found int // 0 where it cannot be read
	Known int
}

// ErrorCode makes every StoreVersionError a [CodeInvalid].
func (e *StoreVersionError) ErrorCode() ErrorCode { return CodeInvalid }

func (e *StoreVersionError) Error() string {
	text := fmt.Sprintf("the pool's store is of version %d, and this release of penstock reads version %d only: ", e.Found, e.Known)
	if e.Found > e.Known {
		return text + "use the release that wrote it, or a newer one"
	}
	return text + "use the release that wrote it; the changelog of the release that began version " + strconv.Itoa(e.Known) + " says how to move"
}

// A QuotaError says that a job was not accepted, since of jobs that have something in common with
// it as many are open, or as much is stored, as a quota allows. Nothing was kept.
type QuotaError struct {
	Key        string // what they have in common: queue:NAME, label:NAME=VALUE and the like
	Bytes      bool   // the quota is of stored bytes, and not of open jobs
	Most, Used int64
}

// ErrorCode makes every QuotaError a [CodeQuota].
func (e *QuotaError) ErrorCode() ErrorCode { return CodeQuota }

func (e *QuotaError) Error() string {
	if e.Bytes {
		const unit = 1 << 20
		used := Bytes(e.Used)
		if used > unit { // to the next MiB: the exact number is hard to read
			used = (used + unit - 1) / unit * unit
		}
		return fmt.Sprintf("quota %s: %s are stored, of %s that may be: purge jobs that have finished (penstock job purge), or raise the quota of the pool (serve --quota)", e.Key, used, Bytes(e.Most))
	}
	return fmt.Sprintf("quota %s: %d jobs are open, of %d that may be: wait until some have ended, or raise the quota of the pool (serve --quota)", e.Key, e.Used, e.Most)
}

// A FieldError is one thing wrong with one field of a job. Field is the path
// in the job's JSON: "agent.max_turns", "setup[2]".
type FieldError struct {
	Field  string `json:"field" jsonschema:"The field."`
	Reason string `json:"reason" jsonschema:"What is wrong with it, and what is allowed."`
}

// ErrorCode makes every FieldError a [CodeInvalid].
func (e *FieldError) ErrorCode() ErrorCode { return CodeInvalid }

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// An InvalidError lists everything that is wrong with a job, so that its
// author can fix it all at once.
type InvalidError struct {
	Fields []FieldError `json:"fields"`
	What   string       `json:"-"` // is invalid; empty: a job
}

// ErrorCode makes every InvalidError a [CodeInvalid].
func (e *InvalidError) ErrorCode() ErrorCode { return CodeInvalid }

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i := range e.Fields {
		parts[i] = e.Fields[i].Error()
	}
	return "invalid " + cmp.Or(e.What, "job") + ": " + strings.Join(parts, "; ")
}

// add appends a finding; a nil error adds nothing.
func (e *InvalidError) add(field string, err error) {
	if err == nil {
		return
	}
	if f, ok := errors.AsType[*FieldError](err); ok {
		e.Fields = append(e.Fields, *f)
		return
	}
	e.Fields = append(e.Fields, FieldError{Field: field, Reason: err.Error()})
}

func (e *InvalidError) orNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}
