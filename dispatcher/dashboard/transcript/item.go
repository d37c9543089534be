package transcript

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// How much of a thing stands on the page, in bytes. The raw event has all of it.
const (
	mostText   = 32 << 10
	mostOutput = 16 << 10
	mostInput  = 8 << 10
	mostLine   = 2 << 10
	diffLines  = 120
	mostSteps  = 100
)

// closesAll stands where an event ends every question that is open.
const closesAll = "all"

// An item is an event on the page.
type item struct {
	Seq  uint64
	Kind jobs.Kind
	Time time.Time
	Look look
	Base string

	ID     string // of what others belong to: a tool call, or a question
	Into   string // the ID of what it belongs to
	Closes string // the ID of the question that it ends
	Turns  bool   // the head of the page says something else now
	Sub    bool   // of a subagent

	Title   string // a line
	Name    string // of a tool
	Counts  string // of lines that an edit adds and takes away
	Text    text
	Diffs   []diff
	Steps   []summary.Step
	Ask     *question
	Outcome string // in a word or two
	Failed  bool
	Facts   string
	Inner   []*item
}

// A text is what others wrote, as lines that are safe to show.
type text struct {
	Text string
	Cut  bool // there is more of it
}

// A diff is a change of one file.
type diff struct {
	Path     string
	Old, New []string
	More     int // lines that are not shown
}

// newItem makes the item of an event; nil, if its kind is not shown.
func newItem(e jobs.Event, o Options) *item {
	l := lookOf(e.Kind)
	if l == rawOnly {
		return nil
	}
	it := &item{Seq: e.Seq, Kind: e.Kind, Time: e.Time.UTC(), Look: l, Base: o.Base, Turns: turns[e.Kind]}
	payload, _ := event.Decode(e) // of a newer version, what fits is shown
	switch d := payload.(type) {
	case event.Message:
		it.message(d)
	case event.Thought:
		it.Text, it.Sub = cut(d.Text, mostText), d.Parent != ""
		it.Title = oneLine(visible.FirstLine(d.Text), 120)
	case event.ToolStarted:
		it.call(e, event.Tool(d))
	case event.ToolEnded:
		it.result(event.Tool(d))
	case event.FileChanged:
		it.Into, it.Title = elementID("c", d.Call), oneLine(summary.InWorkspace(d.Path)+": "+d.Change, mostLine)
	case event.PlanUpdated:
		it.plan(d)
	case event.TaskUpdated:
		it.Into, it.Title = elementID("c", d.Call), oneLine(cmp.Or(summary.Task(d), d.Status), mostLine)
	case event.AskOpened:
		it.ID, it.Ask = elementID("q", d.Ask), newQuestion(control.Ask(d), o.Answer)
	case event.InputState:
		return it.input(d)
	case event.OutputLine:
		it.Text, it.Failed = cut(d.Text, mostOutput), d.Stream == "stderr"
		it.Text.Cut = it.Text.Cut || d.Cut > 0
	default:
		it.ofPool(e, payload)
	}
	return it
}

// ofPool fills in what the pool tells around an agent.
func (it *item) ofPool(e jobs.Event, payload event.Payload) {
	switch d := payload.(type) {
	case event.JobClaimed:
		it.Closes = closesAll // the agent that had asked is gone
		it.Title = fmt.Sprintf("Attempt %d", e.Attempt)
		it.Facts = oneLine(fmt.Sprintf("worker %s, epoch %d", d.Worker, d.Epoch), mostLine)
		if d.Lost != nil {
			it.Text = cut(fmt.Sprintf("The attempt before ended without a word (%s): %s", d.Lost.Reason, d.Lost.Message), mostLine)
		}
	case event.JobRequeued:
		it.Title, it.Failed = fmt.Sprintf("Attempt %d has ended (%s); another one will follow", e.Attempt, oneLine(string(d.Reason), mostLine)), true
		it.Text = cut(d.Message, mostText)
	case event.JobFinished:
		it.Closes = closesAll
		it.finished(jobs.Result(d))
	case event.AskClosed:
		it.Closes, it.Title = elementID("q", d.Ask), oneLine("The question is over: "+d.How, mostLine)
	case event.CheckEnded:
		it.Title, it.Failed = oneLine(d.Command, mostLine), d.Exit != 0
		it.Outcome = summary.Join(fmt.Sprintf("exit code %d", d.Exit), summary.Tests(d.Tests), summary.Took(d.Seconds))
		it.Text = cut(d.Output, mostOutput)
	case event.TurnEnded:
		it.turn(d)
	case event.Retry:
		it.Title = oneLine(summary.Retry(d), mostLine)
	case event.RunExited:
		it.Title = oneLine(cmp.Or(summary.Exit(d), "the agent's process has ended"), mostLine)
	case event.Notice:
		it.Title, it.Text = oneLine(cmp.Or(d.Text, d.Type), mostLine), cut(strings.Join(slices.Concat(d.RunsCode, d.Skipped, d.Notes), "\n"), mostOutput)
		if visible.FirstLine(d.Text) != strings.TrimSpace(d.Text) {
			it.Text = cut(d.Text+"\n"+it.Text.Text, mostOutput)
		}
	default:
		it.Title = oneLine(cmp.Or(beginning(payload), summary.Event(e)), mostLine)
	}
	it.Title = cmp.Or(it.Title, string(it.Kind))
}

