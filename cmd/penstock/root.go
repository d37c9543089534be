package main

import (
	"context"
	"errors"
	"io"
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
	root := a.root()
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
	root.AddCommand(subcommands(shell)...)
	root.SetHelpCommand(strict.NewHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict.Make(root)
	completion.Completer{Shell: shell, Load: a.load}.Add(root)
	return root
}

// subcommands are those of the program, and its pages of help.
func subcommands(shell cli.Shell) []*cobra.Command {
	list := []*cobra.Command{
		runcmd.New(shell), batchcmd.New(shell), jobcmd.NewSubmit(shell), jobcmd.NewWatch(shell), jobcmd.NewLogs(shell), jobcmd.NewWait(shell),
		jobcmd.NewSend(shell), jobcmd.NewAnswer(shell), jobcmd.NewAttach(shell), jobcmd.NewWhy(shell), topcmd.New(shell), reviewcmd.New(shell), jobcmd.New(shell),
		queuecmd.New(shell), eventscmd.New(shell), schedulecmd.New(shell), tokencmd.New(shell), webhookcmd.New(shell), auditcmd.New(shell), costcmd.New(shell), receiptcmd.New(shell), githubcmd.New(shell), deadcmd.New(shell), agentcmd.New(shell), servecmd.New(shell), uicmd.New(shell), workercmd.New(shell), natscmd.New(shell), mcpcmd.New(shell),
		installcmd.New(shell), healthcmd.New(shell), sandboxcmd.New(shell), doctorcmd.New(shell), cleancmd.New(shell), backupcmd.New(shell), backupcmd.NewRestore(shell), chaoscmd.New(shell), benchcmd.New(shell),
		docscmd.New(shell), aboutcmd.NewSchema(shell), aboutcmd.NewConfig(shell), aboutcmd.NewVersion(shell, build()),
	}
	list = append(list, insidecmd.New(shell)...)
	return append(list, aboutcmd.Topics()...)
}

// shell is what commands in packages of their own get.
func (a *app) shell() cli.Shell {
	return cli.Shell{
		In: a.in, Out: a.out, Err: a.err, Config: &a.cfg, Format: &a.format, Progress: &a.progress, Release: release(),
		Secret: a.secret, Terminal: a.terminal, Reread: a.settingsAgain,
	}
}
