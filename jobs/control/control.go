// Package control is the vocabulary of messages to a session whose agent runs,
// and of what becomes of them; values only.
//
//	message ──▶ accepted, once and in order ──▶ the agent
//	   └──────▶ refused, with a reason: it had no effect
package control

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
)

// Bounds of a control message without its images. Its text fits an event, uncut.
const (
	MaxBytes = 256 << 10
	MaxText  = 128 << 10
)

// A Verb is what a control message asks for.
type Verb string

// The verbs.
const (
	Prompt    Verb = "prompt"    // text for the agent: folded into its turn, or the beginning of one
	Answer    Verb = "answer"    // to a question, or to a request for permission
	Interrupt Verb = "interrupt" // the turn ends, the agent lives on
	Stop      Verb = "stop"      // the agent ends, and what it did counts
	Raw       Verb = "raw"       // one line of the agent's own protocol
	Set       Verb = "set"       // another model or mode, from now on
)

// A Message is a message to a session whose agent runs. The fields after Verb
// belong to one verb each.
type Message struct {
	// ID is the sender's choice, a UUID. The same one again has no second
	// effect, and the same receipt.
	ID   string `json:"id"`
	Verb Verb   `json:"verb"`
	By   string `json:"by,omitempty"` // who sends it, for those who read the session

	Text   string  `json:"text,omitempty"`   // of a prompt; of an answer in words of one's own
	Images []Image `json:"images,omitempty"` // of a prompt

	// Ask names the question that is answered; empty: the only one that is
	// open. Options are labels of its choices. Answers are for an ask of
	// several questions, by their numbers from 1, their headers or their texts.
	// Deny refuses what is asked for, and lets a question go unanswered. ToolInput
	// grants a permission with another input than the agent wants to use.
	Ask     string           `json:"ask,omitempty"`
	Options []string         `json:"options,omitempty"`
	Answers map[string]Words `json:"answers,omitempty"`
	Deny    bool             `json:"deny,omitempty"`

	ToolInput json.RawMessage `json:"tool_input,omitempty"`

	Line json.RawMessage `json:"line,omitempty"` // of raw

	Model  string `json:"model,omitempty"` // of set
	Mode   string `json:"mode,omitempty"`
	Effort string `json:"effort,omitempty"`
}

// Settings are what a message of set changes for the agent, and its next process begins with;
// what is empty stays as it is.
type Settings struct{ Model, Mode, Effort string }

// Settings are those of a message of set.
func (c Message) Settings() Settings { return Settings{c.Model, c.Mode, c.Effort} }

// Settings are those of an accepted message of set.
func (in Input) Settings() Settings { return Settings{in.Model, in.Mode, in.Effort} }

// Then are the settings after others have come.
func (s Settings) Then(next Settings) Settings {
	return Settings{cmp.Or(next.Model, s.Model), cmp.Or(next.Mode, s.Mode), cmp.Or(next.Effort, s.Effort)}
}

// A Receipt says that a message was taken, and by which attempt.
type Receipt struct {
	ID      string `json:"id"`
	Verb    Verb   `json:"verb"`
	Job     string `json:"job"`
	Session string `json:"session"`
	Attempt int    `json:"attempt"`
	State   string `json:"state"` // accepted
}

// Decode reads a control message and validates it.
func Decode(data []byte) (Message, error) {
	var c Message
	if len(data) > MaxEncoded {
		return c, tooLong(len(data), MaxEncoded)
	}
	if err := jobs.DecodeBounded(data, &c, MaxEncoded); err != nil {
		return c, err
	}
	rest := len(data)
	for _, i := range c.Images {
		rest -= base64.StdEncoding.EncodedLen(len(i.Data))
	}
	if rest > MaxBytes {
		return c, tooLong(rest, MaxBytes)
	}
	return c, c.Validate()
}

func tooLong(n, limit int) error {
	return &jobs.InvalidError{What: "message", Fields: []jobs.FieldError{{Field: "(message)", Reason: fmt.Sprintf("is %d bytes long, at most %d are allowed", n, limit)}}}
}

// Validate reports everything that is wrong with a message, as an
// [*jobs.InvalidError].
func (c Message) Validate() error {
	found := &findings{}
	if uuid.Validate(c.ID) != nil || strings.ToLower(c.ID) != c.ID || len(c.ID) != 36 {
		found.add("id", fmt.Errorf("%q is not a UUID, in lower case", c.ID))
	}
	if verbs := []Verb{Prompt, Answer, Interrupt, Stop, Raw, Set}; !slices.Contains(verbs, c.Verb) {
		found.add("verb", fmt.Errorf("%q is not allowed; use one of %v", c.Verb, verbs))
	}
	found.add("by", text(c.By, 256))
	found.add("text", text(c.Text, MaxText))
	c.misplaced(found)
	switch c.Verb {
	case Prompt:
		if strings.TrimSpace(c.Text) == "" && len(c.Images) == 0 {
			found.add("text", fmt.Errorf("is missing: write the text for the agent"))
		}
		c.validateImages(found)
	case Answer:
		c.validateAnswer(found)
	case Raw:
		if len(c.Line) == 0 || c.Line[0] != '{' {
			found.add("line", fmt.Errorf("is missing: one JSON object of the agent's own protocol"))
		}
	case Set:
		if c.Settings() == (Settings{}) {
			found.add("model", fmt.Errorf("is missing, and so are mode and effort: name one of them"))
		}
		found.add("model", text(c.Model, 256))
		found.add("mode", text(c.Mode, 64))
		found.add("effort", text(c.Effort, 64))
	}
	return found.orNil()
}