// beginning says how a job, an attempt or a session begins; nothing for other events.
func beginning(payload event.Payload) string {
	switch d := payload.(type) {
	case event.JobSubmitted:
		key := ""
		if d.Key != "" {
			key = "key " + d.Key
		}
		return summary.Join("submitted to queue "+d.Queue, "priority "+string(d.Priority), key)
	case event.WorkspaceReady:
		base := ""
		if d.Base != "" {
			base = fmt.Sprintf("at %.12s", d.Base)
		}
		return summary.Join("workspace ready", base, cmp.Or(d.Strategy, string(d.Isolation)), summary.Took(d.Seconds))
	case event.JailStarted:
		weaker := ""
		if len(d.Weaker) > 0 {
			weaker = "not enforced on this host: " + strings.Join(d.Weaker, ", ")
		}
		return summary.Join("the agent runs in its jail", d.Backend, weaker)
	case event.SessionStarted:
		return summary.Join("the agent has begun", d.Model, d.Version, d.Mode)
	}
	return ""
}

func (it *item) message(d event.Message) {
	it.Sub, it.Text = d.Parent != "", cut(d.Text, mostText)
	it.Outcome, it.Failed = oneLine(d.Error, mostLine), d.Error != ""
	if d.Aborted {
		it.Outcome = strings.TrimSpace("not finished " + it.Outcome)
	}
	it.Name = "Agent"
	if d.Role == "user" {
		it.Name, it.Look = "Prompt", input
	}
}

// call fills in the use of a tool. An agent may tell a change only in its own line.
func (it *item) call(e jobs.Event, d event.Tool) {
	if len(d.Input) == 0 && e.Raw != nil {
		d.Input = summary.Patches(e.Raw.JSON)
	}
	changes := summary.Changes(d)
	it.ID, it.Sub, it.Name = elementID("c", d.Call), d.Parent != "", oneLine(cmp.Or(d.Name, "tool"), 200)
	use := summary.Use(d, changes)
	it.Title = oneLine(visible.FirstLine(use), 300)
	var counts []string
	for _, c := range changes {
		counts = append(counts, c.Counts())
		it.Diffs = append(it.Diffs, newDiff(c))
	}
	it.Counts = summary.Join(counts...)
	if len(changes) == 0 {
		it.Text = cut(use, mostInput)
	}
}

func (it *item) result(d event.Tool) {
	it.Into, it.Name, it.Text = elementID("c", d.Call), oneLine(d.Name, 200), cut(d.Output, mostOutput)
	it.Failed = d.OK != nil && !*d.OK || d.ExitCode != nil && *d.ExitCode != 0
	switch {
	case d.ExitCode != nil && *d.ExitCode != 0:
		it.Outcome = fmt.Sprintf("exit code %d", *d.ExitCode)
	case it.Failed:
		it.Outcome = "failed"
	default:
		it.Outcome = "done"
	}
}

