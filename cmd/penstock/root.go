package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/penstock/agentcmd"
	"github.com/penstock-run/penstock/cmd/penstock/backupcmd"
	"github.com/penstock-run/penstock/cmd/penstock/chaoscmd"
	"github.com/penstock-run/penstock/cmd/penstock/cleancmd"
	"github.com/penstock-run/penstock/cmd/penstock/deadcmd"
	"github.com/penstock-run/penstock/cmd/penstock/doctorcmd"
	"github.com/penstock-run/penstock/cmd/penstock/insidecmd"
	"github.com/penstock-run/penstock/cmd/penstock/jobcmd"
	"github.com/penstock-run/penstock/cmd/penstock/natscmd"
	"github.com/penstock-run/penstock/cmd/penstock/queuecmd"
	"github.com/penstock-run/penstock/cmd/penstock/sandboxcmd"
	"github.com/penstock-run/penstock/cmd/penstock/schedulecmd"
)

// An app is one call of the program: its streams, its settings, and the flags
// that every subcommand has.
type app struct {
	in       io.Reader
	out, err *console.Writer
	cfg      cli.Config
	file     string
	format   cli.Format
	progress cli.ProgressMode
	// secrets are variables that no other process may read; no process inherits them.
	secrets map[string]string
	// args are the command line, and terminal whether it has one that may go.
	args     []string
	terminal bool
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, a *app, args []string) int {
	a.cfg, a.format, a.progress, a.args = cli.Defaults(), cli.Table, cli.ProgressAuto, args
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := pool.Advise(a.shell(), root.ExecuteContext(ctx))
	err = errors.Join(err, a.out.Close(), a.err.Close())
	return cli.Report(a.err, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock",
		Short: "Run coding agents in parallel, each in a jail, on a queue that loses nothing",
		Long: `Penstock is a worker pool for coding agents. A job is one request to run an
agent on a repository; workers claim jobs, run the agent in a jail, and store
its patch. Without --server a command uses the pool that runs on its data
directory, or starts a pool of its own and stops it at the end.`,
		Version:       release(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
				return nil // which reads the settings when it needs them, and says nothing of them
			}
			if err := checkFlags(cmd); err != nil {
				return err
			}
			return a.cfg.Load(cmd.Flags(), a.file, a.secrets)
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usage("run \""+cmd.CommandPath()+" --help\"", "%w", err)
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&a.file, "config", "c", "", "settings file (default ./penstock.yaml, then the user's)")
	flags.VarP(&a.format, "output", "o", "table, json, jsonl, yaml or id")
	flags.Var(&a.progress, "progress", "progress on standard error: auto, tty, plain or quiet")
	flags.Var(colorFlag{a}, "color", "colors and terminal layout: auto, always or never (NO_COLOR, CLICOLOR_FORCE and FORCE_COLOR apply)")
	flags.AddFlagSet(a.settings())
	shell := a.shell()
	root.AddCommand(
		a.runCommand(), a.batchCommand(), jobcmd.NewSubmit(shell), jobcmd.NewWatch(shell), jobcmd.NewLogs(shell), jobcmd.NewWait(shell),
		jobcmd.NewSend(shell), jobcmd.NewAnswer(shell), jobcmd.NewAttach(shell), jobcmd.NewWhy(shell), jobcmd.New(shell),
		queuecmd.New(shell), schedulecmd.New(shell), deadcmd.New(shell), agentcmd.New(shell), a.serveCommand(), a.workerCommand(), natscmd.New(shell),
		sandboxcmd.New(shell), doctorcmd.New(shell), cleancmd.New(shell), backupcmd.New(shell), backupcmd.NewRestore(shell), chaoscmd.New(shell),
		a.schemaCommand(), a.configCommand(), a.versionCommand(),
	)
	root.AddCommand(insidecmd.New(a.shell())...)
	root.AddCommand(topics()...)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict(root)
	a.complete(root)
	return root
}

// shell is what commands in packages of their own get.
func (a *app) shell() cli.Shell {
	return cli.Shell{In: a.in, Out: a.out, Err: a.err, Config: &a.cfg, Format: &a.format, Progress: &a.progress, Release: release()}
}

// settings are the flags of every command that are settings, too.
func (a *app) settings() *pflag.FlagSet {
	flags := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	flags.StringVar(&a.cfg.Data, "data", a.cfg.Data, "directory for the embedded broker, caches and workspaces")
	flags.StringVarP(&a.cfg.Server, "server", "s", "", "NATS URL of a pool; empty uses the data directory's")
	flags.StringVar(&a.cfg.Creds, "creds", "", "credentials file for the pool that runs on --server or --data")
	flags.StringVar(&a.cfg.TLSCA, "tls-ca", "", "authorities of the server's certificate (PEM; default: the system's)")
	flags.StringVar(&a.cfg.TLSClientCert, "tls-client-cert", "", "certificate of this client, if the server requires one (PEM)")
	flags.StringVar(&a.cfg.TLSClientKey, "tls-client-key", "", "its key (PEM)")
	flags.StringVar(&a.cfg.SignKey, "sign-key", "", "ed25519 key that signs each job that this command submits (PEM)")
	flags.Var(input.OneOf(&a.cfg.Log.Level, "debug", "info", "warn", "error"), "log-level", "debug, info, warn or error")
	flags.Var(input.OneOf(&a.cfg.Log.Format, "text", "json"), "log-format", "text or json")
	flags.DurationVar(&a.cfg.Lease, "lease", a.cfg.Lease, "how long a worker may be silent before its jobs go to another")
	return cli.Settings(flags)
}
