package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// A Reloader reads the settings of a service again for each SIGHUP that is meant for a
// service without a terminal. It takes over what can change while a service runs: the
// level of its log, and the files of its credential and certificates.
type Reloader struct {
	shell   cli.Shell
	hangups chan os.Signal
}

// NewReloader catches SIGHUP from now on, also before the service is ready to reload.
func NewReloader(shell cli.Shell) *Reloader {
	r := &Reloader{shell: shell, hangups: make(chan os.Signal, 1)}
	if !shell.Terminal {
		signal.Notify(r.hangups, syscall.SIGHUP)
	}
	return r
}

// Service returns the service that reloads the settings, for those of a pool, until its
// context ends.
func (r *Reloader) Service(p *pool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-r.hangups:
				r.reload(p)
			}
		}
	}
}

func (r *Reloader) reload(p *pool.Pool) {
	cfg, err := r.shell.Reread()
	if err != nil {
		r.shell.Err.Printf("penstock: the settings stay as they are: %v\n", err)
		return
	}
	if err := p.Reload(cfg.Level()); err != nil {
		r.shell.Err.Printf("penstock: the connection stays as it is: %v\n", err)
	}
	r.shell.Err.Printf("penstock: settings were read again: log.level is %s; other settings need a restart\n", cfg.Log.Level)
}