// misplaced finds fields of another verb: their sender means something that
// would not happen.
func (c Message) misplaced(found *findings) {
	for _, f := range []struct {
		field string
		set   bool
		verbs []Verb
	}{
		{"text", c.Text != "", []Verb{Prompt, Answer}},
		{"images", len(c.Images) > 0, []Verb{Prompt}},
		{"ask", c.Ask != "", []Verb{Answer}},
		{"options", len(c.Options) > 0, []Verb{Answer}},
		{"answers", len(c.Answers) > 0, []Verb{Answer}},
		{"deny", c.Deny, []Verb{Answer}},
		{"tool_input", len(c.ToolInput) > 0, []Verb{Answer}},
		{"line", len(c.Line) > 0, []Verb{Raw}},
		{"model", c.Model != "", []Verb{Set}},
		{"mode", c.Mode != "", []Verb{Set}},
		{"effort", c.Effort != "", []Verb{Set}},
	} {
		if f.set && !slices.Contains(f.verbs, c.Verb) {
			found.add(f.field, fmt.Errorf("has no meaning for %q", c.Verb))
		}
	}
}

func (c Message) validateAnswer(found *findings) {
	found.add("ask", text(c.Ask, 256))
	said := 0
	for _, given := range []bool{len(c.Options) > 0, c.Text != "" && !c.Deny, len(c.Answers) > 0, c.Deny, len(c.ToolInput) > 0} {
		if given {
			said++
		}
	}
	if said > 1 {
		found.add("options", fmt.Errorf("and text, answers, deny and tool_input exclude each other; only deny may have a text"))
	}
	if len(c.Options) > 64 || len(c.Answers) > 64 {
		found.add("options", fmt.Errorf("has more than 64 entries"))
	}
	switch {
	case len(c.ToolInput) > 0 && c.ToolInput[0] != '{':
		found.add("tool_input", fmt.Errorf("is no JSON object"))
	case len(c.ToolInput) > MaxText:
		found.add("tool_input", fmt.Errorf("is %d bytes long, at most %d are allowed", len(c.ToolInput), MaxText))
	}
	for i, o := range c.Options {
		found.add(fmt.Sprintf("options[%d]", i), text(o, 4096))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Answers)) {
		found.add("answers", text(name, 4096))
		if n := len(c.Answers[name]); n == 0 || n > 64 {
			found.add("answers", fmt.Errorf("has %d answers to question %.100q; from 1 to 64 are allowed", n, name))
		}
		for _, words := range c.Answers[name] {
			found.add("answers", text(words, MaxText))
		}
	}
}

// findings are what is wrong with a message.
type findings struct{ fields []jobs.FieldError }

func (f *findings) add(field string, err error) {
	if err != nil {
		f.fields = append(f.fields, jobs.FieldError{Field: field, Reason: err.Error()})
	}
}

func (f *findings) orNil() error {
	if len(f.fields) == 0 {
		return nil
	}
	return &jobs.InvalidError{What: "message", Fields: f.fields}
}

func text(s string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), limit)
	case strings.ContainsRune(s, 0) || !utf8.ValidString(s):
		return fmt.Errorf("has a NUL byte or is not UTF-8")
	}
	return nil
}

// Refusal says why a control message had no effect.
type Refusal string

// The refusals.
const (
	Invalid  Refusal = "invalid"   // it is not a message
	Finished Refusal = "finished"  // the job has ended
	NotReady Refusal = "not_ready" // no agent runs now; later one may
	Over     Refusal = "over"      // the agent takes no more
	Cannot   Refusal = "cannot"    // this agent cannot do that
	Nothing  Refusal = "nothing"   // there is nothing to answer, or to interrupt
	Unfit    Refusal = "answer"    // the answer does not fit the question
	Busy     Refusal = "busy"      // the agent does not read
	Lost     Refusal = "lost"      // the worker cannot tell whether it still holds the job
)

// Refusals lists them.
var Refusals = []Refusal{Invalid, Finished, NotReady, Over, Cannot, Nothing, Unfit, Busy, Lost}

// A RefusedError is the answer to a control message that had no effect.
type RefusedError struct {
	Code    Refusal `json:"code"`
	Message string  `json:"message"`
}

// Refused makes one.
func Refuse(code Refusal, format string, args ...any) *RefusedError {
	return &RefusedError{code, fmt.Sprintf(format, args...)}
}

