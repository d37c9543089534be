package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// lastSalvage finds what the attempt begins from: what was saved of the last
// one before it, if the job's retry asked for that, else of the job that it
// names itself.
func (a *attempt) lastSalvage(ctx context.Context) (*jobs.Salvage, error) {
	if a.rec.FromSalvage {
		if a.job.Isolation == jobs.IsolationNone {
			// The directory is the user's own, and has files that no salvage may replace.
			return nil, verdict.Ended(jobs.InvalidJob, "isolation none begins from no salvage: apply it with penstock job salvage %s --apply DIR, and retry without --from-salvage", a.rec.ID)
		}
		own, err := a.salvageOf(ctx, a.rec, a.claim.Epoch())
		if own != nil || err != nil {
			return own, err
		}
	}
	if a.job.FromSalvage == "" {
		return nil, nil
	}
	rec, err := a.cfg.Queue.Get(ctx, a.job.FromSalvage)
	switch {
	case err == nil:
		s, err := a.salvageOf(ctx, rec, math.MaxUint64)
		if s != nil || err != nil {
			return s, err
		}
	case !errors.Is(err, jobs.ErrNotFound):
		return nil, verdict.Failed(jobs.StoreFailed, "look for a salvage", err)
	}
	return nil, verdict.Ended(jobs.InvalidJob, "nothing that was saved of job %s is kept any more: submit the job without from_salvage", a.job.FromSalvage)
}

// salvageOf returns what was last saved of a job before an epoch, or nil.
func (a *attempt) salvageOf(ctx context.Context, rec jobs.Record, before uint64) (*jobs.Salvage, error) {
	list, err := a.cfg.Store.Salvages(ctx, rec)
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "look for a salvage", err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Epoch < before {
			return &list[i], nil
		}
	}
	return nil, nil
}

// restore puts a salvage into the workspace, and tells the session so.
func (a *attempt) restore(ctx context.Context, space *workspace.Workspace, s *jobs.Salvage) (err error) {
	if s == nil {
		return nil
	}
	if space.Reused() {
		a.inherits(space, "is the one of an earlier attempt of this job, as that attempt, or a person since, has left it", s)
		return nil
	}
	if s.Patch == nil && s.Bundle == nil {
		return nil // a capsule of an attempt that had changed nothing
	}
	dir, err := os.MkdirTemp("", "penstock-salvage-")
	if err != nil {
		return verdict.Failed(jobs.WorkspaceFailed, "restore the salvage", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	patch, err := a.fetch(ctx, s, s.Patch, filepath.Join(dir, "patch"))
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the salvage", err)
	}
	bundle, err := a.fetch(ctx, s, s.Bundle, filepath.Join(dir, "bundle"))
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the salvage", err)
	}
	if err := space.Restore(ctx, patch, bundle); err != nil {
		return verdict.Failed(jobs.WorkspaceFailed, fmt.Sprintf("restore the salvage of epoch %d", s.Epoch), err)
	}
	whose := "attempt of this job"
	switch {
	case s.Job != a.rec.ID:
		whose = "job, " + s.Job + ","
	case s.Epoch == 0:
		whose = "job, " + a.job.Fork + ","
	}
	a.inherits(space, "begins from a salvage: the changes of an earlier "+whose+" were restored to a fresh checkout", s)
	return nil
}

// fetch writes an artifact into a file, and returns its name: "" if there is no
// such artifact.
func (a *attempt) fetch(ctx context.Context, s *jobs.Salvage, artifact *jobs.Artifact, to string) (string, error) {
	if artifact == nil {
		return "", nil
	}
	content, err := a.cfg.Store.Get(ctx, s.Job, s.Epoch, artifact.Name)
	if err != nil {
		return "", err
	}
	defer content.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, content)
	return to, errors.Join(err, f.Close())
}
