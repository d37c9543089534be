package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

var terminalView = cli.View[terminal.Info]{
	Header: []string{"TERMINAL", "SIZE", "VIEWERS", "SHOWN", "BY", "STATE", "PROGRAM"},
	Row: func(t terminal.Info) []string {
		state := "open"
		if t.Exit != nil {
			state = exitText(*t.Exit)
		}
		return []string{
			fmt.Sprint(t.Terminal), fmt.Sprintf("%dx%d", t.Columns, t.Rows), fmt.Sprint(t.Viewers), jobs.Bytes(t.Shown).String(),
			t.By, state, strings.Join(t.Args, " "),
		}
	},
	ID: func(t terminal.Info) string { return fmt.Sprint(t.Terminal) },
}

func exitText(e terminal.Exit) string {
	switch {
	case e.Why != "":
		return "ended: " + e.Why
	case e.Signal != "":
		return "ended by " + e.Signal
	}
	return fmt.Sprintf("ended with %d", e.Code)
}

// An attachment is one look at a terminal in the jail of a job's agent.
type attachment struct {
	cli.Shell
	pool      *pool.Pool
	rec       jobs.Record
	terminals *client.Terminals
	ask       terminal.Request // the sender of the requests
	readOnly  bool
	timeout   time.Duration
	away      atomic.Bool // the server is, and the user knows
}

// NewAttach returns the command attach.
func NewAttach(shell cli.Shell) *cobra.Command {
	s := &attachment{Shell: shell}
	var list bool
	cmd := &cobra.Command{
		Use: "attach ID [-- PROGRAM ARG…]", Short: "Open a terminal in the jail of a running job's agent",
		Long: `Attach starts a shell, or the program after --, in a new terminal in the jail of the
job's agent: under the same restrictions, as the same user, in the same directory and
environment. With --terminal it shows a terminal that is already open there; several
people may watch the same one. The session's log and the artifact terminal-N.cast
record the output of terminals.

Ctrl-] detaches: the terminal stays open until its program or the agent ends. If
standard input is not a terminal, its end is typed as Ctrl-D.

The exit code is that of the terminal's program; 0: detached; 6: not allowed; 8: no agent
has run within --timeout; 9: the agent has ended, and the terminal with it.

Untrusted programs write what a terminal shows: only your terminal emulator stands
between them and you.`,
		Example: `  penstock attach ID
  penstock attach ID --list
  penstock attach ID --terminal 1 --read-only
  echo 'git status' | penstock attach ID -- sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, program := input.SplitDash(cmd.Flags(), args)
			switch {
			case len(before) != 1:
				return cli.Usage("penstock job ls lists the jobs", "attach takes one job, and optionally a program after --")
			case s.readOnly && s.ask.Terminal == 0:
				return cli.Usage("penstock attach ID --list shows the open terminals", "--read-only needs --terminal: a new terminal has nothing to show")
			case s.ask.Terminal < 0 || s.ask.Terminal > 0 && len(program) > 0:
				return cli.Usage("", "--terminal names a terminal that already runs a program: leave out the program")
			}
			s.ask.Args, s.ask.By, s.ask.ID = program, "cli", jobs.NewID()
			return pool.WithJob(cmd.Context(), shell, before[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				if err := pool.CheckServed(p, rec); err != nil {
					return err
				}
				s.pool, s.rec = p, rec
				s.terminals = p.Client.Patient(s.serverAway).Terminals(rec)
				defer s.terminals.Close()
				if list {
					return s.list(ctx)
				}
				return s.attach(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&s.ask.Terminal, "terminal", 0, "number of an open terminal to show (default: a new one)")
	flags.BoolVar(&s.readOnly, "read-only", false, "only watch: type nothing, and keep the size of the terminal")
	flags.BoolVar(&list, "list", false, "list the terminals of the job's agent, and exit")
	flags.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long to wait for the job's agent to start")
	return cmd
}

func (s *attachment) list(ctx context.Context) error {
	answer, err := s.begin(ctx, terminal.Request{Verb: terminal.List})
	if err != nil {
		return err
	}
	return terminalView.List(s.Out, *s.Format, answer.Terminals)
}

// begin makes the first request, and waits for an agent that does not run yet.
func (s *attachment) begin(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for {
		if s.rec.State == jobs.Finished {
			return terminal.Answer{}, cli.Fail(cli.ExitDenied, "penstock logs "+s.rec.ID+" shows what there was", "job %s has ended, and the agent's terminals with it", s.rec.ID)
		}
		answer, err := s.terminals.Ask(limited, r)
		refused, ok := errors.AsType[*control.RefusedError](err)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, context.Cause(ctx)
		case ok && refused.Code != control.NotReady:
			return answer, cli.Fail(cli.ExitDenied, "", "%w", refused)
		case !ok && !errors.Is(err, session.ErrNobody) && limited.Err() == nil:
			return answer, err
		}
		select {
		case <-limited.Done():
			return answer, cli.Fail(cli.ExitTimeout, "penstock why "+s.rec.ID+" says what it waits for; --timeout waits longer", "job %s: no terminal after %v: %w", s.rec.ID, s.timeout, err)
		case <-time.After(sendAgain):
		}
		if rec, err := s.pool.Client.Get(limited, s.rec.ID); err == nil {
			s.rec = rec
		}
	}
}

// serverAway says once that a server over HTTP is away, which may pass.
func (s *attachment) serverAway(why error) {
	if !s.away.Swap(true) {
		s.Err.Printf("\r\npenstock: %v; trying again\r\n", why)
	}
}
