package transcript

import (
	"cmp"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

func (s *Screen) check(d event.CheckEnded) error {
	if d.Exit != 0 {
		return s.marked(console.Red, "✗", summary.Join("check "+visible.Line(d.Command), fmt.Sprintf("exit code %d", d.Exit), summary.Tests(d.Tests), summary.Took(d.Seconds)))
	}
	return s.marked(console.Green, "✓", summary.Join("check "+visible.Line(d.Command), summary.Tests(d.Tests), summary.Took(d.Seconds)))
}

// turn tells what a turn took. Why one failed is told at the end, once.
func (s *Screen) turn(d event.TurnEnded) error {
	s.turns++
	used, cost := d.Usage, d.CostUSD
	if d.UsageScope != "turn" && d.UsageScope != "" {
		used = summary.Less(d.Usage, s.spent)
		s.spent = d.Usage
	}
	if d.CostScope != "turn" && d.CostScope != "" {
		cost, s.cost = d.CostUSD-s.cost, d.CostUSD
	}
	status, lasted := "", ""
	if d.Seconds > 0 {
		lasted = summary.Took(d.Seconds)
	}
	if d.Status != "ok" && d.Status != "" {
		status = d.Status
	}
	words := summary.Join(fmt.Sprintf("turn %d", s.turns), status, lasted, summary.Tokens(used), summary.Dollars(cost))
	return s.block(look{indent: 2, style: console.Dim}, words)
}

func (s *Screen) retry(d event.Retry) error {
	return s.block(look{indent: 2, style: console.Yellow}, summary.Retry(d))
}

// finished tells how the job ended, once, and what may be typed next.
func (s *Screen) finished(r jobs.Result) error {
	s.over = true
	turns := ""
	if s.turns > 0 {
		turns = summary.Count(int64(s.turns), "turn")
	}
	facts := summary.Join(summary.Count(int64(r.FilesChanged), "file"), turns, summary.Tokens(r.Usage), summary.Dollars(r.CostUSD))
	if r.Outcome == jobs.Success || r.Outcome == jobs.Skip {
		err := s.marked(console.Green, "✓", summary.Join(fmt.Sprintf("%s in %s", r.Outcome, summary.Took(r.Durations.Total)), facts))
		return cmp.Or(err, s.next(r))
	}
	err := s.marked(console.Red, "✗", fmt.Sprintf("%s (%s) in %s · %s", r.Outcome, r.Reason, summary.Took(r.Durations.Total), facts))
	if r.Message != "" {
		err = cmp.Or(err, s.block(look{indent: 2, style: console.Red}, r.Message))
	}
	if advice := jobs.Reasons[r.Reason].Advice; advice != "" {
		err = cmp.Or(err, s.block(look{indent: 2}, advice))
	}
	return cmp.Or(err, s.next(r))
}

// next writes the commands for what people do with such a job.
func (s *Screen) next(r jobs.Result) error {
	var err error
	if r.FilesChanged > 0 {
		err = cmp.Or(s.command("job diff", "", "shows the change"), s.command("job apply", "", "brings it into your work tree"))
	}
	if s.capsule && err == nil {
		err = s.command("send", `"…"`, "continues the conversation")
	}
	if r.Outcome != jobs.Success && r.Outcome != jobs.Skip && err == nil {
		err = s.command("job retry", "", "runs it again")
	}
	return err
}
