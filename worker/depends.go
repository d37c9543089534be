package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// maxFollowed is how large a patch may be that is handed to the job that
// depends on its job: it is held in memory.
const maxFollowed = 16 << 20

// dependencies fetches what is left of the jobs that a job depends on. What is
// not kept any more is left out.
func dependencies(ctx context.Context, cfg *Config, ids []string) (found []agent.Dependency, err error) {
	for _, id := range ids {
		d, err := dependency(ctx, cfg, id)
		if errors.Is(err, jobs.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, verdict.Failed(jobs.StoreFailed, "fetch the results of the jobs that this one depends on", err)
		}
		found = append(found, d)
	}
	return found, nil
}

func dependency(ctx context.Context, cfg *Config, id string) (agent.Dependency, error) {
	var d agent.Dependency
	rec, err := cfg.Queue.Get(ctx, id)
	if err != nil {
		return d, err
	}
	if d.Result, err = cfg.Store.Result(ctx, rec); err != nil {
		return d, err
	}
	has := slices.ContainsFunc(d.Result.Artifacts, func(f jobs.Artifact) bool { return f.Name == PatchName && f.Bytes <= maxFollowed })
	if !has {
		return d, nil
	}
	patch, err := cfg.Store.Get(ctx, rec.ID, rec.Epoch, PatchName)
	if err != nil {
		return d, err
	}
	defer patch.Close()
	if d.Patch, err = io.ReadAll(io.LimitReader(patch, maxFollowed)); err != nil {
		return d, fmt.Errorf("patch of job %s: %w", id, err)
	}
	return d, nil
}
