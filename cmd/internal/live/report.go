package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A report is what came of a run.
type report struct {
	sessions, lines     int
	live                int // at the same moment, at most
	succeeded, attempts int
	events              int
	wrong               []error // what was lost
	alone, took         time.Duration
	// idle and most are the memory of the server before and at most; beside is that of the processes which
	// keep the jails, and agents that of the agents in them, when all were live. In bytes.
	idle, most, beside, agents float64
	load                       float64
}

// agents are the names of the programs that an agent consists of.
var agents = map[string]bool{"sh": true, "sleep": true}

// weigh adds up the memory of what descends from the server.
func (r *report) weigh(server int) {
	for _, pid := range measure.Below(server) {
		if agents[measure.Name(pid)] {
			r.agents += measure.Shared(pid)
		} else {
			r.beside += measure.Shared(pid)
		}
	}
}

// read looks at all jobs and their sessions.
func (r *report) read(ctx context.Context, c *client.Client) error {
	for rec, err := range c.List(ctx, operation.ListRequest{}) {
		if err != nil {
			return fmt.Errorf("list the jobs: %w", err)
		}
		r.attempts += rec.Attempt
		if rec.Outcome == jobs.Success {
			r.succeeded++
		} else {
			r.wrong = append(r.wrong, fmt.Errorf("job %s: %s (%s: %s)", rec.ID, rec.Outcome, rec.Reason, rec.Message))
		}
		var all []jobs.Event
		for e, err := range c.Events(ctx, rec.ID, 0) {
			if err != nil {
				return fmt.Errorf("read the session of job %s: %w", rec.ID, err)
			}
			all = append(all, e)
		}
		r.events += len(all)
		if err := whole(all, r.lines); err != nil {
			r.wrong = append(r.wrong, fmt.Errorf("job %s: %w", rec.ID, err))
		}
	}
	return nil
}

// whole reports what is missing from a session whose agent says so many lines.
func whole(events []jobs.Event, lines int) error {
	said := 0
	for i, e := range events {
		if want := uint64(i + 1); e.Seq != want {
			return fmt.Errorf("event %d is there, and should be %d", e.Seq, want)
		}
		var line event.OutputLine
		if e.Kind != jobs.OutputLine || json.Unmarshal(e.Data, &line) != nil {
			continue
		}
		said++
		if want := fmt.Sprint("line ", said); line.Text != want {
			return fmt.Errorf("its agent says %q, and should say %q", line.Text, want)
		}
	}
	if said != lines {
		return fmt.Errorf("%d of %d lines are there", said, lines)
	}
	return nil
}

// judge returns what must not be, however fast the machine is.
func (r report) judge() error {
	wrong := r.wrong
	if r.succeeded != r.sessions || r.attempts != r.sessions {
		wrong = append(wrong, fmt.Errorf("%d of %d jobs succeeded, in %d attempts", r.succeeded, r.sessions, r.attempts))
	}
	if r.live != r.sessions {
		wrong = append(wrong, fmt.Errorf("at most %d of %d sessions were live at the same moment: use more -lines", r.live, r.sessions))
	}
	return errors.Join(wrong...)
}

// tell prints what was seen.
func (r report) tell(out io.Writer) {
	row := func(what, format string, args ...any) {
		fmt.Fprintf(out, "%-60s %s\n", what, fmt.Sprintf(format, args...))
	}
	each := float64(r.sessions)
	row("sessions live at the same moment, succeeded, attempts", "%d, %d, %d", r.live, r.succeeded, r.attempts)
	row("events, sessions that have lost something", "%d, %d", r.events, len(r.wrong))
	row("the agents alone; in the pool, from the first submission", "%.1f s; %.1f s: %.2f times", r.alone.Seconds(), r.took.Seconds(), r.took.Seconds()/r.alone.Seconds())
	row("memory of the server: before, at most, more for a session", "%s, %s, %s", measure.MiB.Text(r.idle), measure.MiB.Text(r.most), measure.MiB.Text((r.most-r.idle)/each))
	row("memory beside it for a session: of its jail, of its agent", "%s, %s", measure.MiB.Text(r.beside/each), measure.MiB.Text(r.agents/each))
	row("load of the host, at most", "%.1f", r.load)
}
