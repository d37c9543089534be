package workspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/worker/internal/commits"
)

// A Delivery says where a change goes, and as what.
type Delivery struct {
	Repo   string // the job's: an absolute path or a URL
	Branch string // without refs/heads/
	// Message is that of the commit which is made where the agent made none,
	// and At its date.
	Message string
	At      time.Time
	// Author, "Name <address>", replaces author and committer of all commits;
	// empty keeps them. Trailers, "Key: value", end each commit's message; what
	// the agent wrote under these keys is removed.
	Author   string
	Trailers []string
	// Replaces are commits that earlier attempts of the same job may have put
	// there. A branch that leads to one of them is moved.
	Replaces []string
	// Permit is called once all is ready, right before the branch is made. It
	// keeps commit for Replaces of later attempts, and returns until when the
	// branch may be made, or why it may not.
	Permit func(ctx context.Context, commit string) (until time.Time, err error)
}

// A BranchError is a branch that cannot be made because of what is there.
type BranchError struct {
	Repo   string // without credentials
	Branch string
	Why    string
}

func (e *BranchError) Error() string {
	return fmt.Sprintf("branch %s of %s %s; it was not touched", e.Branch, e.Repo, e.Why)
}

// Delivered says what [Workspace.Deliver] left. Commit is "" where there was
// nothing to deliver.
type Delivered struct {
	Repo     string // without credentials
	Commit   string
	Replaced string // the earlier attempt's commit that the branch led to
}

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
	src, err := w.spaces.access.Locate(ctx, d.Repo)
	if err != nil {
		return Delivered{}, err
	}
	out := Delivered{Repo: src.Name}
	commit, err := w.compose(ctx, c, d)
	if err != nil || commit == "" {
		return out, err
	}
	to, err := w.outlet(ctx, src, d.Branch)
	if err != nil {
		return out, err
	}
	old, err := to.now(ctx)
	if err != nil {
		return out, err
	}
	if old != commit {
		if err := w.move(ctx, to, old, commit, d); err != nil {
			return out, err
		}
		out.Replaced = old
	}
	out.Commit = commit
	return out, nil
}

// move makes the branch lead to commit. What is said of it after a failure is
// what is there: an answer may have been lost.
func (w *Workspace) move(ctx context.Context, to outlet, old, commit string, d Delivery) error {
	if old != "" && !slices.Contains(d.Replaces, old) {
		return to.refuse("exists, at " + old + ", and is not this job's")
	}
	if err := to.send(ctx, commit); err != nil {
		return err
	}
	until, err := d.Permit(ctx, commit)
	if err != nil {
		return err
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	failed := to.lead(limited, commit, old)
	if failed == nil {
		return nil
	}
	now, err := to.now(ctx)
	switch {
	case err != nil || now == old:
		return failed
	case now == commit:
		return nil
	}
	return to.refuse("was made meanwhile, at " + now + ", and not by this attempt")
}

// compose returns the commit that the branch shall lead to. It depends on
// nothing but its arguments and the workspace.
func (w *Workspace) compose(ctx context.Context, c Change, d Delivery) (string, error) {
	if c.Head == "" && (c.tree == "" || c.PatchSize == 0) {
		return "", nil
	}
	if c.Head != "" && d.Author == "" && len(d.Trailers) == 0 {
		return c.Head, nil
	}
	var texts []commitText
	var err error
	if c.Head == "" {
		texts, err = w.single(ctx, c, d)
	} else {
		texts, err = w.readCommits(ctx, c.Head)
	}
	if err != nil {
		return "", err
	}
	return w.writeCommits(ctx, texts, d)
}

// single is the one commit of an agent that made none.
func (w *Workspace) single(ctx context.Context, c Change, d Delivery) ([]commitText, error) {
	tree, err := commits.TreeID(ctx, w.repo(), c.tree)
	if err != nil {
		return nil, err
	}
	who := fmt.Sprintf("Penstock agent <agent@penstock.invalid> %d +0000", d.At.Unix())
	text := fmt.Sprintf("tree %s\nparent %s\nauthor %s\ncommitter %s\n\n%s\n", tree, w.commit, who, who, d.Message)
	return []commitText{{text: []byte(text)}}, nil
}
