package jobs

import (
	"strings"
	"time"
)

// Letter says what a dead letter is about.
type Letter string

// The dead letters.
const (
	DeadJob        Letter = "job"        // ended in an error or a timeout
	DeadSubmission Letter = "submission" // could not be accepted; it never was a job
	DeadMessage    Letter = "message"    // was in a queue, and is not one of a job
)

// A DeadLetter is what the pool has given up on, kept for a person to look at: a
// job, a submission or a message.
type DeadLetter struct {
	// ID is the job's, the one that the submission would have had, or a name
	// for the message.
	ID     string    `json:"id"`
	Kind   Letter    `json:"kind"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
	Record Record    `json:"record,omitzero"` // of a job, as it was then
	// Subject is where a submission or a message was published. Data is what
	// was submitted, or its beginning if Cut.
	Subject string `json:"subject,omitempty"`
	Data    string `json:"data,omitempty"`
	Cut     bool   `json:"cut,omitempty"`

	// StoredAt is the subject that the letter is kept under, and Seq its number among the
	// letters in the order in which they came.
	StoredAt string `json:"-"`
	Seq      uint64 `json:"-"`
}

// Submission returns the job that was submitted, as it was. If the letter has only its
// beginning, that is a [CodeNotRetryable].
func (l DeadLetter) Submission() (Job, error) {
	if l.Cut {
		return Job{}, &CodedError{Code: CodeNotRetryable, Message: "only its beginning was kept"}
	}
	return Decode([]byte(l.Data))
}

// RetryKey is the key for a submission that had none and is submitted again: however
// often that is done, one job comes of it.
func (l DeadLetter) RetryKey() string { return "rejected-" + l.ID }

// MatchLetters returns the dead letter that has an id, or those whose ids begin
// with it, where it is long enough to distinguish them.
func MatchLetters(letters []DeadLetter, id string) []DeadLetter {
	const enough = 8
	var found []DeadLetter
	for i, l := range letters {
		if l.ID == id {
			return letters[i : i+1]
		}
		if len(id) >= enough && strings.HasPrefix(l.ID, id) {
			found = append(found, l)
		}
	}
	return found
}
