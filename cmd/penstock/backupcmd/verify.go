package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/recovery"
)

// verify restores a file to a broker of its own, in a directory beside the file, and
// compares what is there with it. Then it does what a restore does besides, since that must
// succeed, too.
func verify(ctx context.Context, shell cli.Shell, path string) (err error) {
	f, err := backup.Open(path)
	if err != nil {
		return fmt.Errorf("verify it: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	scratch, err := os.MkdirTemp(filepath.Dir(path), temporary+"*")
	if err != nil {
		return fmt.Errorf("verify it: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	cfg := *shell.Config
	cfg.Server, cfg.Replicas = "", 1 // whatever the pool has
	shell.Config = &cfg
	err = atBroker(shell, scratch, "backup", func(p *pool.Pool) error {
		if err := f.Restore(ctx, p.Conn, cfg.Replicas, nil); err != nil {
			return err
		}
		if err := f.Compare(ctx, p.Conn); err != nil {
			return err
		}
		return conclude(ctx, shell, p, f, func(recovery.Loss) {})
	})
	if err != nil {
		hint := "it needs as much room in " + filepath.Dir(path) + " as the pool takes; --verify=false leaves it out"
		if _, differs := errors.AsType[*backup.DifferentError](err); differs {
			hint = "check the disk of " + filepath.Dir(path) + ", and take another backup"
		}
		return cli.Fail(cli.ExitUnexpected, hint, "verify it by restoring it: %w", pool.Cause(ctx, err))
	}
	shell.Progressf("restored to a broker of its own, where all is as in the backup")
	return nil
}
