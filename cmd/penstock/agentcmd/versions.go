package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker/agentstore"
)

// installed is a version of an agent as people and programs see it.
type installed struct {
	Agent string `json:"agent"`
	agentstore.Installed
	Verified bool   `json:"verified"`          // its files were read, and are as they were installed
	Changed  string `json:"changed,omitempty"` // what is not
}

var versionView = cli.View[installed]{
	Header: []string{"AGENT", "VERSION", "SIZE", "INSTALLED", "DIGEST", "FILES"},
	Row: func(i installed) []string {
		files := "not read"
		switch {
		case i.Verified:
			files = "as installed"
		case i.Changed != "":
			files = "changed"
		}
		return []string{i.Agent, i.Version, fmt.Sprintf("%.1f MiB", float64(i.Bytes)/(1<<20)), i.At.Local().Format(time.DateTime), i.Digest[:min(12, len(i.Digest))], files}
	},
	ID: func(i installed) string { return i.Agent + "@" + i.Version },
}

func newVersions(shell cli.Shell) *cobra.Command {
	verify := false
	cmd := &cobra.Command{
		Use: "versions", Short: "List the versions of agents that are installed on this host", Args: cobra.NoArgs,
		Long: `Versions lists what penstock agent install has brought to this host, with the size, the day and
the digest of each version: the SHA-256 of the list of all its files. The results and receipts of
jobs that name a version have the same digest.

With --verify it reads all of the files. If one is not as it was installed, the exit code is 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return versions(cmd.Context(), shell, verify) },
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read all files, and compare them with what was installed")
	return cmd
}

func versions(ctx context.Context, shell cli.Shell, verify bool) error {
	agents := workerparts.Agents(shell.Config)
	store := agents.Store()
	all, broken := []installed{}, error(nil)
	for _, about := range agents.All() {
		if about.Package.Name == "" {
			continue
		}
		found, err := store.List(about.Package.Name)
		if err != nil {
			return err
		}
		for _, i := range found {
			line := installed{Agent: about.Name, Installed: i}
			if verify {
				shell.Progressf("%s@%s: read its files", about.Name, i.Version)
				err = store.Verify(ctx, i)
				line.Verified = err == nil
			}
			changed, isChanged := errors.AsType[*agentstore.ChangedError](err)
			if err != nil && !isChanged {
				return err
			}
			if isChanged {
				line.Changed, broken = changed.Error(), cli.Fail(cli.ExitUnexpected, "remove it and install it again: penstock agent remove "+about.Name+"@"+i.Version, "%w", changed)
			}
			all = append(all, line)
		}
	}
	if err := versionView.List(shell.Out, *shell.Format, all); err != nil {
		return err
	}
	return broken
}

func newRemove(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME@VERSION", Short: "Remove a version of an agent from this host", Args: cobra.ExactArgs(1),
		Long: `Remove removes what penstock agent install has brought to this host. It is refused while a job
of this host runs with the version. Jobs that name the version wait from then on for a worker that
has it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			agents := workerparts.Agents(shell.Config)
			about, version, err := named(agents, args[0])
			if err != nil {
				return err
			}
			err = agents.Store().Remove(about.Package.Name, version)
			if _, missing := errors.AsType[*agentstore.MissingError](err); missing {
				return cli.Fail(cli.ExitNotFound, "penstock agent versions lists those that are", "%s is not installed", args[0])
			}
			if errors.Is(err, agentstore.ErrInUse) {
				return cli.Fail(cli.ExitUnexpected, "wait until the jobs with it have ended: penstock job ls", "%w", err)
			}
			if err == nil {
				shell.Progressf("%s is removed", args[0])
			}
			return err
		},
	}
}
