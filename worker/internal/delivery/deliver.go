package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/worker/internal/commits"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
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

// A BranchError is a branch that cannot be made because of an existing one.
type BranchError struct {
	Repo   string // without credentials
	Branch string
	Why    string
}

func (e *BranchError) Error() string {
	return fmt.Sprintf("branch %s of %s %s; it was not touched", e.Branch, e.Repo, e.Why)
}

// Delivered is the result of a delivery. Commit is "" if there was nothing to deliver.
type Delivered struct {
	Repo     string // without credentials
	Commit   string
	Replaced string // the earlier attempt's commit that the branch led to
}

// An Origin is the source of a delivery: a job's result, in the host's own git
// directory.
type Origin struct {
	Repo   git.Repo // with the objects of the base and of the result
	Base   string   // the commit that the job began from
	Head   string   // the last of its commits; "" if it made none
	Tree   string   // of its files, if there are no commits; "" if nothing changed
	Home   string   // where files may be written, for the time of the delivery
	Trash  *disk.Trash
	Access source.Access
}

// Deliver makes a branch, or moves one that leads to a
// commit of Delivery.Replaces.
func (o Origin) Deliver(ctx context.Context, d Delivery) (Delivered, error) {
	src, err := o.Access.Locate(ctx, d.Repo)
	if err != nil {
		return Delivered{}, err
	}
	done := Delivered{Repo: src.Name}
	commit, err := o.compose(ctx, d)
	if err != nil || commit == "" {
		return done, err
	}
	to, err := o.outlet(ctx, src, d.Branch)
	if err != nil {
		return done, err
	}
	old, err := to.now(ctx)
	if err != nil {
		return done, err
	}
	if old != commit {
		if err := o.move(ctx, to, old, commit, d); err != nil {
			return done, err
		}
		done.Replaced = old
	}
	done.Commit = commit
	return done, nil
}

// move makes the branch point to commit. After a failure it reports the branch as it
// is: an answer may have been lost.
func (o Origin) move(ctx context.Context, to outlet, old, commit string, d Delivery) error {
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

// compose returns the commit for the branch. It depends on nothing but its arguments
// and the origin.
func (o Origin) compose(ctx context.Context, d Delivery) (string, error) {
	if o.Head == "" && o.Tree == "" {
		return "", nil
	}
	if o.Head != "" && d.Author == "" && len(d.Trailers) == 0 {
		return o.Head, nil
	}
	var texts []commitText
	var err error
	if o.Head == "" {
		texts, err = o.single(ctx, d)
	} else {
		texts, err = o.readCommits(ctx, o.Head)
	}
	if err != nil {
		return "", err
	}
	return o.writeCommits(ctx, texts, d)
}

// single is the one commit of an agent that made none.
func (o Origin) single(ctx context.Context, d Delivery) ([]commitText, error) {
	tree, err := commits.TreeID(ctx, o.Repo, o.Tree)
	if err != nil {
		return nil, err
	}
	who := fmt.Sprintf("Penstock agent <agent@penstock.invalid> %d +0000", d.At.Unix())
	text := fmt.Sprintf("tree %s\nparent %s\nauthor %s\ncommitter %s\n\n%s\n", tree, o.Base, who, who, d.Message)
	return []commitText{{text: []byte(text)}}, nil
}
