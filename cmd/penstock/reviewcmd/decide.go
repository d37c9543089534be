package reviewcmd

import (
	"bytes"
	"context"
	"errors"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/worker/checkout"
)

// Ways to deliver what is accepted.
const (
	toWorkTree = "apply"
	toBranch   = "branch"
	toPull     = "pr"
)

// set notes what was decided about the result in a record that a person has seen.
func (r *reviewer) set(ctx context.Context, rec jobs.Record, state jobs.ReviewState, comment string) (jobs.Record, error) {
	set, err := r.pool.Client.Review(ctx, operation.ReviewRequest{ID: rec.ID, State: state, Comment: comment, Epoch: rec.Epoch})
	if errors.Is(err, jobs.ErrNotFinished) {
		err = cli.Fail(cli.ExitFailure, "penstock wait "+rec.ID, "%w", err)
	}
	return set, err
}

// accept accepts a result, and then delivers it. If that fails, the result stays accepted. The pool
// notes itself that a pull request is open.
func (r *reviewer) accept(ctx context.Context, rec jobs.Record, how string) (jobs.Record, error) {
	rec, err := r.set(ctx, rec, jobs.Accepted, "")
	switch {
	case err != nil:
		return rec, err
	case how == toPull:
		return r.pool.Client.PullRequest(ctx, operation.PullRequestRequest{ID: rec.ID, Epoch: rec.Epoch})
	case how != toWorkTree && how != toBranch:
		return rec, nil
	}
	var patch bytes.Buffer
	if err := patches.Write(ctx, r.pool, rec, &patch); err != nil {
		return rec, err
	}
	if patch.Len() == 0 {
		return rec, patches.Unchanged(rec)
	}
	if how == toBranch {
		err = r.branch(ctx, rec, patch.Bytes())
	} else {
		err = patches.Apply(ctx, r.shell, r.flags.dir, checkout.How{ThreeWay: true}, patch.Bytes())
	}
	if err != nil {
		return rec, err
	}
	return r.set(ctx, rec, jobs.Delivered, "")
}

func (r *reviewer) branch(ctx context.Context, rec jobs.Record, patch []byte) error {
	result, err := r.pool.Client.Result(ctx, rec.ID)
	if err != nil {
		return err
	}
	tree, err := patches.Open(ctx, r.flags.dir)
	if err != nil {
		return err
	}
	name, commit, err := patches.Branch(ctx, tree, rec, result.BaseCommit, patch)
	if err != nil {
		return cli.Fail(cli.ExitFailure, "", "%w", err)
	}
	r.shell.Err.Printf("penstock: branch %s is at %s\n", name, commit)
	return nil
}

// reject rejects a result. A comment is a prompt to the agent, which goes on with it.
func (r *reviewer) reject(ctx context.Context, rec jobs.Record, comment string) (jobs.Record, error) {
	rec, err := r.set(ctx, rec, jobs.Rejected, comment)
	if err != nil || comment == "" {
		return rec, err
	}
	on, err := r.pool.Client.Resume(ctx, operation.ResumeRequest{ID: rec.ID, Prompt: &control.Message{ID: jobs.NewID(), Verb: control.Prompt, By: "cli", Text: comment}})
	if err != nil {
		return rec, cli.Fail(cli.ExitFailure, "submit another job with what is to change", "job %s is rejected, but its agent does not go on: %w", rec.ID, err)
	}
	if r.pool.Own() {
		r.shell.Err.Printf("penstock: no pool runs on %s; the job waits until one does\n", r.shell.Config.Data)
	}
	return on, nil
}
