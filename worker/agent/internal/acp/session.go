package acp

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
)

// decoder speaks with an agent of the Agent Client Protocol.
//
//	initialize ──▶ (authenticate) ──▶ session/new, resume or load ──▶ session/prompt ──▶ its answer
//	                                                                       ▲                  │
//	                                                                       └── what waits ────┘
//
// The agent takes one prompt at a time, so a prompt sent during a turn waits for the
// next turn. Lines are decoded leniently, as for every agent; lines that we write use
// the types of the protocol's Go SDK.
type decoder struct {
	decode.Turns
	settings
	launch  agent.Launch
	about   string // what the agent calls itself
	can     capabilities
	replay  replay
	with    Options
	earlier float64 // US dollars that the session had cost before this process
	sent    string  // the prompt without an answer
	begun   bool    // the beginning of its turn was reported
	unseen  int     // how many of its images the agent does not take
	dead    bool    // the agent could not begin
	queue   []prompt
	asks    decode.Asks
	dropped []string // questions that an interrupt has closed
	tools   map[string]tool
	text    string // of the message that is arriving
	thought string
	result  string     // the last message of the turn
	calls   jobs.Usage // what the calls of the turn have used, as far as the agent tells of each
}

// A prompt waits for its turn. It has blocks that its sender made, or a text and
// images.
type prompt struct {
	id     string
	blocks json.RawMessage
	text   string
	images []control.Image
}

// content is the prompt in the protocol's form, for an agent that takes images or does
// not.
func (p prompt) content(images bool) json.RawMessage {
	if p.blocks != nil {
		return p.blocks
	}
	if !images {
		p = prompt{text: control.WithoutImages(p.text, len(p.images), "which you cannot be given")}
	}
	var blocks []sdk.ContentBlock
	if p.text != "" || len(p.images) == 0 {
		blocks = append(blocks, sdk.TextBlock(p.text))
	}
	for _, i := range p.images {
		blocks = append(blocks, sdk.ImageBlock(base64.StdEncoding.EncodeToString(i.Data), i.Type))
	}
	return decode.JSON(blocks)
}

// Options are what an agent adds to the protocol.
type Options struct {
	Name string // of the agent
	// Model is the model that the run reports, until the agent names another.
	Model string
	// SetModel: the agent is asked to use the model before its first prompt. Otherwise
	// its arguments or settings have named it.
	SetModel bool
	// FullModel makes the agent's name of a model from the one that people use. It may be nil.
	FullModel func(model string) string
	// ReplayEnd is the text of the user's message with which the replay of a loaded session
	// ends. Empty: it ends with the answer to the request, as the protocol requires, or if
	// nothing has come by then, when nothing more comes.
	ReplayEnd string
	// Plain makes a prompt that the agent does not take for one of its own commands. It may
	// be nil.
	Plain func(text string) string
	// ShowsInput are the kinds of tools whose requests for permission have no input, but show
	// all of it in their title and content.
	ShowsInput []string
	// Subagents is the title of a call that starts a subagent, or how its id begins: the protocol
	// has no kind for it. Empty: this is not known.
	Subagents string
	// Variables are what the job's MCP servers get, by name, besides what the agent gives them.
	Variables map[string]string
}

// NewDecoder decodes one run of an agent that began with [Hello].
func NewDecoder(l agent.Launch, o Options) agent.Decoder {
	d := &decoder{
		Turns:    decode.Turns{Name: o.Name, Sum: agent.Total{Model: o.Model}},
		settings: settings{rpc: jsonrpc.NewClient(version), options: map[string]string{}, later: map[string]string{}},
		launch:   l, with: o, asks: decode.Asks{}, tools: map[string]tool{},
	}
	if o.SetModel && o.Model != "" {
		d.first = append(d.first, setting{"model", o.Model})
	}
	if effort := l.Job.Agent.Effort; effort != "" {
		d.first = append(d.first, setting{"effort", effort}) // after the model, which may have others
	}
	d.queue = []prompt{{id: l.PromptID(), text: l.FirstPrompt(), images: l.Images}}
	hello(d.rpc) // the plan sends the request, and this decoder reads its answer
	return d
}

// next sends the prompt that waits, if the agent can take it now.
func (d *decoder) next() [][]byte {
	if d.session == "" || d.replay.on || len(d.first) > 0 || d.sent != "" || len(d.queue) == 0 {
		return nil
	}
	p := d.queue[0]
	if d.with.Plain != nil {
		p.text = d.with.Plain(p.text)
	}
	d.queue, d.sent, d.begun = d.queue[1:], p.id, false
	d.replay.echo = p.text
	if !d.can.Prompt.Image {
		d.unseen = len(p.images)
	}
	return [][]byte{d.rpc.Request(sdk.AgentMethodSessionPrompt, map[string]any{"sessionId": d.session, "prompt": p.content(d.can.Prompt.Image)}, p.id)}
}

