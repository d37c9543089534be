package transcript

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
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
	header  header
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
	jobs.ToolData
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
	switch e.Kind {
	case jobs.MessageDelta, jobs.ThoughtDelta, jobs.ToolDelta, jobs.ToolOutput, jobs.StateChanged, jobs.UsageReported, jobs.TerminalOutput,
		jobs.RunStarted, jobs.TurnStarted, jobs.CheckStarted, jobs.ControlReply, jobs.WorkspaceGrew, jobs.HookReported, jobs.LimitReported, jobs.AgentRaw:
		return nil // details of what another event tells as a whole, or of the agent's own protocol
	case jobs.TaskUpdated:
		return s.block(look{indent: 6, style: console.Dim}, data[struct{ Text string }](e).Text)
	case jobs.JobSubmitted, jobs.JobClaimed, jobs.WorkspaceDone, jobs.JailStarted, jobs.SessionStarted:
		return s.beginning(e)
	case jobs.Message, jobs.Thought, jobs.OutputLine, jobs.Milestone:
		return s.speech(e)
	case jobs.ToolStarted, jobs.ToolEnded, jobs.FileChanged, jobs.PlanUpdated:
		return s.tool(e)
	case jobs.InputState, jobs.AskOpened, jobs.AskClosed:
		return s.talk(e)
	case jobs.TurnEnded, jobs.RunExited, jobs.JobFinished, jobs.CheckEnded, jobs.RetryReported:
		return s.end(e)
	case jobs.CapsuleStored:
		s.capsule = true
		return nil
	}
	return s.block(look{indent: 2, style: console.Dim}, s.words(e))
}

// data reads an event's data as far as it fits. Data of a newer version may not;
// what can be shown is shown.
func data[T any](e jobs.Event) T {
	var d T
	_ = json.Unmarshal(e.Data, &d)
	return d
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
	lines := console.Block(text)
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
	lines := console.Block(text)
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
