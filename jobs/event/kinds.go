package event

import "github.com/penstock-run/penstock/jobs"

// The kind of each payload.

func (JobSubmitted) EventKind() jobs.Kind      { return jobs.JobSubmitted }
func (JobClaimed) EventKind() jobs.Kind        { return jobs.JobClaimed }
func (JobRequeued) EventKind() jobs.Kind       { return jobs.JobRequeued }
func (JobWaiting) EventKind() jobs.Kind        { return jobs.JobWaiting }
func (JobFinished) EventKind() jobs.Kind       { return jobs.JobFinished }
func (JobReopened) EventKind() jobs.Kind       { return jobs.JobReopened }
func (JobRejected) EventKind() jobs.Kind       { return jobs.JobRejected }
func (WorkspaceReady) EventKind() jobs.Kind    { return jobs.WorkspaceDone }
func (WorkspaceProgress) EventKind() jobs.Kind { return jobs.WorkspaceProgress }
func (WorkspaceGrown) EventKind() jobs.Kind    { return jobs.WorkspaceGrew }
func (JailStarted) EventKind() jobs.Kind       { return jobs.JailStarted }
func (JailViolation) EventKind() jobs.Kind     { return jobs.JailViolation }
func (JailNetwork) EventKind() jobs.Kind       { return jobs.NetworkUsed }
func (SetupEnded) EventKind() jobs.Kind        { return jobs.SetupEnded }
func (CheckStarted) EventKind() jobs.Kind      { return jobs.CheckStarted }
func (CheckEnded) EventKind() jobs.Kind        { return jobs.CheckEnded }
func (CheckReturned) EventKind() jobs.Kind     { return jobs.CheckReturned }
func (BranchDelivered) EventKind() jobs.Kind   { return jobs.BranchDone }
func (HangDetected) EventKind() jobs.Kind      { return jobs.HangDetected }
func (HangEnded) EventKind() jobs.Kind         { return jobs.HangEnded }
func (SalvageStored) EventKind() jobs.Kind     { return jobs.SalvageStored }
func (CapsuleStored) EventKind() jobs.Kind     { return jobs.CapsuleStored }
func (SessionContinued) EventKind() jobs.Kind  { return jobs.SessionContinued }
func (OverlapFound) EventKind() jobs.Kind      { return jobs.OverlapFound }
func (BudgetWarned) EventKind() jobs.Kind      { return jobs.BudgetWarned }
func (BudgetExceeded) EventKind() jobs.Kind    { return jobs.BudgetSpent }
func (Milestone) EventKind() jobs.Kind         { return jobs.Milestone }
func (ArtifactStored) EventKind() jobs.Kind    { return jobs.ArtifactStored }
func (ResultSet) EventKind() jobs.Kind         { return jobs.ResultSet }
func (TerminalCreated) EventKind() jobs.Kind   { return jobs.TerminalCreated }
func (TerminalAttached) EventKind() jobs.Kind  { return jobs.TerminalAttached }
func (TerminalOutput) EventKind() jobs.Kind    { return jobs.TerminalOutput }
func (TerminalExited) EventKind() jobs.Kind    { return jobs.TerminalExited }
func (RunExited) EventKind() jobs.Kind         { return jobs.RunExited }
func (SessionStarted) EventKind() jobs.Kind    { return jobs.SessionStarted }
func (TurnStarted) EventKind() jobs.Kind       { return jobs.TurnStarted }
func (TurnEnded) EventKind() jobs.Kind         { return jobs.TurnEnded }
func (StateChanged) EventKind() jobs.Kind      { return jobs.StateChanged }
func (InputState) EventKind() jobs.Kind        { return jobs.InputState }
func (Message) EventKind() jobs.Kind           { return jobs.Message }
func (MessageDelta) EventKind() jobs.Kind      { return jobs.MessageDelta }
func (Thought) EventKind() jobs.Kind           { return jobs.Thought }
func (ThoughtDelta) EventKind() jobs.Kind      { return jobs.ThoughtDelta }
func (ToolStarted) EventKind() jobs.Kind       { return jobs.ToolStarted }
func (ToolDelta) EventKind() jobs.Kind         { return jobs.ToolDelta }
func (ToolOutput) EventKind() jobs.Kind        { return jobs.ToolOutput }
func (ToolEnded) EventKind() jobs.Kind         { return jobs.ToolEnded }
func (FileChanged) EventKind() jobs.Kind       { return jobs.FileChanged }
func (PlanUpdated) EventKind() jobs.Kind       { return jobs.PlanUpdated }
func (TaskUpdated) EventKind() jobs.Kind       { return jobs.TaskUpdated }
func (AskOpened) EventKind() jobs.Kind         { return jobs.AskOpened }
func (AskClosed) EventKind() jobs.Kind         { return jobs.AskClosed }
func (Usage) EventKind() jobs.Kind             { return jobs.UsageReported }
func (Retry) EventKind() jobs.Kind             { return jobs.RetryReported }
func (Limit) EventKind() jobs.Kind             { return jobs.LimitReported }
func (Notice) EventKind() jobs.Kind            { return jobs.Notice }
func (Hook) EventKind() jobs.Kind              { return jobs.HookReported }
func (ControlReply) EventKind() jobs.Kind      { return jobs.ControlReply }
func (OutputLine) EventKind() jobs.Kind        { return jobs.OutputLine }
func (AgentRaw) EventKind() jobs.Kind          { return jobs.AgentRaw }
