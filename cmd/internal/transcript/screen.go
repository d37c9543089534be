package transcript

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// How much of a thing is shown: the log has all of it.
const (
	outputLines  = 5
	diffLines    = 10
	thoughtLines = 4
	inputLines   = 4
)

// A Screen shows the events of one session.
type Screen struct {
	w     *console.Writer
	words func(jobs.Event) string

	id      string
	ready   event.WorkspaceReady
	calls   map[string]call // tools that run, or ran
	last    string          // the call that was shown last
	turns   int
	spent   jobs.Usage // as the agent reported it last, for its process
	cost    float64
	capsule bool
	over    bool
}

// A call is one use of a tool.
type call struct {
	event.Tool
	began time.Time
}

// New shows sessions on w. What words makes of events that have no look of their
// own is shown as it is.
func New(w *console.Writer, words func(jobs.Event) string) *Screen {
	return &Screen{w: w, words: words, calls: map[string]call{}}
}

// Over reports whether the end of the job was shown.
func (s *Screen) Over() bool { return s.over }

// Show writes what a person wants to know of an event, which may be nothing.
func (s *Screen) Show(e jobs.Event) error {
	if s.id == "" {
		s.id = Short(e.Job)
	}
	payload, _ := event.Decode(e) // of a newer version, what fits is shown
	switch d := payload.(type) {
	case event.MessageDelta, event.ThoughtDelta, event.ToolDelta, event.ToolOutput, event.StateChanged, event.Usage, event.TerminalOutput,
		event.JobSubmitted, event.TurnStarted, event.CheckStarted, event.ControlReply, event.WorkspaceGrown, event.Hook, event.Limit, event.AgentRaw:
		return nil // details of what another event tells as a whole, or of the agent's own protocol
	case event.Message:
		return s.message(d)
	case event.Thought:
		return s.block(look{indent: below(d.Parent), style: console.Dim, most: thoughtLines}, d.Text)
	case event.OutputLine:
		return s.line(d)
	case event.Milestone:
		return s.marked(console.Cyan, "◆", d.Text)
	case event.ToolStarted:
		return s.toolStarted(e, event.Tool(d))
	case event.ToolEnded:
		return s.toolEnded(e, event.Tool(d))
	case event.FileChanged:
		return s.file(d)
	case event.PlanUpdated:
		return s.plan(d)
	case event.TaskUpdated:
		return s.block(look{indent: 6, style: console.Dim}, summary.Task(d))
	case event.InputState:
		return s.input(d)
	case event.AskOpened:
		return s.question(control.Ask(d))
	case event.AskClosed:
		return s.block(look{indent: 2, style: console.Dim}, "the question is over: "+d.How)
	case event.TurnEnded:
		return s.turn(d)
	case event.Retry:
		return s.retry(d)
	}
	return s.showOfPool(e, payload)
}

// showOfPool writes the events of the pool around an agent.
func (s *Screen) showOfPool(e jobs.Event, payload event.Payload) error {
	switch d := payload.(type) {
	case event.JobClaimed:
		return s.claimed(e, d)
	case event.WorkspaceReady:
		s.ready = d
		return nil
	case event.JailStarted:
		return s.begin(e, d)
	case event.SessionStarted:
		return s.block(look{indent: 2, style: console.Dim}, summary.Join(d.Model, d.Version))
	case event.RunExited:
		return s.block(look{indent: 2, style: console.Dim}, summary.Exit(d))
	case event.CheckEnded:
		return s.check(d)
	case event.JobFinished:
		return s.finished(jobs.Result(d))
	case event.CapsuleStored:
		s.capsule = true
		return nil
	}
	return s.block(look{indent: 2, style: console.Dim}, s.words(e))
}

// A look is how lines of others are shown.
type look struct {
	indent int
	style  console.Style
	mark   string // in front of each line
	most   int    // lines; 0 is all
	after  string // behind the last line, of ours
}

// block writes a text below what it belongs to.
func (s *Screen) block(how look, text string) error {
	lines := visible.Block(text)
	if how.most > 0 && len(lines) > how.most+1 {
		more := fmt.Sprintf("… %d more lines", len(lines)-how.most)
		if how.after != "" {
			more += " · " + how.after
		}
		lines, how.after = lines[:how.most], more
	}
	lead := strings.Repeat(" ", how.indent)
	for _, line := range lines {
		for _, part := range console.Wrap(line, s.room(how.indent+console.Columns(how.mark))) {
			if err := s.w.Row(console.Span{Style: how.style, Text: lead + how.mark + part}); err != nil {
				return err
			}
		}
	}
	if how.after == "" {
		return nil
	}
	return s.w.Row(console.Span{Style: console.Dim, Text: lead + how.after})
}

// marked writes a line that begins with a mark of ours. What does not fit goes on
// below, indented.
func (s *Screen) marked(style console.Style, mark, text string) error {
	lines := visible.Block(text)
	if len(lines) == 0 {
		lines = []string{""}
	}
	first := true
	for _, line := range lines {
		for _, part := range console.Wrap(line, s.room(2)) {
			lead := "  "
			if first {
				lead, first = mark+" ", false
			}
			if err := s.w.Row(console.Span{Style: style, Text: strings.TrimRight(lead+part, " ")}); err != nil {
				return err
			}
		}
	}
	return nil
}

// room is how many columns are left after an indent; 0 is as many as are needed.
func (s *Screen) room(indent int) int {
	if width := s.w.Width(); width > 0 {
		return max(width-indent, 10)
	}
	return 0
}

// Short is as much of a job's id as a person types.
func Short(id string) string {
	const enough = len("01a205f6-dbaa-771f")
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
