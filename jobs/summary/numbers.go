package summary

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Join joins the words that are there.
func Join(words ...string) string {
	var there []string
	for _, w := range words {
		if w != "" {
			there = append(there, w)
		}
	}
	return strings.Join(there, " · ")
}

// Took is a time span in seconds, as people say it.
func Took(seconds float64) string {
	switch {
	case seconds >= 3600:
		return fmt.Sprintf("%d h %d min", int(seconds)/3600, int(seconds)%3600/60)
	case seconds >= 60:
		return fmt.Sprintf("%d min %d s", int(seconds)/60, int(seconds)%60)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// Tokens says how many were read and written; nothing, where none were.
func Tokens(u jobs.Usage) string {
	in := u.Input + u.CacheRead + u.CacheWrite
	if in+u.Output == 0 {
		return ""
	}
	return Thousands(in) + " in, " + Thousands(u.Output) + " out"
}

// Dollars is an amount; nothing, where it is none.
func Dollars(cost float64) string {
	switch {
	case cost <= 0:
		return ""
	case cost < 0.01:
		return fmt.Sprintf("$%.4f", cost)
	}
	return fmt.Sprintf("$%.2f", cost)
}

// Count is a number of things, in the singular or the plural.
func Count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Thousands is a number with a comma after each three digits.
func Thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Less is what was used since an earlier report; all of it, where the agent has
// begun to count anew.
func Less(now, before jobs.Usage) jobs.Usage {
	if now.Input < before.Input || now.Output < before.Output {
		return now
	}
	now.Input -= before.Input
	now.Output -= before.Output
	now.CacheRead -= before.CacheRead
	now.CacheWrite -= before.CacheWrite
	return now
}

// Task is what a subagent does, and what it has used.
func Task(d event.TaskUpdated) string {
	used := ""
	if d.Tokens > 0 {
		used = Count(d.Tokens, "token")
	}
	return Join(d.Text, used)
}

// Exit is how an agent's process ended, unless it ended well.
func Exit(d event.RunExited) string {
	if d.Code == 0 && d.Signal == "" {
		return ""
	}
	return "the agent ended with " + cmp.Or(d.Signal, "exit code "+strconv.Itoa(d.Code))
}

// Retry says that an agent tries the model API again.
func Retry(d event.Retry) string {
	words := fmt.Sprintf("retrying the model API: attempt %d", d.Attempt)
	if d.Max > 0 {
		words += fmt.Sprintf(" of %d", d.Max)
	}
	status, delay := "", ""
	if d.HTTP > 0 {
		status = fmt.Sprintf("HTTP %d", d.HTTP)
	}
	if d.DelayMS > 0 {
		delay = "in " + Took(d.DelayMS/1000)
	}
	return Join(words, d.Class, status, delay)
}
