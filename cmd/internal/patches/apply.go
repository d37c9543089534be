package patches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

// Open finds the work tree of the user that --dir names.
func Open(ctx context.Context, dir string) (*checkout.Tree, error) {
	tree, err := checkout.Open(ctx, dir, os.Environ())
	if err != nil {
		return nil, notThere(err)
	}
	return tree, nil
}

// OpenRepository is Open for what needs the work tree of a git repository.
func OpenRepository(ctx context.Context, dir string) (*checkout.Tree, error) {
	tree, err := Open(ctx, dir)
	if err == nil && tree.Dir() == "" {
		return nil, notThere(fmt.Errorf("there is no git repository around %s", dir))
	}
	return tree, err
}

func notThere(err error) error {
	return cli.Fail(cli.ExitNotFound, "name a work tree with --dir", "%w", err)
}

// Apply applies an agent's patch to the work tree around dir, at its top. An empty
// patch is an error: the user must see that nothing was applied.
func Apply(ctx context.Context, shell cli.Shell, dir string, how checkout.How, patch []byte) error {
	tree, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	done, err := tree.Apply(ctx, patch, how)
	if len(done.Filtered) > 0 {
		shell.Err.Printf("penstock: git filters do not run on files that an agent wrote; %d files are as they are in the repository:\n", len(done.Filtered))
		shell.Err.Some(done.Filtered)
	}
	conflict, conflicts := errors.AsType[*checkout.ConflictError](err)
	switch {
	case errors.Is(err, checkout.ErrEmpty):
		return cli.Fail(cli.ExitNotFound, "", "nothing was applied to %s: %w", tree.Top(), err)
	case conflicts:
		shell.Err.Printf("penstock: these files of %s have conflicts:\n", tree.Top())
		shell.Err.Some(conflict.Files)
		return cli.Fail(cli.ExitFailure, "resolve the conflict markers, then git add the files", "the patch was applied with conflicts in %d of %d files", len(conflict.Files), len(done.Files))
	case err != nil && how.ThreeWay:
		return cli.Fail(cli.ExitFailure, "commit or stash your changes there, or check the result out elsewhere with penstock job worktree", "the patch does not apply to %s: %w", tree.Top(), err)
	case err != nil:
		return cli.Fail(cli.ExitFailure, "merge it with penstock job apply --3way, or check out the result's base_commit first", "the patch does not apply to %s: %w", tree.Top(), err)
	}
	verb := "applied to"
	if how.Check {
		verb = "applies to"
	}
	shell.Err.Printf("penstock: %d files; the patch %s %s\n", len(done.Files), verb, tree.Top())
	return nil
}

// Branch makes the branch of a job's result, a commit on the job's base commit, and returns
// its name and commit. One that is there with another content is an error.
func Branch(ctx context.Context, tree *checkout.Tree, of jobs.Record, base string, patch []byte) (name, commit string, err error) {
	name = jobs.Job{Batch: of.Batch, Item: of.Item}.DeliveryBranch(of.ID)
	title := cmp.Or(strings.Join(strings.Fields(of.Item), " "), "job "+of.ID)
	commit, err = tree.Branch(ctx, checkout.Branch{
		Name: name, Base: base, Message: fmt.Sprintf("Result of %s\n\nPenstock-Job: %s\n", title, of.ID),
	}, patch)
	return name, commit, err
}
