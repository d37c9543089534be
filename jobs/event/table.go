package event

import (
	"encoding/json"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// A Row is what there is to know of one kind of event.
type Row struct {
	Kind jobs.Kind
	// Payload is the zero value of the kind's payload.
	Payload Payload
	// Sender is where such events come from.
	Sender Sender
	// About says, in a sentence or two, what such an event tells.
	About string

	decode func(json.RawMessage) (Payload, error)
}

// A Sender is a part of the pool that writes events.
type Sender string

// The senders. Agent stands for what a worker makes of an agent's output, and
// Jail for what the programs of a jail tell their worker. Later is nothing yet:
// the kind is promised, so that readers can be written for it.
const (
	Dispatcher Sender = "dispatcher"
	Worker     Sender = "worker"
	Agent      Sender = "agent"
	Jail       Sender = "jail"
	Later      Sender = "later"
)

// Kinds returns the rows of all kinds: those of the pool around an agent, those
// of its jail, and those of the agent's run.
func Kinds() []Row { return slices.Clone(table) }

// Lookup returns the row of a kind.
func Lookup(kind jobs.Kind) (Row, bool) {
	row, ok := byKind[kind]
	return row, ok
}

func row[P Payload](sender Sender, about string) Row {
	var zero P
	return Row{zero.EventKind(), zero, sender, about, func(data json.RawMessage) (Payload, error) {
		return unmarshal[P](data)
	}}
}

var table = []Row{
	row[JobSubmitted](Dispatcher, "A job was accepted."),
	row[JobClaimed](Worker, "An attempt begins."),
	row[JobRequeued](Worker, "An attempt has ended, and another one will follow."),
	row[JobWaiting](Worker, "The job is parked until its questions are answered."),
	row[JobFinished](Worker, "The job is over. Its data is the job's result."),
	row[JobReopened](Dispatcher, "A finished job was brought back for another attempt."),
	row[JobRejected](Dispatcher, "What was published is no job, and why."),
	row[WorkspaceReady](Worker, "The workspace is there."),
	row[WorkspaceProgress](Worker, "How far a fetch or a checkout has come that takes more than two seconds, at most once in two seconds."),
	row[WorkspaceGrown](Worker, "The workspace has become twice as large, and that is much."),
	row[JailStarted](Worker, "The agent's process runs in its jail."),
	row[JailViolation](Worker, "The jail wanted something that it did not get; once for each thing."),
	row[JailNetwork](Worker, "What an attempt reached besides the model's API."),
	row[SetupEnded](Worker, "The job's setup commands are done."),
	row[CheckStarted](Worker, "A command of setup or check begins."),
	row[CheckEnded](Worker, "A command of setup or check has ended."),
	row[CheckReturned](Worker, "A failed check goes back to the agent."),
	row[BranchDelivered](Worker, "The result is on a branch."),
	row[HangDetected](Worker, "The agent hangs and is being ended."),
	row[HangEnded](Worker, "Nothing of an agent that hung is alive any more."),
	row[SalvageStored](Worker, "What an attempt that did not end well had changed is kept."),
	row[CapsuleStored](Worker, "The conversation can go on from here on any worker."),
	row[SessionContinued](Worker, "What the agent goes on with: an earlier conversation, a copy of one, or nothing."),
	row[OverlapFound](Dispatcher, "Another job of the repository changes the same files, as seen while they run."),
	row[BudgetWarned](Worker, "Most of the job's budget is spent, or of one that it shares: four fifths."),
	row[BudgetExceeded](Worker, "The job's budget is spent, or one that it shares."),
	row[Milestone](Jail, "A program of the jail reports what was reached."),
	row[ArtifactStored](Jail, "A file that the agent sent is kept, or one that was made for delivery."),
	row[ResultSet](Jail, "The agent has set the job's result. The last one counts."),
	row[TerminalCreated](Worker, "A terminal was opened in the jail."),
	row[TerminalAttached](Worker, "A person looks at a terminal."),
	row[TerminalOutput](Worker, "What a terminal has shown."),
	row[TerminalExited](Worker, "A terminal's program has ended, or could not be started."),
	row[RunExited](Agent, "The agent's process has ended."),
	row[SessionStarted](Agent, "The agent has begun, and says what it is."),
	row[TurnStarted](Agent, "A turn begins."),
	row[TurnEnded](Agent, "A turn is over."),
	row[StateChanged](Agent, "The agent does something else than before."),
	row[InputState](Agent, "What has become of a message to the agent."),
	row[Message](Agent, "What was said, as a whole."),
	row[MessageDelta](Agent, "A piece of a message; the whole follows."),
	row[Thought](Agent, "What the agent thinks, as a whole."),
	row[ThoughtDelta](Agent, "A piece of a thought, or a sign that the agent thinks."),
	row[ToolStarted](Agent, "The agent uses a tool."),
	row[ToolDelta](Agent, "A piece of a tool's input, while the model writes it."),
	row[ToolOutput](Agent, "What a tool puts out while it runs."),
	row[ToolEnded](Agent, "What came of a tool."),
	row[FileChanged](Agent, "The agent changed a file."),
	row[PlanUpdated](Agent, "The agent's list of what it is going to do."),
	row[TaskUpdated](Agent, "What runs in the background has changed."),
	row[AskOpened](Agent, "The agent, or a program of its jail, waits for an answer."),
	row[AskClosed](Agent, "A question is over."),
	row[Usage](Agent, "What the agent says it used."),
	row[Retry](Agent, "The agent tries the model API again."),
	row[Limit](Agent, "What the agent says of the limits of its account, as it says it."),
	row[Notice](Agent, "Something that a person should see."),
	row[Hook](Agent, "What a hook of the agent reports."),
	row[ControlReply](Agent, "The agent's answer to a request that is no message."),
	row[OutputLine](Agent, "A line of output that is no message of the agent's protocol."),
	row[AgentRaw](Agent, "A message of the agent that has no kind of its own; the event's raw has it."),
}

var byKind = index()

func index() map[jobs.Kind]Row {
	rows := map[jobs.Kind]Row{}
	for _, row := range table {
		rows[row.Kind] = row
	}
	return rows
}
