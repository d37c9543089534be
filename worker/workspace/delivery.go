package workspace

import "context"

// Deliver makes a branch with what Collect returned, in the repository that
// the job began from. It only ever makes a new branch, or moves one that leads
// to a commit of Delivery.Replaces; it compares and changes in one step, so of
// several that try only one succeeds. Called again it does nothing more.
//
// A local repository gets the objects and the ref, as its owner where that is
// another user; no hook of it runs, and its work trees, index and HEAD are
// left alone: a branch that is checked out is a [*BranchError]. To a URL it is
// pushed, with Config.FetchEnv, and the hooks there are the remote's affair.
func (w *Workspace) Deliver(ctx context.Context, c Change, d Delivery) (Delivered, error) {
	from := origin{
		repo: w.repo(), base: w.commit, head: c.Head, home: w.home, trash: w.spaces.trash, access: w.spaces.access,
	}
	if c.PatchSize > 0 {
		from.tree = c.tree
	}
	return from.deliver(ctx, d)
}
