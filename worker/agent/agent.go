package agent

import (
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// An Adapter knows one coding agent.
type Adapter interface {
	// About describes the agent: its name and its abilities.
	About() About
	// Launch plans how to start the agent for an attempt. It computes only.
	Launch(l Launch) (Plan, error)
	// Decoder decodes one run of the agent that Launch planned.
	Decoder(l Launch) Decoder
}

// An About describes an agent before it runs.
type About struct {
	Name string // the name that jobs use: "claude"
	// Install is the command that installs the agent's program on a host; empty if
	// there is none, or if it is not known.
	Install string
	// Package is where versions of the program come from, without a name if there is none.
	Package agentstore.Package
	// Protocol is the name of the built-in agent whose protocol this agent speaks: its
	// own name, unless a settings file added it.
	Protocol string
	// Brought: the program is not a known one but comes from the job, or from an agent
	// that a settings file adds.
	Brought bool
	// Conversation names the files in the agent's home that hold a conversation, whose id
	// [Total] reports: with these files alone another home can resume it. The zero value: they
	// are not known.
	Conversation capsule.Files
	// OneShot: an agent that takes more prompts while it runs takes them in interactive
	// jobs only; in any other job its process takes one prompt and ends.
	OneShot bool
	// Efforts are the values of a job's effort. None: its model, or its program, decides.
	Efforts []string
	Abilities
}

// TakesPrompts reports whether an agent takes more prompts while it runs, in a job that
// is interactive or not. Then, and only then, its decoder is a [Speaker].
func (a About) TakesPrompts(interactive bool) bool {
	return a.Interactive && (interactive || !a.OneShot)
}

// A Decoder decodes one run. It is not safe for concurrent use.
type Decoder interface {
	// Line decodes one line of output. It never fails.
	Line(line Line) Read
	// Total sums up the run so far.
	Total() Total
	// Exit closes the run: it returns the event run.exited and the verdict. Signal is
	// empty, or the name of the signal that ended the process.
	Exit(code int, signal string) (event.Event, jobs.Ended)
}

// A Speaker is a [Decoder] whose agent takes input while it runs. The caller writes
// what its methods return to the agent's stdin, one line each.
type Speaker interface {
	// Say gives the agent another prompt, with a UUID that the sender chose. During a
	// turn the prompt is folded into that turn; otherwise it begins one. Images need an
	// agent that TakesImages.
	Say(id, text string, images ...control.Image) [][]byte
	// TakesImages reports why a prompt for this agent cannot have images, as a
	// [*control.RefusedError]; nil if it can.
	TakesImages() error
	// Answer answers an open question. After an error, which is a
	// [*control.RefusedError], the question is still open.
	Answer(a control.Message) ([]event.Event, [][]byte, error)
	// Interrupt ends the turn and keeps the agent running.
	Interrupt() [][]byte
	// Set changes settings of the agent. The request is labeled with an id that the sender
	// chose. An error is a [*control.RefusedError].
	Set(id string, to control.Settings) ([][]byte, error)
	// Raw checks a line of the agent's own protocol, because a malformed line could end
	// the agent. It gets an id as in Set.
	Raw(id string, line []byte) ([][]byte, error)
}

// A Launch is what an adapter needs to know about an attempt.
type Launch struct {
	Job     jobs.Job
	ID      string // the job's id
	Session string // the session's id
	Attempt int    // from 1
	Cwd     string // the workspace, as the agent sees it: "/workspace"
	Files   string // the directory of Plan.Files, as the agent sees it
	// Gate is the base URL of the model API inside the jail, without a trailing slash.
	// Empty: the agent connects by itself, with its own key.
	Gate string
	// Key is what the agent uses as its API key: the gate admits requests that carry
	// it, and replaces it with the real key.
	Key string
	// Program is the program that [Agents.Find] found on the host. Empty: the agent's
	// name is looked up in the jail's PATH, because an image may contain it.
	Program Program
	// Resume names an earlier session of the agent, as [Total] reported it.
	Resume string
	// Prompt replaces the prompt made from the job; see Failed.
	Prompt string
	// Input is the id of the message that contains Prompt; empty if there is no such
	// message, or several. Images belong to that message.
	Input  string
	Images []control.Image
	// Notice is added after the prompt: differences that the agent finds between its
	// workspace and the job's base.
	Notice string
	// Depends are the finished jobs that this one depends on.
	Depends []Dependency
	// Replies answer what the agent asked before, in the conversation that Resume names
	// or in another one.
	Replies []control.Reply
	// Asked is what was asked of the agent last, in the conversation that Resume names, for an
	// agent that may not have kept it; empty: it has.
	Asked string
	// Mode says for what the agent asks permission, as a person has set it in an earlier
	// process; empty: as it begins. A model that was set so is in Job.
	Mode string
	// Round counts how often a failed check went back to the agent.
	Round int
	// Variable is the name of the variable that has the URL of the worker in the jail.
	// Inside is that URL, and Penstock this program there. Both are known only once the
	// jail is planned, so only the decoder gets them.
	Variable, Inside, Penstock string

	// API is the model API behind Gate. Empty: the Anthropic API.
	API string
	// Auth is how an agent of protocol acp authenticates. Empty: not at all.
	Auth string
}

// A Dependency is the result of a job that another one depends on.
type Dependency struct {
	Result jobs.Result
	Patch  []byte // nil: the job has none, or none that is small enough
}

// A Plan is how to start an agent inside its jail.
type Plan struct {
	Args []string
	// Env is complete, except for the variables that every program in the jail gets:
	// PATH, HOME, TMPDIR, LANG and the job's own variables, which come after these.
	Env []string
	// Stdin is written first, one line each. Then stdin is closed. With KeepStdin it
	// stays open until the decoder reports that the agent is idle, because the
	// decoder's replies are written there.
	Stdin     [][]byte
	KeepStdin bool
	// Files are placed under Launch.Files, readable only by the agent.
	Files []File
	// Mounts are paths of the host that the agent must see, read-only, under
	// the same path.
	Mounts []string
	// Program is Launch.Program, where the job names a version; else it is empty.
	Program Program
}

// A File is placed in the jail before the agent starts. Path is relative to
// Launch.Files.
type File struct {
	Path    string
	Content []byte
	Program bool // it can be executed
}

// State is the state of the agent, as far as its output shows.
type State int

// The states of a run.
const (
	// Working: a turn is open, or none has begun yet.
	Working State = iota
	// Background: the turn is over, but something that it began still runs and may
	// begin another turn. A program that never ends stays in this state for ever.
	Background
	// Idle: nothing will happen without further input, so stdin may be closed.
	Idle
	// Over: the agent could not begin, so there is no reason to keep it for another
	// prompt.
	Over
)

// A Read is the meaning of a line.
type Read struct {
	// Events has at least one element; the first carries the line.
	Events []event.Event
	// Reply is to be written to the agent's stdin at once, one line each: the agent
	// waits for it.
	Reply [][]byte
	State State
	// Hopeless is set once the run cannot end well although the agent still tries. It
	// is the reason to end the run with.
	Hopeless jobs.Reason
	// Retried is why the agent retries the model API, until the API has answered.
	Retried jobs.Reason
}

// Add adds an event.
func (r *Read) Add(p event.Payload) { r.Events = append(r.Events, event.Make(p)) }

// A Total sums up a run.
type Total struct {
	Usage   jobs.Usage
	CostUSD float64 // the agent's own estimate
	Model   string
	Session string // the value for Launch.Resume
	Turns   int
}
