package jobs

import "time"

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

	// Place is the subject that the letter is kept under, for the queue.
	Place string `json:"-"`
}
