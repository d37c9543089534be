package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/worker/modelkey"
)

// A Reloader changes a service while it runs, on signals. For each SIGHUP that is meant for
// a service without a terminal it reads the settings again, and takes over what can change:
// the level of its log, the keys of model APIs, and the files of its credential and certificates. SIGUSR1 has it log
// everything, and SIGUSR2 what its settings say, also where a terminal takes SIGHUP. Where no
// signal can be sent, levels does the same.
type Reloader struct {
	// Keys is how its worker takes over keys of model APIs; nil: it has no worker.
	Keys    PrepareKeys
	shell   cli.Shell
	now     cli.Config // the settings as they were read last
	signals chan os.Signal
}

// PrepareKeys reads the keys of model APIs of settings that were read again. Use has a worker use them.
type PrepareKeys func(again cli.Config) (use func() modelkey.Change, err error)

// NewReloader catches the signals from now on, also before the service is ready for them.
func NewReloader(shell cli.Shell) *Reloader {
	r := &Reloader{shell: shell, now: *shell.Config, signals: make(chan os.Signal, 4)}
	signal.Notify(r.signals, syscall.SIGUSR1, syscall.SIGUSR2)
	if !shell.Terminal {
		signal.Notify(r.signals, syscall.SIGHUP)
	}
	return r
}

// Service returns the service that acts on the signals, for a pool, until its context ends.
func (r *Reloader) Service(p *pool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case s := <-r.signals:
				r.act(s, p)
			}
		}
	}
}

func (r *Reloader) act(s os.Signal, p *pool.Pool) {
	switch s {
	case syscall.SIGUSR1:
		setLevel(r.shell, p, slog.LevelDebug, "everything is logged until SIGUSR2 or a reload")
	case syscall.SIGUSR2:
		setLevel(r.shell, p, r.now.Level(), "the log has the level of the settings again")
	default:
		r.reload(p)
	}
}

func (r *Reloader) reload(p *pool.Pool) {
	cfg, err := r.shell.Reread()
	use := func() modelkey.Change { return modelkey.Change{} }
	if err == nil && r.Keys != nil {
		use, err = r.Keys(cfg)
	}
	if err != nil {
		r.failed("the settings stay as they are", err)
		return
	}
	keys := use()
	p.Level.Set(cfg.Level())
	if err := p.Reconnect(); err != nil {
		r.failed("the connection stays as it is", err)
	}
	kept := r.now.Differs(cfg, "log.level", "model.keys")
	r.now.Log.Level = cfg.Log.Level
	attrs := []slog.Attr{slog.String("log_level", cfg.Log.Level), slog.Int("keys_added", keys.Added), slog.Int("keys_removed", keys.Removed)}
	text := fmt.Sprintf("settings were read again: log.level is %s; keys of model APIs: %d added, %d removed; other settings need a restart", cfg.Log.Level, keys.Added, keys.Removed)
	if len(kept) > 0 {
		text += "; changed and not applied: " + strings.Join(kept, ", ")
		attrs = append(attrs, slog.Any("needs_restart", kept))
	}
	servicelog.Say(r.shell, servicelog.Notice{Level: slog.LevelInfo, Text: text, Message: "settings were read again", Attrs: attrs})
}

func (r *Reloader) failed(what string, err error) {
	servicelog.Say(r.shell, servicelog.Notice{Level: slog.LevelError, Text: fmt.Sprintf("%s: %v", what, err), Message: what, Attrs: []slog.Attr{slog.Any("err", err)}})
}
