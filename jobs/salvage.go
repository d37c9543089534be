package jobs

import "time"

// A Salvage is what was saved of an attempt that did not end in success,
// before its workspace went. It is the data of the event [SalvageStored], and
// what penstock job salvage shows. It is never a result.
type Salvage struct {
	Job   string `json:"job" jsonschema:"The job's id."`
	Epoch uint64 `json:"epoch" jsonschema:"The epoch of the attempt."`
	// Why is how the attempt ended.
	Why    Reason    `json:"why" jsonschema:"How the attempt ended."`
	Worker string    `json:"worker" jsonschema:"The worker that stored it."` // that stored it
	Stored time.Time `json:"stored" jsonschema:"When it was stored."`

	BaseCommit string `json:"base_commit,omitempty" jsonschema:"The commit that the changes are to."`
	Commits    int    `json:"commits" jsonschema:"How many commits the agent made."`
	Files      int    `json:"files_changed" jsonschema:"How many files the patch changes."`
	Bytes      int64  `json:"bytes" jsonschema:"The size of patch and bundle together."` // of patch and bundle together
	// Patch leads from the base commit to the files as they were. Bundle has
	// the agent's commits, and its uncommitted changes as the last of them; nil
	// if there are none. Both are artifacts of the epoch.
	Patch  *Artifact `json:"patch,omitempty" jsonschema:"The patch from the base commit to the files as they were."`
	Bundle *Artifact `json:"bundle,omitempty" jsonschema:"The agent's commits, and what was not committed as the last of them."`

	// Skipped are files that are no part of it, and Notes say what else is
	// missing; each says why.
	Skipped []string `json:"skipped,omitempty" jsonschema:"Files that are not part of it, each with the reason."`
	Notes   []string `json:"notes,omitempty" jsonschema:"What else is missing, and why."`
}
