package benchcmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
)

// A Report says how a pool took a load.
type Report struct {
	Batch     string         `json:"batch"`
	Queue     string         `json:"queue"`
	Isolation jobs.Isolation `json:"isolation"`
	Clients   int            `json:"clients"`
	Rate      float64        `json:"rate"` // that was asked for; 0: none
	Jobs      int            `json:"jobs"` // that were asked for
	Submitted int            `json:"submitted"`
	Finished  int            `json:"finished"`
	Cancelled int            `json:"cancelled"`
	Seconds   float64        `json:"seconds"` // from the first submission until the last end was known

	SubmittedPerSecond float64 `json:"submitted_per_second"`
	FinishedPerSecond  float64 `json:"finished_per_second"`

	Submit Times `json:"submit"` // from a submission to its answer, by this host's clock
	Wait   Times `json:"wait"`   // from the submission to the start
	Run    Times `json:"run"`    // from the start to the end
	Total  Times `json:"total"`  // from the submission to the end

	Outcomes map[jobs.Outcome]int   `json:"outcomes"`
	Reasons  map[jobs.Reason]int    `json:"reasons"`
	Errors   map[jobs.ErrorCode]int `json:"errors"`
}

// Times are how a number of times are distributed, in seconds.
type Times struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// spread returns how times are distributed, by the nearest rank.
func spread(times []time.Duration) Times {
	if len(times) == 0 {
		return Times{}
	}
	slices.Sort(times)
	at := func(percent int) float64 { return times[(len(times)*percent+99)/100-1].Seconds() }
	return Times{Count: len(times), P50: at(50), P95: at(95), P99: at(99), Max: at(100)}
}

// report is made when the load is over.
func (r *run) report() Report {
	p := Report{
		Batch: r.job.Batch, Queue: r.job.Queue, Isolation: r.job.Isolation, Clients: r.clients, Rate: r.rate,
		Jobs: r.jobs, Submitted: len(r.submits), Finished: len(r.ended), Cancelled: r.cancelled, Submit: spread(r.submits),
		Outcomes: r.counts, Reasons: map[jobs.Reason]int{}, Errors: r.errors,
	}
	p.SubmittedPerSecond, _ = each(p.Submitted, r.began, r.last)
	p.FinishedPerSecond, p.Seconds = each(p.Finished, r.began, r.over)
	var waits, runs, totals []time.Duration
	for _, rec := range r.ended {
		if rec.Reason != "" {
			p.Reasons[rec.Reason]++
		}
		if rec.Started == nil || rec.Finished == nil { // it was cancelled before
			continue
		}
		waits = append(waits, rec.Started.Sub(rec.Submitted))
		runs = append(runs, rec.Finished.Sub(*rec.Started))
		totals = append(totals, rec.Finished.Sub(rec.Submitted))
	}
	p.Wait, p.Run, p.Total = spread(waits), spread(runs), spread(totals)
	return p
}

// each is how many there were in a second of a time, and how long that was.
func each(n int, from, to time.Time) (perSecond, seconds float64) {
	if n == 0 || !to.After(from) {
		return 0, 0
	}
	seconds = to.Sub(from).Seconds()
	return float64(n) / seconds, seconds
}

// tell prints a report: for people as two tables.
func tell(shell cli.Shell, p Report) error {
	if *shell.Format != cli.Table {
		return cli.View[Report]{ID: func(p Report) string { return p.Batch }}.One(shell.Out, *shell.Format, p)
	}
	rate := func(perSecond float64) string { return fmt.Sprintf("%.1f/s", perSecond) }
	rows := [][]string{
		{"submitted", strconv.Itoa(p.Submitted), rate(p.SubmittedPerSecond)},
		{"finished", strconv.Itoa(p.Finished), rate(p.FinishedPerSecond)},
	}
	for _, outcome := range slices.Sorted(maps.Keys(p.Outcomes)) {
		rows = append(rows, []string{"  " + string(outcome), strconv.Itoa(p.Outcomes[outcome]), ""})
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		rows = append(rows, []string{"  " + string(reason), strconv.Itoa(p.Reasons[reason]), ""})
	}
	if p.Cancelled > 0 {
		rows = append(rows, []string{"cancelled", strconv.Itoa(p.Cancelled), ""})
	}
	for _, code := range slices.Sorted(maps.Keys(p.Errors)) {
		rows = append(rows, []string{"error " + string(code), strconv.Itoa(p.Errors[code]), ""})
	}
	if err := console.Table(shell.Out, []string{"JOBS", "COUNT", "RATE"}, rows); err != nil {
		return err
	}
	shell.Out.Printf("\n")
	return console.Table(shell.Out, []string{"TIME", "P50", "P95", "P99", "MAX"}, [][]string{
		p.Submit.row("submit → answer"), p.Wait.row("queue wait"), p.Run.row("start → finish"), p.Total.row("submit → finish"),
	})
}

func (t Times) row(what string) []string {
	if t.Count == 0 {
		return []string{what, "", "", "", ""}
	}
	return []string{what, took(t.P50), took(t.P95), took(t.P99), took(t.Max)}
}

// took is a time with as many digits as say something.
func took(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.1f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

// drawEvery is how often progress is looked at.
const drawEvery = 200 * time.Millisecond

// show shows how far the load is until ctx ends: on a terminal in a line that changes, else
// in a line now and then. A terminal that has gone is no reason to end the load.
func (r *run) show(ctx context.Context) {
	lines, moving := cli.NewProgress(r.shell.Err, *r.shell.Progress), r.shell.Progress.Moving(r.shell.Err)
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		if moving {
			_ = r.shell.Err.Live([][]console.Span{{{Text: r.status()}}})
		} else {
			lines.Status(r.status())
		}
		select {
		case <-ctx.Done():
			_ = r.shell.Err.Live(nil)
			return
		case <-tick.C:
		}
	}
}

func (r *run) status() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	words := fmt.Sprintf("%d of %d submitted, %d finished", len(r.submits), r.jobs, len(r.ended))
	if counts := transcript.Tally(r.counts); counts != "" {
		words += ": " + counts
	}
	if r.first != nil {
		words += "; errors: " + r.first.Error()
	}
	return words
}
