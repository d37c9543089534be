package sandboxcmd

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

// A jailRun is one call of sandbox run.
type jailRun struct {
	shell cli.Shell
	flags jail.Flags

	fileSize, tmp          string
	openFiles              int
	read, write, publish   []string
	readOnly, ask, explain bool
	home, label            string
	timeout                time.Duration

	policy  policy.Policy
	asked   jobs.Sandbox
	dir     string   // the workspace
	allowed []string // hosts
	rules   proxy.Rules
	token   string // of the proxy; empty: no other process can reach it
	spec    sandbox.Spec
	jail    sandbox.Backend
	tried   bool // jail can make one
	asker   *policy.Asker
	seen    *policy.Watch
}

func runCommand(shell cli.Shell) *cobra.Command {
	r := &jailRun{shell: shell}
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a jail, with the current directory as its workspace",
		Long: `Run starts a command in a jail. The current directory is its workspace, at
/workspace; its home, its temporary files and its network are private and start
empty. Flags or a policy grant it more.

The exit code is the command's, or 128+n if signal n ended it. 124: --timeout was
reached. 125: the jail could not be made. 126, 127: the command could not be executed,
or was not found. 2: a flag is wrong. 6: the policy does not permit it. 130:
interrupted. Ctrl-C asks the command to end and kills it after five seconds.`,
		Example: `  penstock sandbox run -- npm test
  penstock sandbox run --network allowlist --allow-host registry.npmjs.org -- npm ci
  penstock sandbox run --policy policy.yaml --memory 2GiB --explain -- make`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			if len(before) > 0 || len(command) == 0 {
				return cli.Usage("write the command after --, as in: penstock sandbox run -- make test", "no command given")
			}
			return r.run(cmd.Context(), command)
		},
	}
	r.flags.Add(cmd.Flags())
	r.add(cmd.Flags())
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	return cmd
}

func (r *jailRun) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&r.read, "read", nil, "path that the command may read: /absolute, ~/in-the-home or ./in-the-current-directory; *, ? and [a-z] match (repeatable)")
	flags.StringArrayVar(&r.write, "write", nil, "path that the command may read and write (repeatable)")
	flags.BoolVar(&r.readOnly, "read-only", false, "make the workspace read-only")
	flags.StringArrayVar(&r.publish, "publish", nil, "[HOST:]PORT[:JAILPORT]: forward a port of this host to the jail; 0 is any free one (repeatable)")
	flags.StringVar(&r.home, "home", "", "directory to use as the command's home (default: a private one, in memory)")
	flags.StringVar(&r.label, "label", "", "name of the jail: a-z, 0-9, dot and dash (default: a new one)")
	flags.DurationVar(&r.timeout, "timeout", 0, "end the command after this time")
	flags.StringVar(&r.fileSize, "file-size", "", "limit of one file, as in 1GiB (default 16GiB)")
	flags.IntVar(&r.openFiles, "open-files", 0, "open files of one process (default 65536)")
	flags.StringVar(&r.tmp, "tmp", "", "size of /tmp, and of a private home (default 1GiB)")
	flags.BoolVar(&r.ask, "ask", false, "ask on the terminal about hosts and paths that are not listed; no answer in 30 s means no")
	flags.BoolVar(&r.explain, "explain", false, "describe the jail, and exit")
}

func (r *jailRun) run(ctx context.Context, command []string) error {
	if err := r.prepare(ctx, command); err != nil {
		return err
	}
	if r.explain {
		return r.print(ctx)
	}
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, errTimeout)
		defer cancel()
	}
	return r.execute(ctx)
}

// prepare turns flags and policy into a jail that is permitted.
func (r *jailRun) prepare(ctx context.Context, command []string) error {
	file, err := jail.LoadPolicy(r.shell.Config)
	if err != nil {
		return err
	}
	r.policy = file.Policy // what it says about jobs has no meaning here
	if r.dir, err = r.workspace(); err != nil {
		return err
	}
	if r.label == "" {
		r.label = "run-" + strings.ToLower(rand.Text()[:8])
	}
	r.seen = policy.NewWatch(r.label, jail.Keep(jail.Violations(r.shell.Config), func(err error) { r.shell.Err.Printf("penstock: %v\n", err) }))
	if r.ask {
		r.asker = policy.NewAsker(askOnTerminal, 0)
		tty, err := openTTY()
		if err == nil {
			err = tty.Close()
		}
		if err != nil {
			r.shell.Err.Printf("penstock: --ask: there is no terminal to ask on; hosts and paths that are not listed are refused\n")
		}
	}
	if err := r.describe(command); err != nil {
		return err
	}
	if r.jail = r.untried(); r.jail == nil {
		r.tried = true
		if r.jail, err = r.choose(ctx); err != nil {
			return err
		}
	}
	if err := r.permitted(ctx); err != nil {
		return err
	}
	return r.complete()
}
