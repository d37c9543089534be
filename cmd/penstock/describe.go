package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// summary is what a person wants to know of an event. Empty: nothing.
func summary(e jobs.Event) string {
	switch e.Kind {
	case jobs.MessageDelta, jobs.ThoughtDelta, jobs.ToolDelta, jobs.ToolOutput, jobs.StateChanged, jobs.InputState, jobs.UsageReported:
		return "" // details of what another event tells as a whole
	case jobs.Message:
		d := data[jobs.MessageData](e)
		return strings.TrimSpace(fmt.Sprintf("%s: %s", d.Role, d.Text))
	case jobs.Thought:
		return "thinks: " + firstLine(data[jobs.MessageData](e).Text)
	case jobs.OutputLine:
		d := data[jobs.LineData](e)
		if d.Stream == "stderr" {
			return "! " + d.Text
		}
		return "| " + d.Text
	case jobs.ToolStarted:
		d := data[jobs.ToolData](e)
		return fmt.Sprintf("▸ %s %s", d.Name, firstLine(d.Title))
	case jobs.ToolEnded:
		return toolEnded(data[jobs.ToolData](e))
	case jobs.TurnEnded:
		d := data[jobs.TurnData](e)
		return strings.TrimSpace(fmt.Sprintf("turn ended: %s %s", d.Status, d.Reason))
	case jobs.RetryReported:
		d := data[jobs.RetryData](e)
		return fmt.Sprintf("model API: attempt %d, %s, status %d", d.Attempt, d.Class, d.HTTP)
	case jobs.RunExited:
		d := data[jobs.ExitData](e)
		return fmt.Sprintf("agent exited with %d (%s)", d.Code, d.Class)
	}
	return poolSummary(e)
}

// poolSummary is the same for the events of the pool itself.
func poolSummary(e jobs.Event) string {
	switch e.Kind {
	case jobs.JobFinished:
		d := data[jobs.Result](e)
		text := fmt.Sprintf("job finished: %s, %d files changed, %.1fs", d.Outcome, d.FilesChanged, d.Durations.Total)
		if d.Outcome != jobs.Success {
			text += fmt.Sprintf(" (%s: %s)", d.Reason, d.Message)
		}
		return text
	case jobs.CheckEnded:
		d := data[jobs.Check](e)
		return fmt.Sprintf("%q ended with %d", d.Command, d.Exit)
	}
	text := string(e.Data)
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return fmt.Sprintf("%s %s", e.Kind, text)
}

func toolEnded(d jobs.ToolData) string {
	mark := "✓"
	if d.OK != nil && !*d.OK {
		mark = "✗"
	}
	return fmt.Sprintf("%s %s %s", mark, d.Name, firstLine(d.Output))
}

// data reads an event's data as far as it fits. Data of a newer version may
// not; what can be shown is shown.
func data[T any](e jobs.Event) T {
	var d T
	_ = json.Unmarshal(e.Data, &d)
	return d
}

func firstLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more {
		line += " …"
	}
	return line
}
