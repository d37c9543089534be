package workspace

import (
	"context"

	"github.com/penstock-run/penstock/worker/internal/delivery"
)

// What goes where, as what, and what came of it.
type (
	// A Delivery says where a change goes, and as what.
	Delivery = delivery.Delivery
	// Delivered says what [Change.Deliver] left.
	Delivered = delivery.Delivered
	// A BranchError is a branch that cannot be made because of an existing one.
	BranchError = delivery.BranchError
)

// Deliver makes a branch with the change, in the repository that
// the job began from. It only ever makes a new branch, or moves one that leads
// to a commit of Delivery.Replaces; it compares and changes in one step, so of
// several that try only one succeeds. Called again it does nothing more.
//
// A local repository gets the objects and the ref, as its owner where that is
// another user; no hook of it runs, and its work trees, index and HEAD are
// left alone: a branch that is checked out is a [*BranchError]. To a URL it is
// pushed, with Config.FetchEnv, and the hooks there are the remote's affair.
func (c Change) Deliver(ctx context.Context, d Delivery) (Delivered, error) {
	from := delivery.Origin{
		Repo: c.at.repo(), Base: c.at.commit, Head: c.Head, Home: c.at.home, Trash: c.at.spaces.trash, Access: c.at.spaces.access,
	}
	if c.PatchSize > 0 {
		from.Tree = c.tree
	}
	return from.Deliver(ctx, d)
}
