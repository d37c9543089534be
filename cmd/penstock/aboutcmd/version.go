package aboutcmd

import (
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// A Build is what a program knows of how it was built. What the build did not give is empty.
type Build struct {
	Version string   `json:"version"`
	Commit  string   `json:"commit"`
	Date    string   `json:"date"` // of the commit
	Go      string   `json:"go"`
	System  string   `json:"system"`
	Modules []Module `json:"modules"`
	Newest  *Newest  `json:"newest,omitempty"`
}

// A Module is a part of a program that others have written.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// NewVersion returns the command version.
func NewVersion(shell cli.Shell, build Build) *cobra.Command {
	build.Go, build.System = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	check, feed := false, ""
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and how it was built", Args: cobra.NoArgs,
		Long: `Print the version, and how it was built: -o json with commit and modules.

With --check, and never without, it asks GitHub for the newest release, and says whether
that is newer. It changes nothing, and tells GitHub no more than any request does.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				newest, err := askNewest(cmd.Context(), feed, build.Version)
				if err != nil {
					return err
				}
				build.Newest = &newest
			}
			if *shell.Format == cli.Table {
				show(shell, build)
				return nil
			}
			return cli.View[Build]{ID: func(b Build) string { return b.Version }}.One(shell.Out, *shell.Format, build)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "ask GitHub whether there is a newer release")
	cmd.Flags().StringVar(&feed, "feed", newestRelease, "where to ask")
	_ = cmd.Flags().MarkHidden("feed") // for tests; it can only fail for a flag that does not exist
	return cmd
}

func show(shell cli.Shell, b Build) {
	facts := []string{b.Go, b.System}
	if b.Commit != "" {
		facts = append(facts, strings.TrimSpace("commit "+b.Commit+" "+b.Date))
	}
	shell.Out.Printf("penstock %s (%s)\n", b.Version, strings.Join(facts, ", "))
	switch n := b.Newest; {
	case n == nil:
	case n.Newer:
		shell.Out.Printf("%s is newer: %s\n", n.Version, n.URL)
	case n.Comparable:
		shell.Out.Printf("the newest release is %s\n", n.Version)
	default:
		shell.Out.Printf("the newest release is %s, which this build cannot be compared with: %s\n", n.Version, n.URL)
	}
}
