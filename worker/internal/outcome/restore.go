package outcome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/scratch"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Salvages finds what earlier attempts have saved, and restores it.
type Salvages struct {
	Store *artifact.Store
	// Record returns the record of a job.
	Record func(ctx context.Context, id string) (jobs.Record, error)
}

// Last finds what an attempt begins from: what was saved of the last
// one before it, if the job's retry asked for that, else of the job that it
// names itself. Epoch is the attempt's.
func (s Salvages) Last(ctx context.Context, job jobs.Job, rec jobs.Record, epoch uint64) (*jobs.Salvage, error) {
	if rec.FromSalvage {
		if job.Isolation == jobs.IsolationNone {
			// The directory is the user's own, and has files that no salvage may replace.
			return nil, verdict.Ended(jobs.InvalidJob, "isolation none begins from no salvage: apply it with penstock job salvage %s --apply DIR, and retry without --from-salvage", rec.ID)
		}
		own, err := s.Before(ctx, rec, epoch)
		if own != nil || err != nil {
			return own, err
		}
	}
	if job.FromSalvage == "" {
		return nil, nil
	}
	named, err := s.Record(ctx, job.FromSalvage)
	switch {
	case err == nil:
		found, err := s.Before(ctx, named, math.MaxUint64)
		if found != nil || err != nil {
			return found, err
		}
	case !errors.Is(err, jobs.ErrNotFound):
		return nil, verdict.Failed(jobs.StoreFailed, "look for a salvage", err)
	}
	return nil, verdict.Ended(jobs.InvalidJob, "nothing that was saved of job %s is kept any more: submit the job without from_salvage", job.FromSalvage)
}

// Before returns what was last saved of a job before an epoch, or nil.
func (s Salvages) Before(ctx context.Context, rec jobs.Record, epoch uint64) (*jobs.Salvage, error) {
	list, err := s.Store.Salvages(ctx, rec)
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "look for a salvage", err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Epoch < epoch {
			return &list[i], nil
		}
	}
	return nil, nil
}

// Restore puts the changes of a salvage into a workspace.
func (s Salvages) Restore(ctx context.Context, space *workspace.Workspace, saved *jobs.Salvage) (err error) {
	dir, done, err := scratch.Dir("salvage")
	if err != nil {
		return verdict.Failed(jobs.WorkspaceFailed, "restore the salvage", err)
	}
	defer func() { err = errors.Join(err, done()) }()
	patch, err := s.fetch(ctx, saved, saved.Patch, filepath.Join(dir, "patch"))
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the salvage", err)
	}
	bundle, err := s.fetch(ctx, saved, saved.Bundle, filepath.Join(dir, "bundle"))
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the salvage", err)
	}
	if err := space.Restore(ctx, patch, bundle); err != nil {
		return verdict.Failed(jobs.WorkspaceFailed, fmt.Sprintf("restore the salvage of epoch %d", saved.Epoch), err)
	}
	return nil
}

// fetch writes an artifact into a file, and returns its name: "" if there is no
// such artifact.
func (s Salvages) fetch(ctx context.Context, saved *jobs.Salvage, artifact *jobs.Artifact, to string) (string, error) {
	if artifact == nil {
		return "", nil
	}
	content, err := s.Store.Get(ctx, saved.Job, saved.Epoch, artifact.Name)
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

// AttemptOf reads the name of an attempt, which its workspace has, too.
func AttemptOf(name string) (job string, epoch uint64, err error) {
	job, at, _ := strings.Cut(name, ".")
	if epoch, err = strconv.ParseUint(at, 10, 64); err != nil {
		err = fmt.Errorf("workspace %s is not of an attempt: %w", name, err)
	}
	return job, epoch, err
}

// Stored reports whether the store still has the changes of an attempt.
func Stored(ctx context.Context, store *artifact.Store, attempt string, r workspace.Receipt) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, SalvageLimit)
	defer cancel()
	job, epoch, err := AttemptOf(attempt)
	if err != nil {
		return false, err
	}
	for name, sum := range map[string]string{PatchName: r.Patch, BundleName: r.Bundle} {
		if sum == "" {
			continue
		}
		got, err := store.Check(ctx, job, epoch, name)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && got.SHA256 != sum {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
