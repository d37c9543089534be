package jobs

import "time"

// A ReviewState is what a person has decided about the result of a job.
type ReviewState string

// The states of a result. One without a decision is unreviewed.
const (
	Unreviewed ReviewState = "unreviewed"
	Accepted   ReviewState = "accepted"
	Rejected   ReviewState = "rejected"
	Delivered  ReviewState = "delivered" // it is in a repository of the user's
)

// CheckReviewState refuses what is none of the states.
func CheckReviewState(s ReviewState) error {
	return oneOf(s, Unreviewed, Accepted, Rejected, Delivered)
}

// A Review is what was decided about the result of one attempt. A job that goes on, or is
// retried, has no review any more.
type Review struct {
	State   ReviewState `json:"state"`
	By      string      `json:"by,omitempty"` // the program that asked for it, in a word
	At      time.Time   `json:"at"`
	Comment string      `json:"comment,omitempty"`
	Epoch   uint64      `json:"epoch"` // of the attempt
}

// Reviewed is the state of a finished job's result; "" of a job that has none.
func (r Record) Reviewed() ReviewState {
	switch {
	case r.State != Finished:
		return ""
	case r.Review == nil || r.Review.Epoch != r.Epoch:
		return Unreviewed
	}
	return r.Review.State
}
