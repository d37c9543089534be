package jobcmd

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
)

func artifacts(shell cli.Shell) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "artifacts ID [NAME|PATH]", Short: "List and fetch the artifacts of a finished job", Args: cobra.RangeArgs(1, 2),
		Long: `Artifacts lists the stored files of a job's last attempt: its patch, its commits, and
the files of the workspace that the job named (--artifact). With a name, or a path in
the workspace, it prints that file. With --out it writes files to a directory: those
of the workspace below "workspace", the others beside it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				if rec.State != jobs.Finished {
					return cli.Fail(cli.ExitNotFound, "penstock wait "+rec.ID, "job %s is %s: it has no artifacts yet", rec.ID, rec.State)
				}
				result, err := p.Client.Result(ctx, rec.ID)
				if err != nil {
					return err
				}
				list, err := choose(result, args[1:])
				switch {
				case err != nil:
					return err
				case out != "":
					return artifactWriter{pool: p, err: shell.Err, dir: out}.write(ctx, rec, list)
				case len(args) > 1:
					return p.Artifact(ctx, rec.ID, rec.Epoch, list[0].Name, shell.Out)
				}
				return jobview.Artifacts.List(shell.Out, *shell.Format, list)
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory to write to")
	return cmd
}

// choose returns the artifact that is named, or all.
func choose(result jobs.Result, named []string) ([]jobs.Artifact, error) {
	if len(named) == 0 {
		return result.Artifacts, nil
	}
	i := slices.IndexFunc(result.Artifacts, func(f jobs.Artifact) bool { return f.Name == named[0] || f.Path == named[0] })
	if i < 0 { // what the agent sent is found by the name that it had there, too
		i = slices.IndexFunc(result.Artifacts, func(f jobs.Artifact) bool { return f.Name == artifact.SentPrefix+named[0] })
	}
	if i < 0 {
		return nil, cli.Fail(cli.ExitNotFound, "penstock job artifacts "+result.Job+" lists them", "job %s has no artifact %s", result.Job, named[0])
	}
	return result.Artifacts[i : i+1], nil
}

// An artifactWriter writes artifacts to files below a directory.
type artifactWriter struct {
	pool *pool.Pool
	err  *console.Writer // for people
	dir  string
}

// write writes files of a job's last attempt below the directory, and nowhere else: their
// paths are an agent's.
func (w artifactWriter) write(ctx context.Context, rec jobs.Record, list []jobs.Artifact) error {
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, file := range list {
		to := placeOf(file)
		if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			return cli.Fail(cli.ExitUsage, "name another directory", "%s already exists", filepath.Join(w.dir, to))
		}
		if err != nil {
			return err
		}
		if err := errors.Join(w.pool.Artifact(ctx, rec.ID, rec.Epoch, file.Name, f), f.Close()); err != nil {
			return errors.Join(err, root.Remove(to))
		}
		w.err.Printf("penstock: wrote %s\n", filepath.Join(w.dir, to))
	}
	return nil
}

// placeOf is where a file is written. One whose path is quoted, because it is
// no plain text, has the name that it has in the store.
func placeOf(file jobs.Artifact) string {
	switch {
	case file.Path == "":
		return file.Name
	case strings.HasPrefix(file.Path, `"`) || !filepath.IsLocal(file.Path):
		return path.Join("workspace", file.Name)
	}
	return path.Join("workspace", file.Path)
}
