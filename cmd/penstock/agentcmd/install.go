package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/visible"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agentstore"
)

func newInstall(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "install NAME@VERSION", Short: "Install a version of an agent beside others", Args: cobra.ExactArgs(1),
		Long: `Install brings a version of an agent to this host, beside the other versions and beside the agent
in PATH: into agents/ of the data directory. Jobs that name the version (--agent-version) are then
claimed by the workers of this data directory, within seconds; they need no restart.

The program npm fetches the agent's package, with this user's settings of registry, proxy and
credentials. No script of a package runs. The program is started once, with --version, in a jail if
this host has one. What is installed is described by the SHA-256 of all its files, which workers
compare before they start it.

It may be interrupted at any time, and run twice at once. What a killed one leaves is removed by the
next install or remove.`,
		Example: `  penstock agent install codex@0.169.0
  penstock agent install claude@2.1.329 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return install(cmd.Context(), shell, args[0]) },
	}
}

// named splits NAME@VERSION, and finds the agent and its package.
func named(agents *agent.Agents, text string) (about agent.About, version string, err error) {
	name, version, _ := strings.Cut(text, "@")
	adapter, err := agents.Get(name)
	if err != nil {
		return about, "", cli.Fail(cli.ExitNotFound, "penstock agent ls lists them; a settings file adds others under agents:", "%w", err)
	}
	about = adapter.About()
	if about.Package.Name == "" {
		return about, "", cli.Usage("a settings file names the package: agents."+name+".package", "agent %s comes from no package of npm that is known", name)
	}
	if err := jobs.CheckAgentVersion(version); err != nil {
		return about, "", cli.Usage("npm view "+about.Package.Name+" versions lists them", "%s: %w", text, err)
	}
	return about, version, nil
}

func install(ctx context.Context, shell cli.Shell, text string) error {
	agents := workerparts.Agents(shell.Config)
	about, version, err := named(agents, text)
	if err != nil {
		return err
	}
	i, fresh, err := bring(ctx, shell, agents, about, version)
	if err != nil {
		return err
	}
	if fresh {
		shell.Progressf("%s is installed; jobs name it with --agent %s --agent-version %s", text, about.Name, version)
	} else {
		shell.Progressf("%s was installed already", text)
	}
	return versionView.One(shell.Out, *shell.Format, installed{Agent: about.Name, Installed: i})
}

// findNPM finds npm, for what it does.
func findNPM(does string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", cli.Fail(cli.ExitNotFound, "install Node.js, which has it: https://nodejs.org", "there is no npm in PATH, which %s", does)
	}
	return npm, nil
}

// bring installs a version of an agent, unless it is there.
func bring(ctx context.Context, shell cli.Shell, agents *agent.Agents, about agent.About, version string) (i agentstore.Installed, fresh bool, err error) {
	npm, err := findNPM("fetches the package " + about.Package.Name)
	if err != nil {
		return i, false, err
	}
	step := newStep(shell, about.Name+"@"+version)
	defer step.end()
	i, fresh, err = agents.Store().Install(ctx, agentstore.Request{
		Package: about.Package, Version: version, NPM: npm, Env: npmEnvironment(os.Environ()), Step: step.begin,
		Try: func(ctx context.Context, i agentstore.Installed) error { return try(ctx, shell, agents, about, i) },
	})
	if err != nil {
		err = explain(err, about.Package.Name)
	}
	return i, fresh, err
}

// explain gives an error of npm its exit code and a way out.
func explain(err error, pkg string) error {
	said, ok := errors.AsType[*agentstore.NPMError](err)
	switch {
	case !ok:
		return err
	case said.Unknown():
		return cli.Fail(cli.ExitNotFound, "npm view "+pkg+" versions lists them", "%w", err)
	case said.Unreachable():
		return cli.Fail(cli.ExitUnreachable, "see whether this host reaches the registry: npm ping", "%w", err)
	}
	return err
}

// passed are the variables that npm gets: none that has a key of something else, and none that
// changes what its interpreter runs.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NPM_TOKEN", "NODE_AUTH_TOKEN", // which files of npm's settings name
}

func npmEnvironment(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(kv), "=")
		return !slices.Contains(passed, name) && !strings.HasPrefix(name, "NPM_CONFIG_")
	})
}

// tryTime is how long the start of an agent may take.
const tryTime = time.Minute

// try starts a program that is about to be installed, as penstock doctor does: in a jail, or
// without one where jobs run without one. Other agents than the built-in ones may have no option
// --version, or a version of their own.
func try(ctx context.Context, shell cli.Shell, agents *agent.Agents, about agent.About, i agentstore.Installed) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	program, err := agents.Installed(about, i, false)
	if err != nil || about.Protocol == "command" || about.Protocol == "acp" {
		return err
	}
	said, err := ask(ctx, shell, agents, about.Name, program)
	if err != nil {
		return err
	}
	if about.Name == about.Protocol && !strings.Contains(said, i.Version) {
		return fmt.Errorf("it says that it is %q", said)
	}
	return nil
}

// ask asks a program for its version, and returns what it says.
func ask(ctx context.Context, shell cli.Shell, agents *agent.Agents, name string, p agent.Program) (string, error) {
	spec, permitted, err := jail.View(shell.Config)
	if err != nil {
		return "", err
	}
	backend, err := jail.Choose(ctx, shell.Config.Worker.Backend, permitted)("auto")
	if err != nil || backend.Name() == "none" {
		return agents.Ask(ctx, name, p)
	}
	out, exit, err := sandbox.Output(ctx, backend, jail.AskVersion(spec, p))
	if err == nil && !exit.Success() {
		err = fmt.Errorf("in a jail it exited with %v: %.300s", exit, strings.TrimSpace(string(out)))
	}
	return visible.FirstLine(string(out)), err
}
