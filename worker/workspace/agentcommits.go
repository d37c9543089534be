package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/commits"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// commitsTime bounds the jail that bundles an agent's commits.
const commitsTime = time.Minute

// commits returns the agent's commits, or why there are none.
func (c collection) commits(ctx context.Context, change *Change) (*commits.Branch, error) {
	if c.files.strategy() == "" || c.commit == "" {
		return nil, nil // they are in the user's repository, where the agent made them
	}
	if c.files.strategy() == Overlay && !c.directory().MayHaveCommits() {
		return nil, nil
	}
	made, err := c.readCommits(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if disk.IsFull(err) {
		return nil, err
	}
	if err != nil {
		change.Notes = append(change.Notes, "the agent's commits are not part of the result: "+err.Error())
	}
	return made, nil
}

func (c collection) readCommits(ctx context.Context) (*commits.Branch, error) {
	if c.spaces.cfg.Jail == nil {
		return nil, errors.New("this worker has no jail to read them in")
	}
	return commits.Reader{
		Jail: c.spaces.jail(), Show: c.files.show, Label: c.id, Repo: c.repo(), Base: c.commit, File: c.path("agent.bundle"),
		Limit: c.spaces.cfg.Limits.Bytes, Time: c.spaces.commitsTime,
	}.Read(ctx)
}

// publish writes the commits as a bundle of one branch. What the agent did not
// commit becomes a last commit, so that the branch and the patch lead to the
// same files.
func (c collection) publish(ctx context.Context, made *commits.Branch, after changes.State, change *Change) error {
	repo := c.repo()
	repo.Set = append(repo.Set, "user.name=Penstock agent", "user.email=agent@penstock.invalid")
	tree, err := commits.TreeID(ctx, repo, after.Tree)
	if err != nil {
		return err
	}
	change.Head, change.Commits = made.Tip, made.Count
	if tree != made.Tree {
		if change.Head, err = repo.Output(ctx, "commit-tree", "-p", made.Tip, "-m", uncommitted, tree); err != nil {
			return err
		}
		change.Commits++
	}
	// No other process uses this git directory: git's lock would cost another process.
	if err := os.WriteFile(filepath.Join(repo.Dir, "refs/heads", git.AgentBranch), []byte(change.Head+"\n"), 0o600); err != nil {
		return err
	}
	change.Bundle = c.path("bundle")
	return repo.Run(ctx, "bundle", "create", "--quiet", change.Bundle, c.commit+"..refs/heads/"+git.AgentBranch)
}
