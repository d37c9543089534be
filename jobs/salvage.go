package jobs

import "time"

// A Salvage is what was saved of an attempt that did not end in success,
// before its workspace went. It is the data of the event [SalvageStored], and
// what penstock job salvage shows. It is never a result.
type Salvage struct {
	Job   string `json:"job"`
	Epoch uint64 `json:"epoch"`
	// Why is how the attempt ended.
	Why    Reason    `json:"why"`
	Worker string    `json:"worker"` // that stored it
	Stored time.Time `json:"stored"`

	BaseCommit string `json:"base_commit,omitempty"`
	Commits    int    `json:"commits"`
	Files      int    `json:"files_changed"`
	Bytes      int64  `json:"bytes"` // of patch and bundle together
	// Patch leads from the base commit to the files as they were. Bundle has
	// the agent's commits, and its uncommitted changes as the last of them; nil
	// if there are none. Both are artifacts of the epoch.
	Patch  *Artifact `json:"patch,omitempty"`
	Bundle *Artifact `json:"bundle,omitempty"`

	// Skipped are files that are no part of it, and Notes say what else is
	// missing; each says why.
	Skipped []string `json:"skipped,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}
