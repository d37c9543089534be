package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// endings are the signals that end a command in order. SIGHUP is one of them if it
// means that the terminal has gone, unless it is ignored (nohup).
func (a *app) endings() []os.Signal {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil || signal.Ignored(syscall.SIGHUP) {
		return ends
	}
	_ = tty.Close() // nothing was read
	a.terminal = true
	return append(ends, syscall.SIGHUP)
}

// hangups has a value for each SIGHUP that is meant for a service without a
// terminal: it reads its settings again.
func (a *app) hangups() <-chan os.Signal {
	hups := make(chan os.Signal, 1)
	if !a.terminal {
		signal.Notify(hups, syscall.SIGHUP)
	}
	return hups
}

// reloads takes over what can change while a service runs, until ctx ends: the
// level of its log, and the files of its credential and certificates.
func (a *app) reloads(p *pool.Pool, hups <-chan os.Signal) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hups:
				a.reload(p)
			}
		}
	}
}

func (a *app) reload(p *pool.Pool) {
	cfg, err := a.settingsAgain()
	if err != nil {
		a.err.Printf("penstock: the settings stay as they are: %v\n", err)
		return
	}
	if err := p.Reload(cfg.Level()); err != nil {
		a.err.Printf("penstock: the connection stays as it is: %v\n", err)
	}
	a.err.Printf("penstock: settings were read again: log.level is %s; other settings need a restart\n", cfg.Log.Level)
}

// settingsAgain reads the settings as they were read at the start. The
// environment is that of the start.
func (a *app) settingsAgain() (cli.Config, error) {
	again := &app{in: a.in, out: a.out, err: a.err, secrets: a.secrets, cfg: cli.Defaults()}
	cmd, rest, err := again.root().Find(a.args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = again.cfg.Load(cmd.Flags(), again.file, a.secrets)
	}
	return again.cfg, err
}
