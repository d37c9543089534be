package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/secrets"
)

// settings are the flags of every command that are settings, too.
func (a *app) settings() *pflag.FlagSet {
	flags := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	flags.StringVar(&a.cfg.Data, "data", a.cfg.Data, "directory for the embedded broker, caches and workspaces")
	flags.StringVarP(&a.cfg.Server, "server", "s", "", "NATS URL of a pool, or https:// address of its HTTP interface; empty uses the data directory's")
	flags.StringVar(&a.cfg.Creds, "creds", "", "credentials file for the pool that runs on --server or --data")
	flags.StringVar(&a.cfg.TokenFile, "token-file", "", "file with the token for a --server of HTTP")
	flags.StringVar(&a.cfg.TLSCA, "tls-ca", "", "authorities of the server's certificate (PEM; default: the system's)")
	flags.StringVar(&a.cfg.TLSClientCert, "tls-client-cert", "", "certificate of this client, if the server requires one (PEM)")
	flags.StringVar(&a.cfg.TLSClientKey, "tls-client-key", "", "its key (PEM)")
	flags.StringVar(&a.cfg.SignKey, "sign-key", "", "ed25519 key that signs each job that this command submits (PEM)")
	flags.Var(input.OneOf(&a.cfg.Log.Level, "debug", "info", "warn", "error"), "log-level", "debug, info, warn or error")
	flags.Var(input.OneOf(&a.cfg.Log.Format, "text", "json"), "log-format", "text or json")
	flags.DurationVar(&a.cfg.Lease, "lease", a.cfg.Lease, "how long a worker may be silent before its jobs go to another")
	return cli.Settings(flags)
}

// load reads the settings for a command line.
func (a *app) load(flags *pflag.FlagSet) error {
	format := a.cfg.Log.Format
	err := a.cfg.Load(flags, a.file, a.secrets)
	if err != nil && a.cfg.Log.Format != "json" {
		a.cfg.Log.Format = format // so that a service says why it ends as it was told to say it
	}
	return err
}

// askedFormat is the format of the log before the settings are read.
func askedFormat() string {
	if os.Getenv(cli.EnvPrefix+"LOG_FORMAT") == "json" {
		return "json"
	}
	return cli.Defaults().Log.Format
}

// secret reads a secret that a job names.
func (a *app) secret(name string) (string, bool) {
	value, ok := a.secrets[secrets.Prefix+name]
	return value, ok
}

// settingsAgain reads the settings as they were read at the start. The
// environment is that of the start.
func (a *app) settingsAgain() (cli.Config, error) {
	again := &app{in: a.in, out: a.out, err: a.err, secrets: a.secrets, cfg: cli.Defaults()}
	cmd, rest, err := again.root(a.args).Find(a.args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = again.load(cmd.Flags())
	}
	return again.cfg, err
}