func newDiff(c summary.Change) diff {
	d := diff{Path: oneLine(summary.InWorkspace(c.Path), mostLine)}
	old := c.Old[:min(len(c.Old), max(diffLines-len(c.New), diffLines/2))]
	added := c.New[:min(len(c.New), diffLines-len(old))]
	for _, l := range old {
		d.Old = append(d.Old, codeLine(l))
	}
	for _, l := range added {
		d.New = append(d.New, codeLine(l))
	}
	d.More = len(c.Old) + len(c.New) - len(old) - len(added)
	return d
}

func (it *item) plan(d event.PlanUpdated) {
	steps := summary.Steps(d)
	for _, s := range steps[:min(len(steps), mostSteps)] {
		it.Steps = append(it.Steps, summary.Step{Mark: s.Mark, Status: oneLine(s.Status, 100), Text: oneLine(s.Text, mostLine)})
	}
}

// input fills in what a person has sent; nil for its way through the agent.
func (it *item) input(d event.InputState) *item {
	if d.State != control.Accepted {
		return nil
	}
	it.Name = oneLine(cmp.Or(d.By, "unknown"), 200)
	said := slices.Clone(d.Options)
	if content := d.Content(); content != "" {
		said = append(said, content)
	}
	for number, answer := range d.Answers {
		said = append(said, number+": "+strings.Join(answer, ", "))
	}
	if len(d.ToolInput) > 0 {
		said = append(said, string(d.ToolInput))
	}
	slices.Sort(said)
	if d.Verb != control.Prompt {
		it.Outcome = oneLine(string(d.Verb), 100)
	}
	if d.Deny {
		it.Outcome = "refused"
	}
	it.Text = cut(strings.Join(said, "\n"), mostText)
	return it
}

func (it *item) turn(d event.TurnEnded) {
	status, scope := "", ""
	if d.Status != "ok" {
		status, it.Failed = d.Status, d.Status == "error"
	}
	if d.UsageScope != "turn" && d.UsageScope != "" && summary.Tokens(d.Usage) != "" {
		scope = "of the " + d.UsageScope
	}
	lasted := ""
	if d.Seconds > 0 {
		lasted = summary.Took(d.Seconds)
	}
	reason, rest := d.Reason, d.Errors
	if len(reason) > 60 || strings.ContainsAny(reason, "\r\n") {
		reason, rest = "", append([]string{reason}, rest...)
	}
	it.Title = oneLine(summary.Join("turn ended", status, lasted, strings.TrimSpace(summary.Tokens(d.Usage)+" "+scope), summary.Dollars(d.CostUSD), reason), mostLine)
	it.Text = cut(strings.Join(rest, "\n"), mostOutput)
}

func (it *item) finished(r jobs.Result) {
	it.Failed = r.Outcome != jobs.Success && r.Outcome != jobs.Skip
	it.Title = fmt.Sprintf("Job finished: %s", oneLine(string(r.Outcome), 100))
	if it.Failed {
		it.Title += fmt.Sprintf(" (%s)", oneLine(string(r.Reason), 100))
		it.Text = cut(strings.TrimSpace(r.Message+"\n"+jobs.Reasons[r.Reason].Advice), mostText)
	}
	it.Facts = summary.Join(summary.Took(r.Durations.Total), summary.Count(int64(r.FilesChanged), "file")+" changed", summary.Tokens(r.Usage), summary.Dollars(r.CostUSD))
}

// elementID names something of a session by what the agent calls it, which may be any
// text; "" is none.
func elementID(prefix, of string) string {
	if of == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(of))
	return prefix + hex.EncodeToString(sum[:8])
}

// cut makes lines of a text that are safe to show, of so many bytes at most.
func cut(s string, most int) text {
	short := bounded(s, most)
	return text{Text: strings.Join(visible.Block(short), "\n"), Cut: len(short) < len(s)}
}

// oneLine is the same for a text of one line.
func oneLine(s string, most int) string {
	short := bounded(s, most)
	if len(short) < len(s) {
		return visible.Line(short) + " …"
	}
	return visible.Line(short)
}

// codeLine is a line of a file: that a program writes colours is part of it.
func codeLine(s string) string {
	return strings.ReplaceAll(visible.Document(bounded(strings.TrimSuffix(s, "\r"), mostLine)), "\t", "    ")
}

// bounded cuts a text at the beginning of a character.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
