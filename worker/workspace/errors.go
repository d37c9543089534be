package workspace

import (
	"fmt"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// What is wrong with a repository that a job names.
type (
	// An UnreachableError is a repository that could not be read at all: a wrong
	// address, a missing permission, a network that is down.
	UnreachableError = source.UnreachableError
	// A RefusedError is a repository that no job can begin from as it is: another
	// attempt would end no better.
	RefusedError = source.RefusedError
	// A RefError is a branch, tag or commit that the repository does not have.
	RefError = source.RefError
)

// A LimitError says that there is more than [Limits] allow to be collected.
type LimitError struct {
	What  string // "files", "bytes", "patch bytes", "depth", "path length", "entries"
	Limit int64
	Path  string // where it was passed, if it was at one place

	// Where the whole lies on this host, and what it takes there, once
	// [Workspace.Whole] has said so.
	Dir   string    `json:",omitempty"`
	Bytes int64     `json:",omitempty"`
	Since time.Time `json:",omitzero"`
	Until time.Time `json:",omitzero"` // or until others need the room
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("the result is over the limit of %d %s", e.Limit, e.What)
	if e.Path != "" {
		text += " at " + disk.Printable(e.Path)
	}
	text += "; let the agent remove or ignore what is not part of its work"
	if e.Dir != "" {
		text += fmt.Sprintf("; what could be is stored, and the whole, %d MiB, is in %s until %s", e.Bytes>>20, e.Dir, e.Until.Format(time.DateOnly))
	}
	return text
}
