package transcript

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

func (s *Screen) check(d event.CheckEnded) error {
	if d.Exit != 0 {
		return s.marked(console.Red, "✗", join("check "+console.Line(d.Command), fmt.Sprintf("exit code %d", d.Exit), took(d.Seconds)))
	}
	return s.marked(console.Green, "✓", join("check "+console.Line(d.Command), took(d.Seconds)))
}

// exit is how an agent's process ended, unless it ended well.
func exit(d event.RunExited) string {
	if d.Code == 0 && d.Signal == "" {
		return ""
	}
	return "the agent ended with " + cmp.Or(d.Signal, "exit code "+strconv.Itoa(d.Code))
}

// turn tells what a turn took. Why one failed is told at the end, once.
func (s *Screen) turn(d event.TurnEnded) error {
	s.turns++
	used, cost := d.Usage, d.CostUSD
	if d.UsageScope != "turn" && d.UsageScope != "" {
		used = less(d.Usage, s.spent)
		s.spent = d.Usage
	}
	if d.CostScope != "turn" && d.CostScope != "" {
		cost, s.cost = d.CostUSD-s.cost, d.CostUSD
	}
	status, lasted := "", ""
	if d.Seconds > 0 {
		lasted = took(d.Seconds)
	}
	if d.Status != "ok" && d.Status != "" {
		status = d.Status
	}
	words := join(fmt.Sprintf("turn %d", s.turns), status, lasted, tokens(used), dollars(cost))
	return s.block(look{indent: 2, style: console.Dim}, words)
}

// task is what a subagent does, and what it has used.
func task(d event.TaskUpdated) string {
	used := ""
	if d.Tokens > 0 {
		used = count(d.Tokens, "token")
	}
	return join(d.Text, used)
}

// less is what was used since an earlier report; all of it, where the agent has
// begun to count anew.
func less(now, before jobs.Usage) jobs.Usage {
	if now.Input < before.Input || now.Output < before.Output {
		return now
	}
	now.Input -= before.Input
	now.Output -= before.Output
	now.CacheRead -= before.CacheRead
	now.CacheWrite -= before.CacheWrite
	return now
}

func (s *Screen) retry(d event.Retry) error {
	words := fmt.Sprintf("retrying the model API: attempt %d", d.Attempt)
	if d.Max > 0 {
		words += fmt.Sprintf(" of %d", d.Max)
	}
	status, delay := "", ""
	if d.HTTP > 0 {
		status = fmt.Sprintf("HTTP %d", d.HTTP)
	}
	if d.DelayMS > 0 {
		delay = "in " + took(d.DelayMS/1000)
	}
	return s.block(look{indent: 2, style: console.Yellow}, join(words, d.Class, status, delay))
}

// finished tells how the job ended, once, and what may be typed next.
func (s *Screen) finished(r jobs.Result) error {
	s.over = true
	turns := ""
	if s.turns > 0 {
		turns = count(int64(s.turns), "turn")
	}
	facts := join(count(int64(r.FilesChanged), "file"), turns, tokens(r.Usage), dollars(r.CostUSD))
	if r.Outcome == jobs.Success || r.Outcome == jobs.Skip {
		err := s.marked(console.Green, "✓", join(fmt.Sprintf("%s in %s", r.Outcome, took(r.Durations.Total)), facts))
		return cmp.Or(err, s.next(r))
	}
	err := s.marked(console.Red, "✗", fmt.Sprintf("%s (%s) in %s · %s", r.Outcome, r.Reason, took(r.Durations.Total), facts))
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

func tokens(u jobs.Usage) string {
	in := u.Input + u.CacheRead + u.CacheWrite
	if in+u.Output == 0 {
		return ""
	}
	return thousands(in) + " in, " + thousands(u.Output) + " out"
}

func dollars(cost float64) string {
	switch {
	case cost <= 0:
		return ""
	case cost < 0.01:
		return fmt.Sprintf("$%.4f", cost)
	}
	return fmt.Sprintf("$%.2f", cost)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// fieldsMost bounds what Fields returns.
const fieldsMost = 300

// Fields says JSON as words: the values of an object with their names.
func Fields(raw json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if len(raw) == 0 || dec.Decode(&v) != nil {
		return ""
	}
	text := []rune(said(v))
	if len(text) > fieldsMost {
		return string(text[:fieldsMost]) + " …"
	}
	return string(text)
}

func said(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var words []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if text := said(v[key]); text != "" {
				words = append(words, key+" "+text)
			}
		}
		return strings.Join(words, ", ")
	case []any:
		var words []string
		for _, item := range v {
			words = append(words, said(item))
		}
		return strings.Join(words, " ")
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}
