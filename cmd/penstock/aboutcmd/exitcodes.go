package aboutcmd

import (
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// exitCodes are all codes with which the program ends.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{cli.ExitOK, "done; every job ended in success or skip"},
	{cli.ExitUnexpected, "unexpected: an error that is not in this list"},
	{cli.ExitUsage, "a flag, an argument, a setting or a job file is invalid, or the pool's store is of another version; nothing was started"},
	{cli.ExitFailure, "a job ended in failure, or was cancelled"},
	{cli.ExitError, "a job ended in error or timeout, or is dead"},
	{cli.ExitNotFound, "not found: no such job, batch, queue or file"},
	{cli.ExitDenied, "not allowed, by a role or a quota"},
	{cli.ExitUnreachable, "the server does not answer, or no pool runs"},
	{cli.ExitTimeout, "the --timeout of a wait was reached; the jobs continue, but for those of bench"},
	{cli.ExitStopped, "stopped early: a budget, a limit on failures, or a reason that affects every job"},
	{cli.ExitInterrupted, "interrupted"},
}

const severalJobs = "If several jobs ended, the worst outcome decides."

// exitCodesHelp lists them.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("The exit codes of penstock:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.meaning)
	}
	return b.String() + "\n" + severalJobs
}
