package transcript

import "github.com/penstock-run/penstock/jobs"

// A look is how events of a kind are shown: a class, and a branch of the template.
type look string

const (
	rawOnly look = ""        // among the raw events alone
	attempt look = "attempt" // the heading of an attempt
	end     look = "end"     // of an attempt, or of the job
	message look = "message"
	input   look = "input" // what a person sent
	thought look = "thought"
	tool    look = "tool"
	result  look = "result" // what came of a tool
	plan    look = "plan"
	ask     look = "ask"
	check   look = "check"
	output  look = "output" // a line of it
	line    look = "line"   // of words
	notice  look = "notice" // a line that a person should not miss
)

// looks has every kind of event.
var looks = map[jobs.Kind]look{
	jobs.JobSubmitted: line, jobs.JobClaimed: attempt, jobs.JobRequeued: end, jobs.JobWaiting: notice, jobs.JobFinished: end,
	jobs.JobReopened: line, jobs.JobRejected: notice,
	jobs.WorkspaceDone: line, jobs.WorkspaceProgress: line, jobs.WorkspaceGrew: rawOnly,
	jobs.JailStarted: line, jobs.JailViolation: notice, jobs.NetworkUsed: line,
	jobs.SetupEnded: line, jobs.CheckStarted: rawOnly, jobs.CheckEnded: check, jobs.CheckReturned: line,
	jobs.BranchDone: line, jobs.HangDetected: notice, jobs.HangEnded: line, jobs.SalvageStored: line, jobs.CapsuleStored: line,
	jobs.SessionContinued: line, jobs.OverlapFound: notice, jobs.BudgetWarned: notice, jobs.BudgetSpent: notice,

	jobs.Milestone: line, jobs.ArtifactStored: line, jobs.ResultSet: line,
	jobs.TerminalCreated: line, jobs.TerminalAttached: line, jobs.TerminalOutput: rawOnly, jobs.TerminalExited: line,

	jobs.RunExited: line, jobs.SessionStarted: line, jobs.TurnStarted: rawOnly, jobs.TurnEnded: line, jobs.StateChanged: rawOnly,
	jobs.InputState: input, jobs.Message: message, jobs.MessageDelta: rawOnly, jobs.Thought: thought, jobs.ThoughtDelta: rawOnly,
	jobs.ToolStarted: tool, jobs.ToolDelta: rawOnly, jobs.ToolOutput: rawOnly, jobs.ToolEnded: result,
	jobs.FileChanged: line, jobs.PlanUpdated: plan, jobs.TaskUpdated: line, jobs.AskOpened: ask, jobs.AskClosed: line,
	jobs.UsageReported: rawOnly, jobs.RetryReported: notice, jobs.LimitReported: rawOnly, jobs.Notice: notice,
	jobs.HookReported: rawOnly, jobs.ControlReply: rawOnly, jobs.OutputLine: output, jobs.AgentRaw: rawOnly,
}

// lookOf returns the look of a kind. One of a newer version is a line of words.
func lookOf(kind jobs.Kind) look {
	if l, known := looks[kind]; known {
		return l
	}
	return line
}

// turns are the kinds after which the head of the page says something else.
var turns = map[jobs.Kind]bool{
	jobs.JobClaimed: true, jobs.JobRequeued: true, jobs.JobWaiting: true, jobs.JobFinished: true, jobs.JobReopened: true,
	jobs.AskOpened: true, jobs.AskClosed: true, jobs.TurnEnded: true,
}
