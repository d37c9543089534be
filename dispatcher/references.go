package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/queue"
)

// references looks up the jobs that a new job names.
type references struct {
	queue    *queue.Queue
	store    *artifact.Store
	maxDepth int // see Config.MaxDepth
}

// check refuses a job that names one which is not there, or does not fit. It returns
// the capsule that a fork begins from; nil if the job is no fork. A job without a trace
// comes back as part of its parent's.
func (r references) check(ctx context.Context, id string, job jobs.Job) (*jobs.Capsule, jobs.Job, error) {
	if err := r.salvage(ctx, job); err != nil {
		return nil, job, err
	}
	if err := r.depends(ctx, job); err != nil {
		return nil, job, err
	}
	parent, err := r.parentage(ctx, id, job)
	if err != nil {
		return nil, job, err
	}
	if parent != nil {
		job = job.In(parent.Span(parent.Attempt))
	}
	origin, err := r.origin(ctx, job)
	return origin, job, err
}

// parentage refuses a job whose parent is not there or has no more to spend, and one
// that would be one generation too many. Without these bounds a model that submits jobs
// could have each of them submit more. It returns the parent of a job that is new, if it
// has one.
func (r references) parentage(ctx context.Context, id string, job jobs.Job) (*jobs.Record, error) {
	if job.Parent == "" {
		return nil, nil
	}
	// A submission that is repeated has its job, whatever the parent has spent since.
	if kept, err := r.kept(ctx, id, job.Key); kept || err != nil {
		return nil, err
	}
	wrong := func(field, format string, args ...any) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: field, Reason: fmt.Sprintf(format, args...)}}}
	}
	parent, err := r.queue.Get(ctx, job.Parent)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, wrong("parent", "there is no job %s", job.Parent)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the parent: %w", err)
	}
	generation, err := r.generation(ctx, parent)
	if err != nil {
		return nil, fmt.Errorf("look for the parent's own: %w", err)
	}
	if generation >= r.maxDepth {
		return nil, wrong("parent", "job %s may have no children: it is of generation %d, and the pool allows %d below the first (serve --max-depth)", parent.ID, generation, r.maxDepth)
	}
	spec, err := r.queue.Job(ctx, parent.ID)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, wrong("parent", "job %s is kept without what it asked for, so what it may spend is not known", parent.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the parent's budget: %w", err)
	}
	budget := parent.Allowed(spec).Budget
	if budget.USD == 0 {
		return &parent, nil
	}
	left := max(0, budget.USD-parent.SpentBefore.Add(parent.LastAttempt).CostUSD)
	if job.Budget.USD == 0 || job.Budget.USD > left {
		return nil, wrong("budget.usd", "has to be set, to at most %.2f: job %s has a budget, of which that much is left", left, parent.ID)
	}
	return &parent, nil
}

// kept reports whether the pool has a job with the id or the key.
func (r references) kept(ctx context.Context, id, key string) (bool, error) {
	_, err := r.queue.Get(ctx, id)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, jobs.ErrNotFound) {
		return false, fmt.Errorf("look for the job itself: %w", err)
	}
	if key == "" {
		return false, nil
	}
	return r.queue.HasKey(ctx, key)
}

// generation is how many ancestors a job has, as far as they are kept, and as far as it
// matters.
func (r references) generation(ctx context.Context, rec jobs.Record) (int, error) {
	for generation := range r.maxDepth {
		if rec.Parent == "" {
			return generation, nil
		}
		parent, err := r.queue.Get(ctx, rec.Parent)
		if errors.Is(err, jobs.ErrNotFound) {
			return generation + 1, nil
		}
		if err != nil {
			return 0, err
		}
		rec = parent
	}
	return r.maxDepth, nil
}

// salvage refuses a job that could not begin from the salvage it names.
func (r references) salvage(ctx context.Context, job jobs.Job) error {
	if job.FromSalvage == "" {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "from_salvage", Reason: fmt.Sprintf(format, args...)}}}
	}
	from, err := r.queue.Get(ctx, job.FromSalvage)
	if errors.Is(err, jobs.ErrNotFound) {
		return wrong("there is no job %s", job.FromSalvage)
	}
	if err != nil {
		return fmt.Errorf("look for the salvage: %w", err)
	}
	if from.Repo != job.Repo.URL {
		return wrong("job %s belongs to another repository: its saved changes are based on a commit there", from.ID)
	}
	list, err := r.store.Salvages(ctx, from)
	if err != nil {
		return fmt.Errorf("look for the salvage: %w", err)
	}
	if len(list) == 0 {
		return wrong("job %s has no saved changes: see penstock job salvage %s", from.ID, from.ID)
	}
	if base := list[len(list)-1].BaseCommit; job.Repo.Commit != "" && job.Repo.Commit != base {
		return wrong("the saved changes of job %s are based on commit %s, not on repo.commit", from.ID, base)
	}
	return nil
}

// depends refuses a job that depends on one that is not there. So there
// are no cycles: a job that is named was there before.
func (r references) depends(ctx context.Context, job jobs.Job) error {
	invalid := &jobs.InvalidError{}
	for i, id := range job.DependsOn {
		_, err := r.queue.Get(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			invalid.Fields = append(invalid.Fields, jobs.FieldError{Field: fmt.Sprintf("depends_on[%d]", i), Reason: "there is no job " + id})
			continue
		}
		if err != nil {
			return fmt.Errorf("look for the jobs that this one depends on: %w", err)
		}
	}
	if len(invalid.Fields) > 0 {
		return invalid
	}
	return nil
}

// origin returns the capsule that a fork begins from, or nil: it is no fork. What
// could not begin from it is refused.
func (r references) origin(ctx context.Context, job jobs.Job) (*jobs.Capsule, error) {
	if job.Fork == "" {
		return nil, nil
	}
	wrong := func(format string, args ...any) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "fork", Reason: fmt.Sprintf(format, args...)}}}
	}
	from, err := r.queue.Get(ctx, job.Fork)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return nil, wrong("there is no job %s", job.Fork)
	case err != nil:
		return nil, fmt.Errorf("look for the fork's origin: %w", err)
	case from.Repo != job.Repo.URL:
		return nil, wrong("job %s belongs to another repository: its changes are based on a commit there", from.ID)
	case from.Agent != job.Agent.Name:
		return nil, wrong("job %s used agent %s, and no other agent can continue its conversation", from.ID, from.Agent)
	}
	c, err := r.store.LastCapsule(ctx, from)
	if unfit, ok := errors.AsType[*artifact.CapsuleError](err); ok {
		return nil, wrong("job %s cannot be forked: %v", from.ID, unfit)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for a capsule: %w", err)
	case c.Work == nil:
		return nil, wrong("job %s worked in a user's own directory, which cannot be copied", from.ID)
	case job.Repo.Commit != "" && job.Repo.Commit != c.Work.BaseCommit:
		return nil, wrong("job %s began from commit %s, not from repo.commit", from.ID, c.Work.BaseCommit)
	}
	return &c, nil
}
