package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/layout"
)

// repair does what is safe, and names each step before it: nothing is lost by it, nothing
// ends, and doing it again does nothing. A dry repair only names the steps.
func repair(ctx context.Context, shell cli.Shell, cmd *cobra.Command, dry bool) error {
	word := "fix"
	if dry {
		word = "would fix"
	}
	tell := func(format string, args ...any) { shell.Progressf(word+": "+format, args...) }
	return errors.Join(closeFiles(shell, dry, tell), makeStreams(ctx, shell, cmd, dry, tell))
}

// closeFiles takes the files with secrets that the settings name away from other users. A
// group keeps what it may: services read files of their group.
func closeFiles(shell cli.Shell, dry bool, tell func(string, ...any)) error {
	c := shell.Config
	files := []string{c.Creds, c.TokenFile, c.TLSClientKey, c.SignKey, c.Serve.TLSKey, c.Serve.HTTPTLSKey, c.Worker.ReceiptKey, signing.OwnReceiptKey(c)}
	for _, hook := range c.Hooks {
		files = append(files, hook.SecretFile, hook.TokenFile)
	}
	for _, key := range c.Model.Keys {
		files = append(files, key.SecretFile)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if file == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o007 == 0 {
			continue
		}
		closed := info.Mode().Perm() &^ 0o007
		tell("%s has a secret, and mode %04o: %04o", file, info.Mode().Perm(), closed)
		if dry {
			continue
		}
		if err := os.Chmod(file, closed); err != nil {
			return fmt.Errorf("close it to other users: %w", err)
		}
	}
	return nil
}

// makeStreams makes what is missing on the broker of a pool that runs. What differs stays:
// penstock nats apply changes that.
func makeStreams(ctx context.Context, shell cli.Shell, cmd *cobra.Command, dry bool, tell func(string, ...any)) error {
	if pool.OverHTTP(shell.Config) {
		return nil
	}
	if _, err := natsd.Find(pool.StoreDir(shell)); err != nil && shell.Config.Server == "" {
		return nil // none runs; serve makes them
	}
	p, err := pool.Reach(shell, "doctor")
	if err != nil {
		return nil //nolint:nilerr // the check of the broker says so
	}
	wanted := pool.WantedLayout(shell, cmd)
	differ, err := layout.Diff(ctx, p.Conn, wanted)
	missing, changed := 0, 0
	for _, d := range differ {
		if d.Way == layout.Create {
			missing++
			tell("%s %s is missing: make it", d.Kind, d.Name)
		} else {
			changed++
		}
	}
	switch {
	case err != nil, missing == 0, dry:
	case changed > 0:
		tell("nothing is made: other streams differ, too, and penstock nats apply does both")
	default:
		_, err = layout.Apply(ctx, p.Conn, wanted, func(layout.Difference) {})
	}
	return errors.Join(err, p.Close())
}
