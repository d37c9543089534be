package batchcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/chosen"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/jobs"
)

// An exported result is the file or the branch that was made of it.
type exported struct {
	Job    string `json:"job"`
	Item   string `json:"item"`
	File   string `json:"file,omitempty"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
	URL    string `json:"url,omitempty"` // of the pull request
	State  string `json:"state,omitempty"`
}

var exportView = cli.View[exported]{
	Header: []string{"JOB", "ITEM", "FILE", "BRANCH", "COMMIT", "PULL REQUEST"},
	Row: func(e exported) []string {
		return []string{e.Job, e.Item, e.File, e.Branch, e.Commit, cmp.Or(e.URL, e.State)}
	},
	ID: func(e exported) string { return e.Job },
}

func export(shell cli.Shell) *cobra.Command {
	var patches, dir, agent string
	var branches, prs bool
	cmd := &cobra.Command{
		Use: "export DIR|ID", Short: "Write the patches of a batch's successful jobs to files, or make a branch or a pull request of each", Args: cobra.ExactArgs(1),
		Long: `Export writes ITEM.patch into the directory --patches for each successful job that
changed a file, or with --branches makes the branch penstock/BATCH/ITEM in the repository
around --dir, a commit on the job's base commit. With --prs the pool opens a draft pull
request of each branch that a job has delivered (--deliver branch), and the command waits
until it has. The same command again does only what is missing. A file or a branch that is
there with another content is an error, and stays.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if only := slices.DeleteFunc([]bool{patches != "", branches, prs}, func(is bool) bool { return !is }); len(only) != 1 {
				return cli.Usage("use --patches DIR, --branches or --prs", "where to export to is not clear")
			}
			return chosen.With(cmd.Context(), shell, args[0], func(c chosen.Results) error {
				if err := c.Only(agent); err != nil {
					return err
				}
				c.Tell(shell)
				if len(c.List) == 0 {
					return c.None()
				}
				if prs {
					return openAll(cmd.Context(), shell, c)
				}
				to, err := target(cmd.Context(), c.Batch, patches, dir)
				if err != nil {
					return err
				}
				return exportAll(cmd.Context(), shell, c, to)
			})
		},
	}
	cmd.Flags().StringVar(&patches, "patches", "", "directory to write the patches to; it is made")
	cmd.Flags().StringVar(&agent, "agent", "", "of a batch that compares agents: only the results of this one")
	cmd.Flags().BoolVar(&branches, "branches", false, "make branches")
	cmd.Flags().BoolVar(&prs, "prs", false, "have the pool open draft pull requests of the branches that the jobs have delivered")
	cmd.Flags().StringVar(&dir, "dir", ".", "directory in the repository to make the branches in")
	return cmd
}

// exportAll exports each result, also those after one that cannot be.
func exportAll(ctx context.Context, shell cli.Shell, c chosen.Results, one func(jobs.Result, []byte) (exported, error)) error {
	var list []exported
	var errs []error
	for _, r := range c.List {
		patch, err := c.Patch(ctx, r)
		var e exported
		if err == nil {
			e, err = one(r, patch)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("item %s: %w", r.ID, err))
			continue
		}
		e.Job, e.Item = r.Job, r.ID
		list = append(list, e)
	}
	return listExported(shell, list, errs)
}

// listExported shows what was exported, and ends with what could not be.
func listExported(shell cli.Shell, list []exported, errs []error) error {
	err := errors.Join(errs...)
	if err != nil {
		err = cli.Fail(cli.ExitFailure, "", "%w", err)
	}
	return errors.Join(exportView.List(shell.Out, *shell.Format, list), err)
}

// target is the directory for patches, or where that is empty the repository around dir.
func target(ctx context.Context, batch, files, dir string) (func(jobs.Result, []byte) (exported, error), error) {
	if files != "" {
		return toFiles(files)
	}
	tree, err := patches.OpenRepository(ctx, dir)
	return func(r jobs.Result, patch []byte) (exported, error) {
		name, commit, err := patches.Branch(ctx, tree, jobs.Record{ID: r.Job, Batch: batch, Item: r.ID}, r.BaseCommit, patch)
		return exported{Branch: name, Commit: commit}, err
	}, err
}

func toFiles(path string) (func(jobs.Result, []byte) (exported, error), error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return func(r jobs.Result, patch []byte) (exported, error) {
		root, err := os.OpenRoot(path)
		if err != nil {
			return exported{}, err
		}
		defer root.Close()
		name := r.ID + ".patch"
		if r.ID == "" || strings.ContainsAny(r.ID, `/\`) || strings.HasPrefix(r.ID, ".") {
			name = r.Job + ".patch"
		}
		old, err := root.ReadFile(name)
		switch {
		case err == nil && !bytes.Equal(old, patch):
			return exported{}, fmt.Errorf("%s: there is another file of that name", name)
		case errors.Is(err, fs.ErrNotExist):
			err = put(root, name, patch)
		}
		return exported{File: name}, err
	}, nil
}

// put writes a file whole or not at all.
func put(root *os.Root, name string, data []byte) error {
	tmp := ".tmp-" + jobs.NewID()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	return nil
}
