// Package insidecmd is the commands for programs in the jail of a job's agent: artifact,
// result, milestone, ask, terminals and mcp-bridge.
package insidecmd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/inside"
)

// New returns the commands. They speak to the job's worker and to nothing else.
func New(shell cli.Shell) []*cobra.Command {
	commands := []*cobra.Command{artifact(shell), result(shell), milestone(shell), ask(shell), terminals(shell), bridge(shell)}
	for _, cmd := range commands {
		// A settings file of the workspace is nothing to them.
		cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return nil }
		cmd.Long += `

This command is for programs in the jail of a job's agent, where the worker has put
penstock in PATH.`
	}
	return commands
}

// connect returns a client of the worker of the jail that this program is in.
func connect() (*inside.Client, error) {
	door := os.Getenv(worker.InsideVariable)
	if door == "" {
		return nil, cli.Usage("only a job's agent can run this; preset offline cuts it off from its worker", "%s is not set: this is not the jail of a job's agent", worker.InsideVariable)
	}
	return inside.NewClient(door)
}

// refusal gives a refusal of the worker its exit code.
func refusal(err error) error {
	refused, ok := errors.AsType[*inside.RefusedError](err)
	if !ok {
		return err
	}
	switch refused.Code {
	case "invalid", "too_large":
		return cli.Fail(cli.ExitUsage, "", "%w", refused)
	case "lost":
		return refused
	}
	return cli.Fail(cli.ExitDenied, "", "%w", refused)
}

func artifact(shell cli.Shell) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "artifact PATH", Short: "In a job's jail: store a file with the job's result", Args: cobra.ExactArgs(1),
		Long: `Artifact sends a file to the worker, which stores it beside the job's patch, even if
the job fails: penstock job artifacts lists it. Another file with the same name
replaces it. The values of secrets are removed from it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			// Opening a pipe would block until it has a writer.
			file, err := os.OpenFile(args[0], os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				return cli.Fail(cli.ExitNotFound, "", "%w", err)
			}
			defer file.Close()
			about, err := file.Stat()
			if err != nil {
				return err
			}
			if !about.Mode().IsRegular() {
				return cli.Usage("pack a directory first: tar -czf out.tgz "+args[0], "%s is not a regular file", args[0])
			}
			if name == "" {
				name = filepath.Base(args[0])
			}
			stored, err := client.Artifact(cmd.Context(), name, file, about.Size())
			if err != nil {
				return refusal(err)
			}
			return jobview.Artifacts.One(shell.Out, *shell.Format, stored)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the artifact's name (default: the file's)")
	return cmd
}

func result(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "result JSON|-", Short: "In a job's jail: set the job's result", Args: cobra.ExactArgs(1),
		Long: `Result sets the result of the job's work, as JSON: "value" in the job's result. If the
job has a result_schema, a value that does not match is refused, with the reason, and
the job fails if its agent sets none. The last value that was set counts.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			value := []byte(args[0])
			if args[0] == "-" {
				if value, err = input.ReadAll(shell.In, "the result", inside.MaxResult); err != nil {
					return cli.Usage("", "%w", err)
				}
			}
			return refusal(client.Result(cmd.Context(), value))
		},
	}
}

func milestone(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "milestone TEXT…", Short: "In a job's jail: report the progress of the agent", Args: cobra.MinimumNArgs(1),
		Long: `Milestone adds a line to the session's log, for people who watch.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			return refusal(client.Milestone(cmd.Context(), strings.Join(args, " ")))
		},
	}
}

func ask(shell cli.Shell) *cobra.Command {
	var ask inside.Ask
	var options []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "ask QUESTION", Short: "In a job's jail: ask a person, and print the answer", Args: cobra.ExactArgs(1),
		Long: `Ask adds a question to the session's log, waits until a person answers it with
penstock answer, and prints the answer. The exit code is 6 if the question was
declined, and 8 if it was not answered within --timeout, or the job's idle_timeout.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			ask.Question.Question, ask.Timeout = args[0], jobs.Duration(timeout)
			for _, label := range options {
				ask.Options = append(ask.Options, control.Option{Label: label})
			}
			answer, err := client.Ask(cmd.Context(), ask)
			switch {
			case err != nil:
				return refusal(err)
			case answer.How == "declined":
				return cli.Fail(cli.ExitDenied, "continue without an answer", "the question was declined: %s", answer.Text)
			case answer.How != "answered":
				return cli.Fail(cli.ExitTimeout, "continue without an answer", "%s", answer.Text)
			}
			_, err = io.WriteString(shell.Out, answer.Text+"\n")
			return err
		},
	}
	cmd.Flags().StringArrayVar(&options, "option", nil, "an answer to choose from (repeatable)")
	cmd.Flags().BoolVar(&ask.Multi, "multi", false, "several options may be chosen")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: the job's idle_timeout)")
	return cmd
}
