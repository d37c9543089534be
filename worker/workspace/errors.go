package workspace

import (
	"github.com/penstock-run/penstock/worker/internal/changes"
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
type LimitError = changes.LimitError

// A Receipt has the hashes of what was read back from the store of a workspace's
// change.
type Receipt = changes.Receipt
