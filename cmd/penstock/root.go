package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/completion"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/strict"
	"github.com/penstock-run/penstock/cmd/penstock/aboutcmd"
	"github.com/penstock-run/penstock/cmd/penstock/agentcmd"
	"github.com/penstock-run/penstock/cmd/penstock/auditcmd"
	"github.com/penstock-run/penstock/cmd/penstock/backupcmd"
	"github.com/penstock-run/penstock/cmd/penstock/batchcmd"
	"github.com/penstock-run/penstock/cmd/penstock/benchcmd"
	"github.com/penstock-run/penstock/cmd/penstock/chaoscmd"
	"github.com/penstock-run/penstock/cmd/penstock/cleancmd"
	"github.com/penstock-run/penstock/cmd/penstock/costcmd"
	"github.com/penstock-run/penstock/cmd/penstock/deadcmd"
	"github.com/penstock-run/penstock/cmd/penstock/docscmd"
	"github.com/penstock-run/penstock/cmd/penstock/doctorcmd"
	"github.com/penstock-run/penstock/cmd/penstock/eventscmd"
	"github.com/penstock-run/penstock/cmd/penstock/githubcmd"
	"github.com/penstock-run/penstock/cmd/penstock/healthcmd"
	"github.com/penstock-run/penstock/cmd/penstock/insidecmd"
	"github.com/penstock-run/penstock/cmd/penstock/installcmd"
	"github.com/penstock-run/penstock/cmd/penstock/jobcmd"
	"github.com/penstock-run/penstock/cmd/penstock/mcpcmd"
	"github.com/penstock-run/penstock/cmd/penstock/natscmd"
	"github.com/penstock-run/penstock/cmd/penstock/queuecmd"
	"github.com/penstock-run/penstock/cmd/penstock/receiptcmd"
	"github.com/penstock-run/penstock/cmd/penstock/reviewcmd"
	"github.com/penstock-run/penstock/cmd/penstock/runcmd"
	"github.com/penstock-run/penstock/cmd/penstock/sandboxcmd"
	"github.com/penstock-run/penstock/cmd/penstock/schedulecmd"
	"github.com/penstock-run/penstock/cmd/penstock/servecmd"
	"github.com/penstock-run/penstock/cmd/penstock/tokencmd"
	"github.com/penstock-run/penstock/cmd/penstock/topcmd"
	"github.com/penstock-run/penstock/cmd/penstock/uicmd"
	"github.com/penstock-run/penstock/cmd/penstock/webhookcmd"
	"github.com/penstock-run/penstock/cmd/penstock/workercmd"
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
	exposed error // why some of them may be read all the same
	// args are the command line, and terminal whether it has one that may go.
	args     []string
	terminal bool
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, a *app, args []string) int {
	a.cfg, a.format, a.progress, a.args = cli.Defaults(), cli.Table, cli.ProgressAuto, args
	a.cfg.Log.Format = askedFormat()
	root := a.root(args)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	err = errors.Join(pool.Advise(a.shell(), err), a.out.Close(), a.err.Close())
	return servicelog.End(a.shell(), cmd.Annotations, err)
}

// tell says that secrets may be read by other processes.
func (a *app) tell(cmd *cobra.Command) {
	if a.exposed != nil {
		servicelog.Warn(a.shell(), cmd.Annotations, a.exposed)
	}
}

// root is the program's command, with what a command line needs of the others: all, where it is nil.
func (a *app) root(args []string) *cobra.Command {
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
				return strict.Unknown(cmd, args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
				return nil // which reads the settings when it needs them, and says nothing of them
			}
			if err := strict.CheckFlags(cmd); err != nil {
				return err
			}
			if err := a.load(cmd.Flags()); err != nil {
				return err
			}
			servicelog.Adopt(a.shell(), cmd.Annotations)
			a.tell(cmd)
			return pool.CheckServer(&a.cfg, strings.TrimPrefix(cmd.CommandPath(), "penstock "))
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usage("run \""+cmd.CommandPath()+" --help\"", "%w", err)
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&a.file, "config", "c", "", "settings file (default ./penstock.yaml, then the user's)")
	flags.VarP(&a.format, "output", "o", "table, json, jsonl, yaml or id")
	flags.Var(&a.progress, "progress", "progress on standard error: auto, tty, plain or quiet")
	flags.Var(colorFlag{a.out, a.err}, "color", "colors and terminal layout: auto, always or never (NO_COLOR, CLICOLOR_FORCE and FORCE_COLOR apply)")
	flags.AddFlagSet(a.settings())
	shell := a.shell()
	root.AddCommand(subcommands(shell, args)...)
	root.SetHelpCommand(strict.NewHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict.Make(root)
	completion.Completer{Shell: shell, Load: a.load}.Add(root)
	return root
}

// constructors make the commands of the program, by their names.
var constructors = map[string]func(cli.Shell) *cobra.Command{
	"run": runcmd.New, "batch": batchcmd.New, "submit": jobcmd.NewSubmit, "watch": jobcmd.NewWatch,
	"logs": jobcmd.NewLogs, "wait": jobcmd.NewWait, "send": jobcmd.NewSend, "answer": jobcmd.NewAnswer,
	"attach": jobcmd.NewAttach, "why": jobcmd.NewWhy, "top": topcmd.New, "review": reviewcmd.New,
	"job": jobcmd.New, "queue": queuecmd.New, "events": eventscmd.New, "schedule": schedulecmd.New,
	"token": tokencmd.New, "webhook": webhookcmd.New, "audit": auditcmd.New, "cost": costcmd.New,
	"receipt": receiptcmd.New, "github": githubcmd.New, "dead": deadcmd.New, "agent": agentcmd.New,
	"serve": servecmd.New, "ui": uicmd.New, "worker": workercmd.New, "nats": natscmd.New, "mcp": mcpcmd.New,
	"install": installcmd.New, "health": healthcmd.New, "sandbox": sandboxcmd.New, "doctor": doctorcmd.New,
	"clean": cleancmd.New, "backup": backupcmd.New, "restore": backupcmd.NewRestore, "chaos": chaoscmd.New,
	"bench": benchcmd.New, "schema": aboutcmd.NewSchema, "config": aboutcmd.NewConfig,
	"version": func(shell cli.Shell) *cobra.Command { return aboutcmd.NewVersion(shell, build()) },
}

// subcommands are the one that a command line begins with, or all of the program and its
// pages of help. To make all takes as long as the rest of a start.
func subcommands(shell cli.Shell, args []string) []*cobra.Command {
	if len(args) > 0 {
		if one := constructors[args[0]]; one != nil {
			return []*cobra.Command{one(shell)}
		}
	}
	list := append(insidecmd.New(shell), docscmd.New(shell)) // whose manual is of all
	list = append(list, aboutcmd.Topics()...)
	for _, name := range slices.Sorted(maps.Keys(constructors)) {
		list = append(list, constructors[name](shell))
	}
	return list
}

// shell is what commands in packages of their own get.
func (a *app) shell() cli.Shell {
	return cli.Shell{
		In: a.in, Out: a.out, Err: a.err, Config: &a.cfg, Format: &a.format, Progress: &a.progress, Release: release(),
		Secret: a.secret, Terminal: a.terminal, Reread: a.settingsAgain,
	}
}
