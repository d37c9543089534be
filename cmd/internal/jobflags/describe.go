package jobflags

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
)

// Parse reads the job from --job, or makes it of the flags and arguments.
func Parse(shell cli.Shell, cmd *cobra.Command, args []string, flags Flags) (jobs.Job, error) {
	before, command := input.SplitDash(cmd.Flags(), args)
	return Describe(shell, before, command, flags)
}

// Describe is Parse for arguments before -- and a command after it that are apart already.
func Describe(shell cli.Shell, before, command []string, flags Flags) (jobs.Job, error) {
	if flags.file != "" {
		if len(before) > 0 || len(command) > 0 {
			return jobs.Job{}, cli.Usage("", "--job %s is the whole job: leave out the prompt and the command", flags.file)
		}
		return readJob(shell, flags.file)
	}
	if len(before) > 1 {
		return jobs.Job{}, cli.Usage("put quotes around the prompt", "expected one prompt, not %d arguments", len(before))
	}
	prompt, err := Prompt(shell, before)
	if err != nil {
		return jobs.Job{}, err
	}
	flags.Job.Prompt = prompt
	job, err := flags.build(command)
	if err != nil {
		return jobs.Job{}, err
	}
	job = job.WithDefaults()
	return job, errors.Join(job.Validate(), workerparts.CheckAgent(shell.Config, job.Agent.Name))
}

func readJob(shell cli.Shell, file string) (jobs.Job, error) {
	in := shell.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return jobs.Job{}, cli.Usage("", "--job: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := input.ReadAll(in, file, jobs.MaxJobBytes)
	if err != nil {
		return jobs.Job{}, cli.Usage("", "--job: %w", err)
	}
	job, err := jobs.Decode(data)
	if err != nil {
		return jobs.Job{}, cli.Usage("penstock schema job prints what is allowed", "%s: %w", file, err)
	}
	return job, workerparts.CheckAgent(shell.Config, job.Agent.Name)
}

// DryRun prints what would be submitted: a job, or a list of several.
func DryRun(shell cli.Shell, list []jobs.Job) error {
	if *shell.Format == cli.Table {
		*shell.Format = cli.JSON
	}
	view := cli.View[jobs.Job]{ID: func(j jobs.Job) string { return j.Key }}
	if len(list) == 1 {
		return view.One(shell.Out, *shell.Format, list[0])
	}
	return view.List(shell.Out, *shell.Format, list)
}
