package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// summary is what a person wants to know of an event. Empty: nothing.
func summary(e jobs.Event) string {
	switch e.Kind {
	case jobs.MessageDelta, jobs.ThoughtDelta, jobs.ToolDelta, jobs.ToolOutput, jobs.StateChanged, jobs.UsageReported, jobs.TerminalOutput:
		return "" // details of what another event tells as a whole
	case jobs.InputState:
		return told(data[control.Input](e))
	case jobs.AskOpened:
		return inquiry(e.Job, data[control.Ask](e))
	case jobs.AskClosed:
		return "? " + data[control.Ask](e).How
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
	case jobs.Milestone:
		return "* " + data[jobs.MilestoneData](e).Text
	case jobs.ArtifactStored:
		d := data[jobs.Artifact](e)
		return fmt.Sprintf("artifact %s: %d bytes", d.Name, d.Bytes)
	case jobs.TerminalCreated:
		d := data[terminal.Data](e)
		return fmt.Sprintf("terminal %d: %s", d.Terminal, firstLine(strings.Join(d.Args, " ")))
	case jobs.ResultSet:
		return "result: " + transcript.Fields(data[jobs.ResultData](e).Value)
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
		return finished(data[jobs.Result](e))
	case jobs.JailViolation:
		d := data[jobs.ViolationData](e)
		return fmt.Sprintf("refused: %s %s (%s)", cmp.Or(d.Method, d.Kind), d.What(), d.Reason)
	case jobs.NetworkUsed:
		d := data[jobs.NetworkData](e)
		return fmt.Sprintf("network: %d hosts, %s sent, %s received, %d refused", len(d.Hosts), jobs.Bytes(d.Sent), jobs.Bytes(d.Received), d.Refused)
	case jobs.HangDetected:
		d := data[struct{ What, Message string }](e)
		return fmt.Sprintf("the agent hangs (%s): %s", d.What, d.Message)
	case jobs.HangEnded:
		d := data[struct {
			Step    string
			Seconds float64
		}](e)
		return fmt.Sprintf("the agent that hung is gone, after %.1fs, by %s", d.Seconds, d.Step)
	case jobs.BranchDone:
		d := data[jobs.BranchData](e)
		return fmt.Sprintf("delivered: branch %s of %s, at %.12s", d.Branch, d.Repo, d.Commit)
	case jobs.CheckReturned:
		d := data[struct{ Round, Of int }](e)
		return fmt.Sprintf("the check goes back to the agent (%d of %d)", d.Round, d.Of)
	case jobs.CapsuleStored:
		d := data[artifact.Capsule](e)
		return fmt.Sprintf("capsule: the conversation can go on from turn %d on any worker", d.Turn)
	case jobs.JobReopened:
		d := data[struct{ By string }](e)
		return "job brought back by " + cmp.Or(d.By, "somebody")
	case jobs.JobWaiting:
		return parked(data[waitingData](e))
	case jobs.SessionContinued:
		return continued(data[continuedData](e))
	case jobs.WorkspaceProgress:
		d := data[jobs.ProgressData](e)
		return fmt.Sprintf("%s: %s %d%% (%d/%d), %.0fs", d.Step, d.Phase, d.Percent, d.Done, d.Total, d.Seconds)
	case jobs.SetupEnded:
		return setupEnded(data[setupData](e))
	case jobs.Notice:
		d := data[struct {
			Text     string   `json:"text"`
			RunsCode []string `json:"runs_code"`
			Skipped  []string `json:"skipped"`
			Notes    []string `json:"notes"`
		}](e)
		if lines := slices.Concat(d.RunsCode, d.Skipped, d.Notes); d.Text != "" && len(lines) > 0 {
			return d.Text + ":\n  " + strings.Join(lines, "\n  ")
		}
	case jobs.CheckEnded:
		d := data[jobs.Check](e)
		return fmt.Sprintf("%q ended with %d", d.Command, d.Exit)
	}
	return unusual(e)
}

// unusual is the same for what has no words of its own: the values of its data,
// with their names.
func unusual(e jobs.Event) string {
	switch e.Kind {
	case jobs.JobRequeued:
		d := data[struct{ Reason, Message string }](e)
		return fmt.Sprintf("queued again (%s): %s", d.Reason, d.Message)
	case jobs.RunError:
		d := data[struct{ Stage, Message string }](e)
		return strings.TrimPrefix(d.Stage+": "+d.Message, ": ")
	case jobs.Notice, jobs.TaskUpdated:
		d := data[struct{ Text, Status string }](e)
		if text := cmp.Or(d.Text, d.Status); text != "" {
			return text
		}
	case jobs.SalvageStored:
		d := data[jobs.Salvage](e)
		return fmt.Sprintf("kept what the attempt had changed: %d files, %d commits; penstock job salvage shows it", d.Files, d.Commits)
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s", e.Kind, transcript.Fields(e.Data)))
}

func finished(d jobs.Result) string {
	text := fmt.Sprintf("job finished: %s, %d files changed, %.1fs", d.Outcome, d.FilesChanged, d.Durations.Total)
	if d.Outcome != jobs.Success {
		text += fmt.Sprintf(" (%s: %s)", d.Reason, d.Message)
	}
	return text
}

// continuedData is as much of a session.continued as is shown.
type continuedData struct {
	How, Why, From string
	Epoch          uint64
	Turn           int
}

func continued(d continuedData) string {
	switch d.How {
	case "forked":
		return fmt.Sprintf("forked: a copy of the conversation of job %s goes on after turn %d", d.From, d.Turn)
	case "resumed":
		return fmt.Sprintf("resumed: the conversation goes on after turn %d, from the capsule of epoch %d", d.Turn, d.Epoch)
	}
	text := "begun anew: " + d.Why
	if d.Epoch > 0 {
		text += fmt.Sprintf("; what was changed is in the salvage of epoch %d", d.Epoch)
	}
	return text
}

// setupData is as much of a setup.ended as is shown.
type setupData struct {
	Cached  bool
	Seconds float64
	Saved   float64 `json:"saved_seconds"`
	Reason  string
}

func setupEnded(d setupData) string {
	switch {
	case d.Cached:
		return fmt.Sprintf("setup: taken from another job, %.1fs saved", d.Saved)
	case d.Reason != "":
		return fmt.Sprintf("setup: run for this job alone (%s), %.1fs", d.Reason, d.Seconds)
	}
	return fmt.Sprintf("setup: run, %.1fs", d.Seconds)
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
