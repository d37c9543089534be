package jobcmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/checkout"
)

var salvageView = cli.View[jobs.Salvage]{
	Header: []string{"JOB", "EPOCH", "WHY", "WORKER", "FILES", "COMMITS", "BYTES", "STORED", "BASE"},
	Row: func(s jobs.Salvage) []string {
		return []string{
			s.Job, strconv.FormatUint(s.Epoch, 10), string(s.Why), s.Worker, strconv.Itoa(s.Files), strconv.Itoa(s.Commits),
			strconv.FormatInt(s.Bytes, 10), s.Stored.Local().Format(time.DateTime), console.ShortID(s.BaseCommit),
		}
	},
	ID: func(s jobs.Salvage) string { return strconv.FormatUint(s.Epoch, 10) },
}

// salvageWish is what one call of job salvage is to do.
type salvageWish struct {
	epoch      uint64
	show       bool
	apply, out string
}

func salvageCommand(shell cli.Shell) *cobra.Command {
	var wish salvageWish
	cmd := &cobra.Command{
		Use: "salvage ID", Short: "Show and restore the saved changes of attempts without success", Args: cobra.ExactArgs(1),
		Long: `Salvage lists the saved changes of a job's attempts that did not succeed, the newest
last. With --show it prints the patch of one, with --apply it applies that patch to a
work tree, and with --restore it writes patch and commits to a directory: those of the
newest attempt, unless --epoch names another.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				shown, err := p.Client.Show(ctx, rec.ID)
				if err != nil {
					return err
				}
				return salvage(ctx, shell, p, shown.Salvages, wish)
			})
		},
	}
	cmd.Flags().Uint64Var(&wish.epoch, "epoch", 0, "only the attempt with this epoch")
	cmd.Flags().BoolVar(&wish.show, "show", false, "print the patch")
	cmd.Flags().StringVar(&wish.apply, "apply", "", "directory in the work tree to apply the patch to, as job apply does")
	cmd.Flags().StringVar(&wish.out, "restore", "", "directory to write patch and commits to; it must not exist, or be empty")
	cmd.MarkFlagsMutuallyExclusive("show", "apply", "restore")
	return cmd
}

func salvage(ctx context.Context, shell cli.Shell, p *pool.Pool, list []jobs.Salvage, wish salvageWish) error {
	var found []jobs.Salvage
	for _, s := range list {
		if wish.epoch == 0 || s.Epoch == wish.epoch {
			found = append(found, s)
		}
	}
	if !wish.show && wish.apply == "" && wish.out == "" {
		return salvageView.List(shell.Out, *shell.Format, found)
	}
	if len(found) == 0 {
		return cli.Fail(cli.ExitNotFound, "a job that succeeded has a result instead: penstock job diff", "nothing was salvaged from this job, or from that epoch")
	}
	s := found[len(found)-1]
	switch {
	case wish.show:
		return p.Artifact(ctx, s.Job, s.Epoch, s.Patch.Name, shell.Out)
	case wish.out != "":
		return restore(ctx, shell, p, s, wish.out)
	}
	var patch bytes.Buffer
	if err := p.Artifact(ctx, s.Job, s.Epoch, s.Patch.Name, &patch); err != nil {
		return err
	}
	if patch.Len() == 0 {
		return cli.Fail(cli.ExitNotFound, "--restore writes them", "the salvage of epoch %d has commits only: nothing was applied", s.Epoch)
	}
	return patches.Apply(ctx, shell, wish.apply, checkout.How{}, patch.Bytes())
}

// restore writes a salvage into a directory of its own.
func restore(ctx context.Context, shell cli.Shell, p *pool.Pool, s jobs.Salvage, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := map[string]*jobs.Artifact{worker.PatchName: s.Patch, worker.BundleName: s.Bundle}
	for name, artifact := range names {
		if artifact == nil {
			continue
		}
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			return cli.Fail(cli.ExitUsage, "name another directory", "%s already exists", path)
		}
		if err != nil {
			return err
		}
		if err := errors.Join(p.Artifact(ctx, s.Job, s.Epoch, artifact.Name, f), f.Close()); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		shell.Err.Printf("penstock: wrote %s\n", path)
	}
	return nil
}
