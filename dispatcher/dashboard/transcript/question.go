package transcript

import (
	"cmp"
	"strconv"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/summary"
)

// How many questions and options have a form: an agent may send any number.
const (
	mostQuestions = 20
	mostOptions   = 50
)

// A question is what an agent asks, with what its forms need.
type question struct {
	Ask        string // its id
	Permission bool   // it asks whether it may do something
	What       string // what it wants to do
	Input      text   // of the tool
	Parts      []part
	Open       bool
	Answer     bool // who looks may answer
}

// A part is one of the questions that are asked at once.
type part struct {
	Number  int
	Text    text
	Header  string
	Several bool // options may be chosen
	Options []option
}

type option struct{ Value, Label, Description string }

// One reports whether a click on one of its options is the whole answer.
func (q *question) One() bool { return len(q.Parts) == 1 && !q.Parts[0].Several }

func newQuestion(d control.Ask, answer bool) *question {
	list := d.List()
	q := &question{Ask: d.Ask, Open: true, Answer: answer, Permission: d.Type == "permission" || list[0].Question == "" && len(list) == 1}
	if len(d.Ask) > mostLine {
		q.Ask = "" // the only one that is open
	}
	if q.Permission {
		tool := event.Tool{Name: cmp.Or(d.Tool, d.Type, "something"), Input: d.Input}
		q.What = oneLine(tool.Name, 200)
		q.Input = cut(summary.Use(tool, summary.Changes(tool)), mostInput)
	}
	for i, asked := range list[:min(len(list), mostQuestions)] {
		p := part{Number: i + 1, Text: cut(asked.Question, mostInput), Header: oneLine(asked.Header, 200), Several: asked.Multi}
		for n, o := range asked.Options[:min(len(asked.Options), mostOptions)] {
			p.Options = append(p.Options, option{valueOf(asked, n), oneLine(o.Label, 300), oneLine(o.Description, mostLine)})
		}
		q.Parts = append(q.Parts, p)
	}
	return q
}

// valueOf returns the name by which a form chooses an option: its number, since a browser
// changes some characters of what a form has; or, where labels are numbers that could be
// taken for others, its label.
func valueOf(q control.Question, n int) string {
	if len(q.Options[n].Label) > mostLine {
		return strconv.Itoa(n + 1)
	}
	for _, o := range q.Options {
		if _, err := strconv.Atoi(o.Label); err == nil {
			return q.Options[n].Label
		}
	}
	return strconv.Itoa(n + 1)
}
