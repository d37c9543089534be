package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Event is one line about an event for a person, or a few of a message. It is empty for
// details. Of a question it is what is asked, without the ways to answer.
func Event(e jobs.Event) string {
	payload, _ := event.Decode(e) // of a newer version, what fits is shown
	switch d := payload.(type) {
	case event.MessageDelta, event.ThoughtDelta, event.ToolDelta, event.ToolOutput, event.StateChanged, event.Usage, event.TerminalOutput:
		return "" // details of what another event reports as a whole
	case event.InputState:
		return describeMessage(d)
	case event.AskOpened:
		return "? " + Asked(control.Ask(d))
	case event.AskClosed:
		return "? " + d.How
	case event.Message:
		return strings.TrimSpace(fmt.Sprintf("%s: %s", d.Role, d.Text))
	case event.Thought:
		return "thinks: " + visible.FirstLine(d.Text)
	case event.OutputLine:
		if d.Stream == "stderr" {
			return "! " + d.Text
		}
		return "| " + d.Text
	case event.ToolStarted:
		return fmt.Sprintf("▸ %s %s", d.Name, visible.FirstLine(d.Title))
	case event.ToolEnded:
		return toolEnded(d)
	case event.TurnEnded:
		return strings.TrimSpace(fmt.Sprintf("turn ended: %s %s", d.Status, d.Reason))
	case event.Retry:
		return fmt.Sprintf("model API: attempt %d, %s, status %d", d.Attempt, d.Class, d.HTTP)
	case event.TaskUpdated:
		if text := cmp.Or(d.Text, d.Status); text != "" {
			if d.Tokens > 0 {
				text += fmt.Sprintf(" (%d tokens)", d.Tokens)
			}
			return text
		}
	case event.RunExited:
		return fmt.Sprintf("agent exited with %d (%s)", d.Code, d.Class)
	}
	return cmp.Or(poolSummary(payload), insideSummary(payload), strings.TrimSpace(fmt.Sprintf("%s: %s", e.Kind, Fields(e.Data))))
}

// poolSummary is the same for the events of the pool itself. Empty: the event is
// none of them, or has no words of its own.
func poolSummary(payload event.Payload) string {
	switch d := payload.(type) {
	case event.JobSubmitted:
		return submitted(d)
	case event.WorkspaceReady:
		return ready(d)
	case event.CheckStarted:
		return "check.started: " + d.Command
	case event.JobFinished:
		return finished(jobs.Result(d))
	case event.JobRequeued:
		return fmt.Sprintf("requeued (%s): %s", d.Reason, d.Message)
	case event.JobReopened:
		return "job resumed by " + cmp.Or(d.By, "unknown")
	case event.JobWaiting:
		return parked(d)
	case event.SessionContinued:
		return continued(d)
	case event.OverlapFound:
		return jobs.Overlap(d).String()
	case event.WorkspaceProgress:
		return fmt.Sprintf("%s: %s %d%% (%d/%d), %.0fs", d.Step, d.Phase, d.Percent, d.Done, d.Total, d.Seconds)
	case event.SetupEnded:
		return setupEnded(d)
	case event.CheckEnded:
		return Join(fmt.Sprintf("%q ended with %d", d.Command, d.Exit), Tests(d.Tests))
	case event.CheckReturned:
		return fmt.Sprintf("the check goes back to the agent (%d of %d)", d.Round, d.Of)
	case event.HangDetected:
		return fmt.Sprintf("the agent hangs (%s): %s", d.What, d.Message)
	case event.HangEnded:
		return fmt.Sprintf("the agent that hung is gone, after %.1fs, by %s", d.Seconds, d.Step)
	case event.BranchDelivered:
		return fmt.Sprintf("delivered: branch %s of %s, at %.12s", d.Branch, d.Repo, d.Commit)
	case event.SalvageStored:
		return fmt.Sprintf("saved the attempt's changes: %d files, %d commits; penstock job salvage shows them", d.Files, d.Commits)
	case event.CapsuleStored:
		return fmt.Sprintf("capsule: any worker can continue the conversation from turn %d", d.Turn)
	case event.Notice:
		return notice(d)
	}
	return ""
}