var _ agent.Speaker = (*decoder)(nil)

// Say implements [agent.Speaker].
func (d *decoder) Say(id, text string, images ...control.Image) [][]byte {
	d.queue = append(d.queue, prompt{id: id, text: text, images: images})
	return d.next()
}

// TakesImages implements [agent.Speaker].
func (d *decoder) TakesImages() error {
	switch {
	case d.session == "":
		return control.Refuse(control.NotReady, "agent %s has not said yet whether it takes images", d.Name)
	case !d.can.Prompt.Image:
		return control.Refuse(control.Cannot, "agent %s takes no images: it does not offer promptCapabilities.image", d.Name)
	}
	return nil
}

// Interrupt implements [agent.Speaker]. The protocol requires an answer to every open request
// of the agent.
func (d *decoder) Interrupt() [][]byte {
	if d.sent == "" {
		return nil
	}
	lines := [][]byte{d.rpc.Notify(sdk.AgentMethodSessionCancel, sdk.CancelNotification{SessionId: d.session})}
	for _, id := range slices.Sorted(maps.Keys(d.asks)) {
		lines = append(lines, d.rpc.Reply(d.asks[id].ID, permissionOutcome("")))
		d.dropped = append(d.dropped, id)
	}
	clear(d.asks)
	return lines
}

// Set implements [agent.Speaker].
func (d *decoder) Set(id string, to control.Settings) (lines [][]byte, err error) {
	if to.Effort != "" && to.Model == "" && d.options["effort"] == "" {
		return nil, control.Refuse(control.Cannot, "agent %s offers no choice of effort for its model", d.Name)
	}
	if model := to.Model; model != "" {
		if d.with.FullModel != nil {
			model = d.with.FullModel(model)
		}
		lines = append(lines, d.set("model", model, id))
	}
	if to.Mode != "" {
		lines = append(lines, d.set("mode", to.Mode, id))
	}
	switch {
	case to.Effort == "":
	case to.Model != "":
		d.later[id] = to.Effort
	default:
		lines = append(lines, d.set("effort", to.Effort, id))
	}
	return lines, nil
}

// rawRequests are the requests that people may send as they are.
var rawRequests = []string{
	sdk.AgentMethodSessionPrompt, sdk.AgentMethodSessionSetMode, sdk.AgentMethodSessionSetModel, sdk.AgentMethodSessionSetConfigOption,
}

// Raw implements [agent.Speaker].
func (d *decoder) Raw(id string, line []byte) ([][]byte, error) {
	method, params, err := jsonrpc.RawRequest(d.Name, line, rawRequests)
	if err != nil {
		return nil, err
	}
	if method == sdk.AgentMethodSessionPrompt {
		var blocks []sdk.ContentBlock
		if err := json.Unmarshal(params["prompt"], &blocks); err != nil || len(blocks) == 0 {
			return nil, control.Refuse(control.Cannot, "agent %s does not take this line: session/prompt needs params with a list prompt", d.Name)
		}
		d.queue = append(d.queue, prompt{id: id, blocks: params["prompt"]})
		return d.next(), nil
	}
	if d.session == "" {
		return nil, control.Refuse(control.Nothing, "agent %s has not begun its session yet", d.Name)
	}
	params["sessionId"] = decode.JSON(d.session)
	return [][]byte{d.rpc.Request(method, params, id)}, nil
}

// Answer implements [agent.Speaker].
func (d *decoder) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.Find(a)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := open.Choose(a)
	if err != nil {
		return nil, nil, err
	}
	how, reply := "declined", json.RawMessage(decode.JSON(permissionOutcome("")))
	switch {
	case a.Deny:
		chosen = open.Offers(denyKinds...)
	case chosen == nil:
		if chosen = open.Offers(allowKinds...); chosen == nil {
			return nil, nil, control.Refuse(control.Unfit, "it offers no option that allows it: choose one by its label, or deny it")
		}
	}
	if chosen != nil {
		how, reply = chosen.How(), chosen.Send
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = d.Name, d.Turn
	return []event.Event{e}, [][]byte{d.rpc.Reply(open.ID, reply)}, nil
}

// Kinds of options that a plain yes or no selects, the best first.
var (
	allowKinds = []string{"allow_once", "allow_always"}
	denyKinds  = []string{"reject_once", "reject_always"}
)

// permissionOutcome answers a request for a permission; without an option it is
// cancelled.
func permissionOutcome(option string) sdk.RequestPermissionResponse {
	if option == "" {
		return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(sdk.PermissionOptionId(option))}
}
