package jobs

import "time"

// A Capsule is what the next attempt of a job needs to go on with the agent's
// conversation, on any worker. It is the data of the event [CapsuleStored]. An
// attempt has one, of the end of its last turn.
type Capsule struct {
	Format int    `json:"format" jsonschema:"The version of the format."`
	Job    string `json:"job" jsonschema:"The job's id."`
	Epoch  uint64 `json:"epoch" jsonschema:"The epoch of the attempt."`
	Agent  string `json:"agent" jsonschema:"The agent's name."`
	// Conversation is what the agent calls it.
	Conversation string `json:"conversation" jsonschema:"What the agent calls the conversation."`
	// Turn is how many turns have begun, over all attempts. Open: the last of
	// them was not over.
	Turn int  `json:"turn" jsonschema:"How many turns have begun, over all attempts."`
	Open bool `json:"open,omitempty" jsonschema:"The last turn was not over."`
	// Heard are the ids of the prompts that the conversation has, the oldest
	// first, besides the job's own.
	Heard []string `json:"heard,omitempty" jsonschema:"The ids of the prompts that the conversation has, the oldest first, besides the job's own."`
	// Asks are the ids of the questions that were open.
	Asks []string `json:"asks,omitempty" jsonschema:"The ids of the questions that were open."`
	// Why is how the attempt ended; empty: that is not known.
	Why    Reason    `json:"why,omitempty" jsonschema:"How the attempt ended; empty: it has not, or that is not known."`
	Worker string    `json:"worker" jsonschema:"The worker that stored it."`
	Stored time.Time `json:"stored" jsonschema:"When it was stored."`

	// Home has the agent's own files of the conversation. Work is what it had
	// changed in the workspace, nil where that stays in its place; both are
	// artifacts of the epoch.
	Home Artifact `json:"home" jsonschema:"The agent's own files of the conversation."`
	Work *Salvage `json:"work,omitempty" jsonschema:"What the agent had changed in the workspace, unless that stays in its place."`
}

// Parts are the artifacts that the capsule needs.
func (c Capsule) Parts() []Artifact {
	parts := []Artifact{c.Home}
	if c.Work == nil {
		return parts
	}
	for _, a := range []*Artifact{c.Work.Patch, c.Work.Bundle} {
		if a != nil {
			parts = append(parts, *a)
		}
	}
	return parts
}