// insideSummary is the same for what happens in the jail.
func insideSummary(payload event.Payload) string {
	switch d := payload.(type) {
	case event.JailViolation:
		return fmt.Sprintf("refused: %s %s (%s)", cmp.Or(d.Method, d.Kind), d.What(), d.Reason)
	case event.JailNetwork:
		return fmt.Sprintf("network: %d hosts, %s sent, %s received, %d refused", len(d.Hosts), jobs.Bytes(d.Sent), jobs.Bytes(d.Received), d.Refused)
	case event.Milestone:
		return "* " + d.Text
	case event.ArtifactStored:
		return fmt.Sprintf("artifact %s: %d bytes", d.Name, d.Bytes)
	case event.ResultSet:
		return "result: " + Fields(d.Value)
	case event.TerminalCreated:
		return fmt.Sprintf("terminal %d: %s", d.Terminal, visible.FirstLine(strings.Join(d.Args, " ")))
	}
	return ""
}

func submitted(d event.JobSubmitted) string {
	text := fmt.Sprintf("job.submitted: queue %s, priority %s", d.Queue, d.Priority)
	if d.Batch != "" {
		text += ", item " + d.Item // without a batch it is the job's id
	}
	if d.NotBefore != nil {
		text += ", not before " + d.NotBefore.Format(time.DateTime)
	}
	if d.Title != "" {
		text += ": " + visible.FirstLine(d.Title)
	}
	return text
}

func ready(d event.WorkspaceReady) string {
	text := "workspace.ready: " + cmp.Or(d.Strategy, string(d.Isolation))
	if from := cmp.Or(d.Branch, d.OriginalBranch); from != "" {
		text += " of " + from
	}
	if commit := cmp.Or(d.Head, d.Base); commit != "" {
		text += fmt.Sprintf(" at %.12s", commit)
	}
	if d.Name != "" {
		text += ", worktree " + d.Name
	}
	return text + fmt.Sprintf(", in %.1fs", d.Seconds)
}

func notice(d event.Notice) string {
	lines := slices.Concat(d.RunsCode, d.Skipped, d.Notes)
	if d.Text == "" || len(lines) == 0 {
		return d.Text
	}
	return d.Text + ":\n  " + strings.Join(lines, "\n  ")
}

func finished(d jobs.Result) string {
	text := fmt.Sprintf("job finished: %s, %d files changed, %.1fs", d.Outcome, d.FilesChanged, d.Durations.Total)
	if d.Outcome != jobs.Success {
		text += fmt.Sprintf(" (%s: %s)", d.Reason, d.Message)
	}
	return text
}

func continued(d event.SessionContinued) string {
	switch d.How {
	case "forked":
		return fmt.Sprintf("forked: a copy of the conversation of job %s continues after turn %d", d.From, d.Turn)
	case "resumed":
		return fmt.Sprintf("resumed: the conversation continues after turn %d, from the capsule of epoch %d", d.Turn, d.Epoch)
	}
	text := "begun anew: " + d.Why
	if d.Epoch > 0 {
		text += fmt.Sprintf("; the changes are in the salvage of epoch %d", d.Epoch)
	}
	return text
}

func setupEnded(d event.SetupEnded) string {
	switch {
	case d.Cached:
		return fmt.Sprintf("setup: taken from another job, %.1fs saved", d.Saved)
	case d.Reason != "":
		return fmt.Sprintf("setup: run for this job alone (%s), %.1fs", d.Reason, d.Seconds)
	}
	return fmt.Sprintf("setup: run, %.1fs", d.Seconds)
}

func toolEnded(d event.ToolEnded) string {
	mark := "✓"
	if d.OK != nil && !*d.OK {
		mark = "✗"
	}
	return fmt.Sprintf("%s %s %s", mark, d.Name, visible.FirstLine(d.Output))
}

// describeMessage describes a message to a session. How the agent receives it is a detail.
func describeMessage(d event.InputState) string {
	if d.State != control.Accepted {
		return ""
	}
	who := cmp.Or(d.By, "unknown")
	if d.Verb == control.Prompt {
		return fmt.Sprintf("%s: %s", who, d.Content())
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", who, d.Verb, visible.FirstLine(d.Text)))
}

func parked(d event.JobWaiting) string {
	return fmt.Sprintf("parked: the job holds no slot until it gets an answer, or until %s: %s", d.Until.Format(time.DateTime), visible.FirstLine(d.Question))
}

// Asked is what an agent wants to know, or to do.
func Asked(d control.Ask) string {
	questions := d.List()
	if d.Type == "permission" || questions[0].Question == "" {
		return fmt.Sprintf("the agent wants %s: %s", cmp.Or(d.Tool, d.Type), Fields(d.Input))
	}
	var texts []string
	for _, q := range questions {
		texts = append(texts, q.Question)
	}
	return strings.Join(texts, "\n")
}
