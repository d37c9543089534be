package agentcmd

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/drift"
	"github.com/penstock-run/penstock/worker/agentstore"
)

// driftFlags are the flags of agent drift.
type driftFlags struct {
	newest      int
	kept, write string
	only, known []string
	limit       time.Duration
}

func newDrift(shell cli.Shell) *cobra.Command {
	var f driftFlags
	cmd := &cobra.Command{
		Use: "drift NAME [VERSION]...", Short: "Test the newest versions of an agent, and tell what changes between them", Args: cobra.MinimumNArgs(1),
		Long: `Drift installs the newest versions of an agent beside others, as penstock agent install does, runs
the checks of penstock agent test with each, and prints a table in Markdown of what changes from one
to the next: results of checks, kinds of messages, options of --help, and the tokens and the cost of a
prompt. Messages that no adapter knows are named; they are kept as they are.

--kept FILE has the result of an earlier run, which is the first column, and --write FILE keeps that
of the newest version. If a check failed with any of the versions, the exit code is 1. A failure that
is known, by --known VERSION:CHECK, is in the table and does not count for that.`,
		Example: `  penstock agent drift codex
  penstock agent drift codex 0.169.0 0.170.0
  penstock agent drift claude --newest 1 --kept claude.json --write claude.json
  penstock agent drift codex 0.168.0 --known 0.168.0:repository`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.newest < 1 || f.newest > 10 || f.limit <= 0 {
				return cli.Usage("", "--newest: is a number from 1 to 10; --timeout: must be more than 0")
			}
			if err := known(f.only); err != nil {
				return err
			}
			if err := knownFailures(f.known); err != nil {
				return err
			}
			return findDrift(cmd.Context(), shell, args[0], args[1:], f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.newest, "newest", 3, "how many of the newest versions are tested, if none is named")
	flags.StringVar(&f.kept, "kept", "", "file with the result of an earlier run")
	flags.StringVar(&f.write, "write", "", "file for the result of the newest version")
	addOnly(flags, &f.only)
	flags.StringSliceVar(&f.known, "known", nil, "checks that are known to fail with a version, as VERSION:CHECK (comma-separated or repeated)")
	flags.DurationVar(&f.limit, "timeout", 2*time.Minute, "how long one run of the agent may take")
	return cmd
}

// knownFailures is an error unless each is a version and a check.
func knownFailures(known []string) error {
	for _, failure := range known {
		version, check, _ := strings.Cut(failure, ":")
		if jobs.CheckAgentVersion(version) != nil || !slices.Contains(contract.Names(), check) {
			return cli.Usage("it is VERSION:CHECK, and docs/reference/agents.md lists the checks", "--known: %q is no version with a check", failure)
		}
	}
	return nil
}

func findDrift(ctx context.Context, shell cli.Shell, name string, versions []string, f driftFlags) error {
	t, err := testbed(ctx, shell, name, "agent-drift", f.limit)
	if err != nil {
		return err
	}
	columns, err := readKept(name, f.kept)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		if versions, err = newest(ctx, t.about, f.newest); err != nil {
			return err
		}
	}
	for _, version := range versions {
		report, err := t.version(ctx, shell, version, f.only)
		if err != nil {
			return err
		}
		columns = append(columns, drift.Column{Name: version, Report: report})
	}
	if err := printDrift(shell, t.about, columns); err != nil {
		return err
	}
	if f.write != "" {
		text, err := json.MarshalIndent(columns[len(columns)-1].Report, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.write, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a file of a repository
			return err
		}
	}
	if broken := failures(columns[len(columns)-len(versions):], f.known); len(broken) > 0 {
		return cli.Fail(cli.ExitUnexpected, "", "agent %s failed: %s", name, strings.Join(broken, ", "))
	}
	return nil
}

// failures are the checks that failed, but for the known ones.
func failures(columns []drift.Column, known []string) []string {
	var broken []string
	for _, c := range columns {
		for _, check := range c.Report.Failed() {
			if !slices.Contains(known, c.Name+":"+check) {
				broken = append(broken, c.Name+": "+check)
			}
		}
	}
	return broken
}

// readKept is the column of an earlier run; without a file there is none.
func readKept(name, file string) ([]drift.Column, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cli.Usage("penstock agent drift NAME --write FILE makes one", "--kept: %w", err)
	}
	var report contract.Report
	if err := json.Unmarshal(text, &report); err != nil || report.Agent != name {
		return nil, cli.Usage("penstock agent drift NAME --write FILE makes one", "--kept: %s has no result of agent %s", file, name)
	}
	return []drift.Column{{Name: report.Version + " (kept)", Report: report}}, nil
}

// newest are the newest versions that the registry has.
func newest(ctx context.Context, about agent.About, n int) ([]string, error) {
	if about.Package.Name == "" {
		return nil, cli.Usage("a settings file names the package: agents."+about.Name+".package", "agent %s comes from no package of npm that is known", about.Name)
	}
	npm, err := findNPM("lists the versions of " + about.Package.Name)
	if err != nil {
		return nil, err
	}
	all, err := agentstore.Published(ctx, npm, npmEnvironment(os.Environ()), about.Package.Name)
	if err != nil {
		return nil, explain(err, about.Package.Name)
	}
	versions := drift.Newest(all, n)
	if len(versions) == 0 {
		return nil, cli.Fail(cli.ExitNotFound, "name the versions", "of %s the registry has no version of three numbers", about.Package.Name)
	}
	return versions, nil
}

// version installs a version, unless it is there, and tests it.
func (b bed) version(ctx context.Context, shell cli.Shell, version string, only []string) (contract.Report, error) {
	text := b.about.Name + "@" + version
	about, version, err := named(b.agents, text)
	if err != nil {
		return contract.Report{}, err
	}
	i, _, err := bring(ctx, shell, b.agents, about, version)
	if err != nil {
		return contract.Report{}, err
	}
	program, err := b.agents.Installed(about, i, false)
	if err != nil {
		return contract.Report{}, err
	}
	suite := contract.Suite{
		Agents: b.agents, Jail: b.jail, Program: &program, Only: only,
		Checked: func(f contract.Finding) { shell.Progressf("%s: %s: %s", text, f.Check, f.Status) },
	}
	report, err := suite.Test(ctx, b.about.Name)
	report.Version = version
	return report, err
}

// printDrift writes the table, or the reports as data.
func printDrift(shell cli.Shell, about agent.About, columns []drift.Column) error {
	if slices.Contains([]cli.Format{cli.JSON, cli.JSONL, cli.YAML}, *shell.Format) {
		var reports []contract.Report
		for _, c := range columns {
			reports = append(reports, c.Report)
		}
		return cli.View[contract.Report]{}.List(shell.Out, *shell.Format, reports)
	}
	text := "### Agent " + about.Name + "\n\n"
	switch {
	case drift.Differs(columns):
		text += "Each column is what differs from the one before it.\n\n"
	case len(columns) > 1:
		text += "Nothing differs but the tokens.\n\n"
	}
	_, err := io.WriteString(shell.Out, text+drift.Table(columns))
	return err
}
