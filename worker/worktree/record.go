package worktree

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/worker/internal/commits"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// List returns all records, the oldest first.
func (t *Set) List() ([]Worktree, error) {
	dirs, err := disk.Names(t.dir)
	var all []Worktree
	for _, name := range dirs {
		records, failed := readRecords(filepath.Join(t.dir, name))
		all, err = append(all, records...), errors.Join(err, failed)
	}
	slices.SortFunc(all, func(a, b Worktree) int { return a.Created.Compare(b.Created) })
	return all, err
}

// records are those of one repository's worktrees, in a directory of ours.
type records struct{ dir string }

func (r records) file(name string) string { return filepath.Join(r.dir, flat(name)+".json") }

// writeRecord writes a record so that a reader sees the old one or the new one, and so
// that it is on the disk before git begins.
func (r records) writeRecord(wt Worktree) error {
	return disk.ReplaceFile(r.file(wt.Name), filepath.Join(r.dir, "new"), wt)
}

func readRecords(dir string) ([]Worktree, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	var all []Worktree
	for _, name := range names {
		data, failed := os.ReadFile(name)
		if errors.Is(failed, os.ErrNotExist) {
			continue // removed meanwhile
		}
		var wt Worktree
		if failed == nil {
			failed = json.Unmarshal(data, &wt)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("record %s: %w", name, failed))
			continue
		}
		all = append(all, wt)
	}
	return all, err
}

// maxBundle bounds the size of commits that are brought into a user's repository.
const maxBundle = 1 << 30

// takeCommits brings the result's commits into the repository and returns the last. No
// ref points to them yet, so git's garbage collection may delete them again.
func (s *userRepo) takeCommits(ctx context.Context, r Request) (string, error) {
	if err := s.git().Run(ctx, "cat-file", "-e", r.Base+"^{commit}"); err != nil || !git.IsCommit(r.Base) {
		return "", fmt.Errorf("%s does not have commit %s, which the job began from; fetch it first, or apply the patch alone with penstock job apply", disk.Printable(s.repo), r.Base)
	}
	if r.Bundle == "" {
		return s.commit(ctx, r)
	}
	file, err := os.Open(r.Bundle)
	if err != nil {
		return "", err
	}
	defer file.Close()
	made, err := commits.Bundle{Ref: "refs/heads/" + git.AgentBranch, Base: r.Base, Limit: maxBundle}.Take(ctx, s.git(), bufio.NewReader(file))
	if err != nil {
		return "", err
	}
	return made.Tip, nil
}

// commit makes a commit from a patch. The same result gives the same commit.
func (s *userRepo) commit(ctx context.Context, r Request) (_ string, err error) {
	repo := s.git()
	repo.Index = filepath.Join(s.temp, "index")
	at := r.Finished.UTC().Format(time.RFC3339)
	repo.Set = []string{"user.name=Penstock agent", "user.email=agent@penstock.invalid"}
	repo.Env = append(repo.Env, "GIT_AUTHOR_DATE="+at, "GIT_COMMITTER_DATE="+at)
	defer func() {
		if gone := os.Remove(repo.Index); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	// A killed git may have left its lock; we hold the repository's.
	if err := os.Remove(repo.Index + ".lock"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := repo.Run(ctx, "read-tree", r.Base); err != nil {
		return "", err
	}
	if err := repo.Run(ctx, "apply", "--cached", "--whitespace=nowarn", "--", r.Patch); err != nil {
		return "", fmt.Errorf("the patch does not apply to its own base: %w", err)
	}
	tree, err := repo.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	title, _, _ := strings.Cut(strings.TrimSpace(r.Title), "\n")
	if title == "" {
		title = "Work of a coding agent"
	}
	return repo.Output(ctx, "commit-tree", "-p", r.Base, "-m", title, "-m", "Penstock-Job: "+r.Job, tree)
}
