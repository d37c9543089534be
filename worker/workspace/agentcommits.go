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
func (w *Workspace) commits(ctx context.Context, c *Change) (*commits.Branch, error) {
	if w.Strategy() == "" || w.commit == "" {
		return nil, nil // they are in the user's repository, where the agent made them
	}
	if w.Strategy() == Overlay && !w.directory().MayHaveCommits() {
		return nil, nil
	}
	s, err := w.agentCommits(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if disk.IsFull(err) {
		return nil, err
	}
	if err != nil {
		c.Notes = append(c.Notes, "the agent's commits are not part of the result: "+err.Error())
	}
	return s, nil
}

func (w *Workspace) agentCommits(ctx context.Context) (*commits.Branch, error) {
	if w.spaces.cfg.Jail == nil {
		return nil, errors.New("this worker has no jail to read them in")
	}
	return commits.Reader{
		Jail: w.spaces.cfg.Jail, Show: w.show, Label: w.id, Repo: w.repo(), Base: w.commit, File: w.path("agent.bundle"),
		Limit: w.spaces.cfg.Limits.Bytes, Time: w.spaces.commitsTime,
	}.Read(ctx)
}

// publish writes the commits as a bundle of one branch. What the agent did not
// commit becomes a last commit, so that the branch and the patch lead to the
// same files.
func (w *Workspace) publish(ctx context.Context, s *commits.Branch, after changes.State, c *Change) error {
	repo := w.repo()
	repo.Set = append(repo.Set, "user.name=Penstock agent", "user.email=agent@penstock.invalid")
	tree, err := commits.TreeID(ctx, repo, after.Tree)
	if err != nil {
		return err
	}
	c.Head, c.Commits = s.Tip, s.Count
	if tree != s.Tree {
		if c.Head, err = repo.Output(ctx, "commit-tree", "-p", s.Tip, "-m", uncommitted, tree); err != nil {
			return err
		}
		c.Commits++
	}
	// No other process uses this git directory: git's lock would cost another process.
	if err := os.WriteFile(filepath.Join(repo.Dir, "refs/heads", git.AgentBranch), []byte(c.Head+"\n"), 0o600); err != nil {
		return err
	}
	c.Bundle = w.path("bundle")
	return repo.Run(ctx, "bundle", "create", "--quiet", c.Bundle, w.commit+"..refs/heads/"+git.AgentBranch)
}
