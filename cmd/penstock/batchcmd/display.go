package batchcmd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/visible"
)

// A display shows a person how a batch goes. Several goroutines may call its methods.
type display interface {
	// note takes the new state of a job.
	note(jobs.Record)
	// ended takes the result of an item, after it was counted.
	ended(jobs.Result)
	// keep keeps what is shown up to date until ctx ends.
	keep(ctx context.Context, log *session.Log) error
	// finished says how the batch ended, and where its results are.
	finished(transcript.BatchEnd)
	// conclusive reports whether finished shows all that the error of a batch with
	// failed jobs would say.
	conclusive() bool
}

// newDisplay draws on a terminal, and writes lines elsewhere.
func newDisplay(shell cli.Shell, missing []string, counts *tally) display {
	if shell.Progress.Moving(shell.Err) {
		board := transcript.NewBatch(shell.Err, missing, time.Now())
		board.Bound(counts.limit, counts.spent)
		return screen{board}
	}
	return &lines{err: shell.Err, progress: cli.NewProgress(shell.Err, *shell.Progress), tally: counts, running: map[string]bool{}}
}

// lines are a line for the end of each item, and one now and then in between.
type lines struct {
	err      *console.Writer
	progress *cli.Progress
	tally    *tally

	mu      sync.Mutex
	running map[string]bool // by job
}

func (l *lines) note(rec jobs.Record) {
	l.progress.Status(l.status(rec.ID, rec.State == jobs.Executing))
}

func (l *lines) ended(r jobs.Result) {
	line := fmt.Sprintf("%-12s %-8s %6.1fs  %d files", r.ID, r.Outcome, r.Durations.Total, r.FilesChanged)
	if r.Reason != "" {
		line += fmt.Sprintf("  %s: %s", r.Reason, visible.FirstLine(r.Message))
	}
	status := l.status(r.Job, false)
	l.progress.Say(line)
	l.progress.Status(status)
}

// status remembers whether a job runs, and says how far the batch is.
func (l *lines) status(job string, runs bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if runs {
		l.running[job] = true
	} else {
		delete(l.running, job)
	}
	return fmt.Sprintf("%d running", len(l.running)) + l.tally.words()
}

func (l *lines) keep(context.Context, *session.Log) error { return nil }

func (l *lines) finished(e transcript.BatchEnd) {
	l.err.Printf("penstock: batch %s: %d of %d done: %s\n", e.State, e.Done, e.Items, transcript.Tally(e.Outcomes))
	l.err.Printf("penstock: results in %s (report.html, report.md, patches/, logs/)\n", e.Dir)
}

func (l *lines) conclusive() bool { return false }

const (
	// drawEvery is how often the screen of a batch is drawn anew. Each drawing
	// asks for the terminal's size, so a resize needs no signal.
	drawEvery = 200 * time.Millisecond
	// doingEvery is how often the log is asked what the agents that are shown do.
	doingEvery = time.Second
)

// A screen is drawn on a terminal. A terminal that has gone away is no reason to end the
// batch, so its errors are ignored.
type screen struct{ board *transcript.Batch }

func (s screen) note(rec jobs.Record) { s.board.Note(rec, time.Now()) }

func (s screen) ended(r jobs.Result) { _ = s.board.Ended(r) }

func (s screen) keep(ctx context.Context, log *session.Log) error {
	var g errgroup.Group
	g.Go(func() error { s.draw(ctx); return nil })
	if log != nil { // which a pool over HTTP has not
		g.Go(func() error { s.askDoing(ctx, log); return nil })
	}
	return g.Wait()
}

func (s screen) draw(ctx context.Context) {
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		_ = s.board.Draw(time.Now())
		select {
		case <-ctx.Done():
			_ = s.board.Close()
			return
		case <-tick.C:
		}
	}
}

// askDoing reads from the log what the agents on the screen are doing. It ignores
// errors, because the batch does not depend on it.
func (s screen) askDoing(ctx context.Context, log *session.Log) {
	tick := time.NewTicker(doingEvery)
	defer tick.Stop()
	for {
		for _, rec := range s.board.Shown() {
			if e, err := log.Last(ctx, rec); err == nil && e != nil {
				s.board.Doing(rec.ID, sessionview.Summary(*e))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s screen) finished(e transcript.BatchEnd) { _ = s.board.Finished(e, time.Now()) }

func (s screen) conclusive() bool { return true }
