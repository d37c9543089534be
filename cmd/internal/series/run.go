package series

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/worker/checkout"
)

// Run merges the patches of all steps that are left, and ends the series after the last.
// Where one cannot be merged it returns a [*StopError]. Told is called after each.
func (s *Series) Run(ctx context.Context, source Source, told func(Step)) error {
	for i := range s.Steps {
		if s.Steps[i].over() {
			continue
		}
		if err := s.step(ctx, i, source); err != nil {
			return err
		}
		told(s.Steps[i])
	}
	return s.Quit()
}

// set gives a step a state, on the disk.
func (s *Series) set(i int, state State) error {
	s.Steps[i].State = state
	return s.save()
}

func (s *Series) step(ctx context.Context, i int, source Source) error {
	step := &s.Steps[i]
	if step.State != Waiting {
		if err := s.settle(ctx, i); err != nil || step.over() {
			return err
		}
	}
	patch, err := Fetch(ctx, *step, source)
	if err != nil {
		return err
	}
	if len(patch) == 0 {
		return s.set(i, Unchanged)
	}
	effect, err := s.rehearse(ctx, patch)
	if err != nil {
		return &StopError{*step, err}
	}
	reach, _, err := s.tree.Reached(ctx, effect.Before)
	if err == nil && reach != checkout.Untouched {
		// Restore must not take them for a part of the patch.
		err = ErrUncommitted
	}
	if err != nil {
		return &StopError{*step, err}
	}
	step.Before = effect.Before
	if err := s.set(i, Applying); err != nil {
		return err
	}
	done, err := s.tree.Apply(ctx, patch, checkout.How{ThreeWay: true})
	step.Filtered = done.Filtered
	conflict, conflicts := errors.AsType[*checkout.ConflictError](err)
	switch {
	case err == nil:
		return s.set(i, Applied)
	case conflicts:
		step.Conflicts = conflict.Files
		return errors.Join(s.set(i, Conflict), &StopError{Step: *step})
	case ctx.Err() != nil:
		return context.Cause(ctx) // what git has done is found out when it goes on
	}
	return errors.Join(s.set(i, Waiting), &StopError{*step, err})
}

// Fetch returns a step's patch, if it is still the one that the step was made for.
func Fetch(ctx context.Context, step Step, source Source) ([]byte, error) {
	patch, err := source(ctx, step)
	if err != nil {
		return nil, fmt.Errorf("patch of job %s: %w", step.Job, err)
	}
	sum := sha256.Sum256(patch)
	if got := hex.EncodeToString(sum[:]); step.SHA256 != "" && got != step.SHA256 {
		return nil, fmt.Errorf("the patch of job %s has sha256 %s, its result says %s: it was changed", step.Job, got, step.SHA256)
	}
	return patch, nil
}

func (s *Series) rehearse(ctx context.Context, patch []byte) (effect checkout.Effect, err error) {
	r, err := s.tree.Rehearse(ctx)
	if err != nil {
		return effect, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.Try(ctx, patch)
}

// settle finds out what became of a step that was begun: it is applied, or waits again, or
// has conflicts, which are a [*StopError].
func (s *Series) settle(ctx context.Context, i int) error {
	step := &s.Steps[i]
	reach, conflicts, err := s.tree.Reached(ctx, step.Before)
	if err != nil {
		return err
	}
	step.Conflicts = conflicts
	switch {
	case len(conflicts) > 0:
		return errors.Join(s.set(i, Conflict), &StopError{Step: *step})
	case step.State == Conflict || reach == checkout.Written:
		return s.set(i, Applied)
	case reach == checkout.Partly:
		if _, err := s.tree.Restore(ctx, step.Before); err != nil {
			return err
		}
	}
	return s.set(i, Waiting)
}

// Skip leaves out the step at which the series has stopped: what it changed is put back. The
// contents that this replaces are in the repository, as Restore says.
func (s *Series) Skip(ctx context.Context) (skipped Step, saved []string, err error) {
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.over() {
			continue
		}
		if step.State == Applying {
			if err := s.settle(ctx, i); err != nil && step.State != Conflict {
				return *step, nil, err
			}
			if step.over() {
				continue
			}
		}
		if step.State == Conflict {
			if saved, err = s.tree.Restore(ctx, step.Before); err != nil {
				return *step, nil, err
			}
		}
		return *step, saved, s.set(i, Skipped)
	}
	return skipped, nil, nil
}

// Rehearse says of each step what would become of it, and changes nothing. The patches meet
// those before them, but for those that would stop the series.
func Rehearse(ctx context.Context, tree *checkout.Tree, steps []Step, source Source) (err error) {
	r, err := tree.Rehearse(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for i := range steps {
		step := &steps[i]
		patch, err := Fetch(ctx, *step, source)
		if err != nil {
			return err
		}
		effect, err := r.Try(ctx, patch)
		step.Before, step.Conflicts = effect.Before, effect.Conflicts
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, checkout.ErrEmpty):
			step.State = Unchanged
		case len(effect.Conflicts) > 0:
			step.State = Conflict
		case err != nil:
			step.State, step.Why = Refused, err.Error()
		default:
			step.State = Applies
		}
	}
	return nil
}
