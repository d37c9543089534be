package jails

import (
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Refusals reports everything that an attempt requested and did not get.
type Refusals struct {
	to    Observers
	watch *policy.Watch
}

// Observers are told of refusals.
type Observers struct {
	Refused   func(policy.Violation)    // may be nil
	Violation func(event.JailViolation) // may be nil
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
}

// NewRefusals returns the refusals of the attempt with that name.
func NewRefusals(attempt string, to Observers) *Refusals {
	r := &Refusals{to: to}
	r.watch = policy.NewWatch(attempt, r.report)
	return r
}

// Note notes one refusal.
func (r *Refusals) Note(kind, what, reason string) { r.watch.Note(kind, what, reason) }

// Model notes a request that was not passed on to a model API; field: what of it was not permitted,
// if that was not the request itself.
func (r *Refusals) Model(request, field, reason string) {
	r.watch.Add(policy.Violation{Kind: policy.KindModel, What: request, Field: field, Reason: reason})
}

// Limits notes the limits that a program has reached, whether it ended because of them or
// continued: an agent may continue without the compiler that it lost.
func (r *Refusals) Limits(program string, exit sandbox.Exit) {
	for _, f := range exit.Reached {
		r.Note(policy.KindLimit, string(f), program+" reached it")
	}
}

// Deny notes what a policy does not permit, and returns the error that ends the attempt
// for it. It returns other errors as they are.
func (r *Refusals) Deny(err error) error {
	denied, ok := errors.AsType[*policy.DeniedError](err)
	if !ok {
		return err
	}
	for _, d := range denied.Denials {
		r.Note(policy.KindPolicy, d.Field+": "+d.Value, "permitted is "+d.Most)
	}
	return verdict.Ended(jobs.PolicyDenied, "the worker does not permit what the job asks for: %v", denied)
}

// Host reports a request for the network that was refused.
func (r *Refusals) Host(v event.JailViolation) {
	r.tell(v)
	r.Note(policy.KindHost, v.What(), v.Reason)
}

func (r *Refusals) report(v policy.Violation) {
	if r.to.Refused != nil {
		r.to.Refused(v)
	}
	if v.Kind == policy.KindHost {
		return // Host has told more of it
	}
	r.tell(event.JailViolation{Kind: v.Kind, Setting: v.What, Field: v.Field, Reason: v.Reason})
}

func (r *Refusals) tell(v event.JailViolation) {
	if r.to.Violation != nil {
		r.to.Violation(v)
	}
	r.to.Tell(event.Make(event.JailViolation(v)))
}
