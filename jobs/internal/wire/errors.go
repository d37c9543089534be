package wire

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

// An APIError is what the broker answers instead of doing something.
type APIError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *APIError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// Codes of the broker that this package or its callers check for.
const (
	codeAccountLimit   = 10002
	codeServerLimit    = 10023
	codeNoMessage      = 10037
	codeMemoryLimit    = 10028
	codeStorageLimit   = 10047
	codeNoStream       = 10059
	codeWrongLast      = 10071
	codeNoJetStream    = 10076
	codeStoreFailed    = 10077
	codeNotAvailable   = 10008
	codeNotLeader      = 10009
	codeWrongLastConst = 10164
	codeNoPeers        = 10005
	codeNoConsumer     = 10014
	codeStreamExists   = 10058
	codeNoReplicas     = 10074
	codeConsumerExists = 10105
	codeConsumerThere  = 10148
	codeBatchMissing   = 10176
	codeBatchesOpen    = 10210
	codeBatchDisabled  = 10174
	codeBatchTooLarge  = 10199
)

// known turns a code into the condition that callers ask for.
func (e *APIError) known() error {
	switch e.ErrCode {
	case codeWrongLast, codeWrongLastConst:
		return ErrConflict
	case codeNoMessage:
		return jobs.ErrNotFound
	case codeBatchesOpen, codeBatchDisabled, codeBatchTooLarge:
		return fmt.Errorf("%w: %w", ErrNoBatch, e)
	case codeNoReplicas:
		return fmt.Errorf("more than one replica needs a cluster of servers: set replicas to 1, or name a cluster with --server: %w", e)
	case codeNoPeers:
		return fmt.Errorf("the cluster has fewer servers than replicas are wanted, or they cannot take another stream: %w", e)
	case codeAccountLimit, codeServerLimit, codeMemoryLimit, codeStorageLimit:
		return fmt.Errorf("%w: %w", jobs.ErrFull, e)
	}
	return e
}

// isDisabled reports whether err says that the stream never takes a batch.
func isDisabled(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.ErrCode == codeBatchDisabled
}

// Refused reports whether the store has refused a message: because the
// subject or the stream has no room for another one, or because it is broken.
func Refused(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.ErrCode == codeStoreFailed
}

// NoStream reports whether err says that the stream does not exist.
func NoStream(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.ErrCode == codeNoStream
}

// NoConsumer reports whether err says that the consumer does not exist.
func NoConsumer(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.ErrCode == codeNoConsumer
}

// A replyError is an answer that cannot be decoded: asking again would not help.
type replyError struct {
	verb string
	err  error
}

func (e *replyError) Error() string { return "reply to " + e.verb + ": " + e.err.Error() }
func (e *replyError) Unwrap() error { return e.err }

// unanswered reports whether it is unknown what became of a request: there was
// no answer, or one that says "not now". Everything else is an answer.
func unanswered(err error) bool {
	for _, answer := range []error{ErrConflict, ErrNoBatch, jobs.ErrNotFound, jobs.ErrFull, jobs.ErrForbidden, nats.ErrMaxPayload, nats.ErrBadSubject} {
		if errors.Is(err, answer) {
			return false
		}
	}
	if _, ok := errors.AsType[*replyError](err); ok {
		return false
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		switch e.ErrCode {
		case codeNotAvailable, codeNotLeader, codeNoJetStream, codeBatchMissing:
			return true
		}
		return false
	}
	return true
}