func (e *RefusedError) Error() string { return e.Message }

// ErrorCode implements what [jobs.Code] asks for.
func (e *RefusedError) ErrorCode() jobs.ErrorCode { return jobs.ErrorCode(e.Code) }

// Is reports that the message came too late as [jobs.ErrFinished].
func (e *RefusedError) Is(target error) bool {
	return target == jobs.ErrFinished && e.Code == Finished
}

// Accepted is the state of an input whose event says what was sent.
const Accepted = "accepted"

// Input is what has become of a message to the agent: the payload of the event
// [jobs.InputState]. Verb and the fields after it are set with the state "accepted".
type Input struct {
	Input string `json:"input" jsonschema:"The message's id."`
	State string `json:"state" jsonschema:"accepted, queued, started, taken or completed."`
	Verb  Verb   `json:"verb,omitempty" jsonschema:"What the message asks for. This field and those after it are set with accepted."`
	By    string `json:"by,omitempty" jsonschema:"Who sent it."`
	Text  string `json:"text,omitempty" jsonschema:"Its text."`

	Images []StoredImage `json:"images,omitempty" jsonschema:"Its images, which are kept as artifacts."`

	Ask     string           `json:"ask,omitempty" jsonschema:"The question that it answers."`
	Options []string         `json:"options,omitempty" jsonschema:"The options that it chooses."`
	Answers map[string]Words `json:"answers,omitempty" jsonschema:"The answer to each of several questions, by its number."`
	Deny    bool             `json:"deny,omitempty" jsonschema:"It declines to answer."`

	ToolInput json.RawMessage `json:"tool_input,omitempty" jsonschema:"What the tool gets instead of what the agent asked for."`

	Model  string `json:"model,omitempty" jsonschema:"The model that it sets."`
	Mode   string `json:"mode,omitempty" jsonschema:"The mode that it sets."`
	Effort string `json:"effort,omitempty" jsonschema:"The effort that it sets."`
}

// Input says that the message was accepted. Its images are not in it: whoever accepts
// them says where they are kept.
func (c Message) Input() Input {
	return Input{
		Input: c.ID, State: Accepted, Verb: c.Verb, By: c.By, Text: c.Text,
		Ask: c.Ask, Options: c.Options, Answers: c.Answers, Deny: c.Deny, ToolInput: c.ToolInput, Model: c.Model, Mode: c.Mode, Effort: c.Effort,
	}
}

// Answer is the answer that was accepted, as a message.
func (in Input) Answer() Message {
	return Message{Verb: Answer, Ask: in.Ask, Text: in.Text, Options: in.Options, Answers: in.Answers, Deny: in.Deny, ToolInput: in.ToolInput}
}

// Ask is what an agent asks, or what became of that: the payload of the events
// [jobs.AskOpened] and [jobs.AskClosed]. Questions are a list of [Question] as
// the agent wrote it.
type Ask struct {
	Ask       string          `json:"ask" jsonschema:"The question's id."`
	Type      string          `json:"type,omitempty" jsonschema:"question, permission or other."`
	Tool      string          `json:"tool,omitempty" jsonschema:"The tool that the agent wants to use."`
	Call      string          `json:"call,omitempty" jsonschema:"The tool call that waits for the answer."`
	Questions json.RawMessage `json:"questions,omitempty" jsonschema:"What is asked: a list of question, header, options (label, description) and multiSelect."`
	Input     json.RawMessage `json:"input,omitempty" jsonschema:"The input of the tool, as the agent has it."`
	How       string          `json:"how,omitempty" jsonschema:"How it was closed: answered, allowed, declined, withdrawn, default or expired."`
}

// Waits reports whether a person is to answer, however long that takes: a session that does
// nothing but wait for it may be parked.
func (a Ask) Waits() bool { return a.Type == "question" || a.Type == "permission" }

// List is what is asked.
func (a Ask) List() []Question {
	var list []Question
	if json.Unmarshal(a.Questions, &list) != nil || len(list) == 0 {
		return []Question{{}}
	}
	return list
}

// A Question is one of those that an agent asks at once.
type Question struct {
	Question string   `json:"question"`
	Header   string   `json:"header,omitempty"`
	Options  []Option `json:"options,omitempty"`
	Multi    bool     `json:"multiSelect,omitempty"` // several options may be chosen
}

// An Option is a choice that a question offers.
type Option struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
	// Kind is what choosing it does to a request for permission: allow_once,
	// allow_always, reject_once or reject_always. Options of a question have none.
	Kind string `json:"kind,omitempty"`
}

// Refuses reports whether choosing it refuses a permission.
func (o Option) Refuses() bool { return strings.HasPrefix(o.Kind, "reject") }

// A Reply is what became of a question that an agent had asked, whose process has
// ended since.
type Reply struct {
	// Tool is what a permission was asked for, and Input its input; empty: it was a question.
	Tool      string
	Input     json.RawMessage
	Questions []string
	Answers   []string // of each question
	Declined  bool     // there are none
	Why       string   // it was declined
}
