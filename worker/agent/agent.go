package agent

import (
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// An Adapter knows one coding agent.
type Adapter interface {
	// About says what the agent is called and what it can do.
	About() About
	// Launch says how to start the agent for an attempt. It computes only.
	Launch(l Launch) (Plan, error)
	// Decoder reads one run of the agent that Launch planned.
	Decoder(l Launch) Decoder
}

// An About is what there is to know of an agent before it runs.
type About struct {
	Name string // the word that jobs use: "claude"
	// Install is the command that installs its program on a host; empty: there
	// is none, or nobody knows one.
	Install string
	// Protocol is the name of the agent that it speaks like; its own, unless a
	// settings file added it.
	Protocol string
	// Brought: its program is not a known one but the job's, or that of an agent
	// which a settings file adds.
	Brought bool
	// Conversation names the files in its home that hold a conversation, with
	// "{id}" for what [Total] calls it: with these alone it is resumed in
	// another home. Their lines are JSON. Empty: nobody knows them.
	Conversation string
	Abilities
}

// A Decoder reads one run. It is not safe for concurrent use.
type Decoder interface {
	// Line reads one line of output. It never fails.
	Line(line Line) Read
	// Total sums up the run so far.
	Total() Total
	// Exit closes the run: the event run.exited, and the verdict. Signal is
	// empty, or the name of the signal that ended the process.
	Exit(code int, signal string) (event.Event, jobs.Ended)
}

// A Speaker is a [Decoder] whose agent takes input while it runs. What its
// methods return is written to the agent's stdin, a line each.
type Speaker interface {
	// Say gives the agent another prompt, with a UUID of the sender's. During a
	// turn it is folded into that turn, else it begins one. Images are for an agent
	// that TakesImages.
	Say(id, text string, images ...control.Image) [][]byte
	// TakesImages reports why a prompt for this agent cannot have images, as a
	// [*control.RefusedError]; nil: it can.
	TakesImages() error
	// Answer answers an open question. An error is a [*control.RefusedError], and
	// then the question is open as before.
	Answer(a control.Message) ([]event.Event, [][]byte, error)
	// Interrupt ends the turn and keeps the agent.
	Interrupt() [][]byte
}

// A Tuner is a [Speaker] whose agent takes more than words. Both name what they
// send by an id of the sender's.
type Tuner interface {
	// Set chooses another model or mode; empty ones stay.
	Set(id, model, mode string) [][]byte
	// Raw checks a line of the agent's own protocol, because one that is not
	// exactly right could end the agent.
	Raw(id string, line []byte) ([][]byte, error)
}

// A Launch is what an adapter has to know about an attempt.
type Launch struct {
	Job     jobs.Job
	ID      string // the job's id
	Session string // the session's id
	Attempt int    // from 1
	Cwd     string // the workspace, as the agent sees it: "/workspace"
	Files   string // the directory of Plan.Files, as the agent sees it
	// Gate is the base URL of the model API inside the jail, without a slash
	// at its end. Empty: the agent finds its own way, with its own key.
	Gate string
	// Key is what the agent takes for its API key: the gate lets in who has it,
	// and puts the real one in its place.
	Key string
	// Program is what [Agents.Find] found on the host. Empty: the agent's
	// name is looked up in the jail's PATH, as an image may bring it along.
	Program Program
	// Resume names an earlier session of the agent, as [Total] reported it.
	Resume string
	// Prompt replaces the one made of the job; see Failed.
	Prompt string
	// Input is the id of the message that Prompt has; empty: it has none, or
	// several. Images belong to that message.
	Input  string
	Images []control.Image
	// Notice is told after the prompt: what the agent finds that is not as the
	// job's base has it.
	Notice string
	// Depends are the jobs that this one depends on, as they ended.
	Depends []Dependency
	// Replies are to what it had asked before, in the conversation that Resume
	// names or in another one.
	Replies []control.Reply
	// Round counts how often a failed check went back to the agent.
	Round int
	// Variable names the one that has the URL of the worker in the jail. Inside is
	// that URL, and Penstock this program there; both are known once the jail is
	// planned, so to the decoder alone.
	Variable, Inside, Penstock string

	api  string // the model API that Gate leads to; empty: the agent's own
	auth string // how an agent of protocol acp authenticates; empty: not at all
}

// A Dependency is what is left of a job that another one depends on.
type Dependency struct {
	Result jobs.Result
	Patch  []byte // nil: it has none, or none that is small enough
}

// A Plan is how to start an agent inside its jail.
type Plan struct {
	Args []string
	// Env is complete, except for what every program in the jail gets: PATH,
	// HOME, TMPDIR, LANG and the job's own variables, which come after these.
	Env []string
	// Stdin is written first, a line each. Then stdin is closed, unless
	// KeepStdin: it stays open until the decoder says that the agent is idle,
	// because what the decoder replies goes there.
	Stdin     [][]byte
	KeepStdin bool
	// Files are placed under Launch.Files, readable for the agent only.
	Files []File
	// Mounts are paths of the host that the agent must see, read-only, under
	// the same path.
	Mounts []string
}

// A File is placed in the jail before the agent starts. Path is relative to
// Launch.Files and has at most one directory in it.
type File struct {
	Path    string
	Content []byte
}

// State is what the agent is doing, as far as its output tells.
type State int

// The states of a run.
const (
	// Working: a turn is open, or none has begun yet.
	Working State = iota
	// Background: the turn is over, but something it began still runs, and
	// may begin another turn. A program that never ends stays here for ever.
	Background
	// Idle: nothing will happen unless the agent is spoken to, so stdin may
	// be closed.
	Idle
	// Over: it could not begin, so nobody needs to keep it for another prompt.
	Over
)

// A Read is what a line meant.
type Read struct {
	// Events has at least one element; the first carries the line.
	Events []event.Event
	// Reply is to be written to the agent's stdin at once, a line each: the
	// agent waits for it.
	Reply [][]byte
	State State
	// Hopeless is set once the run cannot end well, although the agent still
	// tries: the reason to end it for.
	Hopeless jobs.Reason
	// Retried is why the agent tries the model API again, until it has
	// answered.
	Retried jobs.Reason
}

// A Total sums up a run.
type Total struct {
	Usage   jobs.Usage
	CostUSD float64 // the agent's own estimate
	Model   string
	Session string // what Launch.Resume takes
	Turns   int
}
