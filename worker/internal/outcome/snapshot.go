package outcome

import (
	"context"
	"os"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Snapshot stores the changes of a workspace while the agent works, in the form of a
// salvage: nil if the directory is the user's own, which stays.
func (o *Outcome) Snapshot(ctx context.Context, space *workspace.Workspace) (*jobs.Salvage, error) {
	if o.cfg.Job.Isolation == jobs.IsolationNone {
		return nil, nil
	}
	// The end of the agent must not interrupt its git: unfinished files would disturb
	// the result.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), SalvageLimit)
	defer cancel()
	change, err := space.Snapshot(whole)
	if err != nil {
		return nil, err
	}
	if change.Over != nil {
		return nil, change.Over // half of it is of no use to a later attempt
	}
	k := stored{base: space.Base(), change: change}
	if !change.Empty() {
		for file, artifact := range map[string]**jobs.Artifact{change.Patch: &k.patch, change.Bundle: &k.bundle} {
			if *artifact, err = o.part(ctx, file); err != nil {
				return nil, err
			}
		}
	}
	s := k.of(o.salvaged(""))
	return &s, nil
}

// Work returns what is stored of the attempt's work when it has ended with v, for its
// capsule: nil if the directory is the user's own, which stays. Complete says whether
// that is all of it.
func (o *Outcome) Work(space *workspace.Workspace, v jobs.Ended) (work *jobs.Salvage, complete bool) {
	switch {
	case o.cfg.Job.Isolation == jobs.IsolationNone && v.Reason != jobs.LeaseLost:
		return nil, true
	case v.Reason == jobs.LeaseLost || space.Unsaved():
		return nil, false // the changes at the end of the last turn are better than none
	case o.stored != nil:
		s := o.stored.of(o.salvaged(v.Reason))
		return &s, true
	case o.saved != nil:
		return o.saved, true
	}
	s := o.salvaged(v.Reason)
	s.BaseCommit = space.Base()
	return &s, true
}

// part stores a file of the host, if it has a name.
func (o *Outcome) part(ctx context.Context, file string) (*jobs.Artifact, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	put, err := o.cfg.Store.PutPart(ctx, o.cfg.Record.ID, o.cfg.Epoch, content)
	return &put, err
}
