package agent

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// acpTalk speaks with an agent of the Agent Client Protocol.
//
//	initialize ──▶ (authenticate) ──▶ session/new, resume or load ──▶ session/prompt ──▶ its answer
//	                                                                       ▲                  │
//	                                                                       └── what waits ────┘
//
// The agent takes one prompt at a time, so a prompt sent during a turn waits for the
// next turn. Lines are decoded leniently, as for every agent; lines that we write use
// the types of the protocol's Go SDK.
type acpTalk struct {
	turns
	rpc
	launch  Launch
	model   string // to be set before the first prompt
	session sdk.SessionId
	about   string // what the agent calls itself
	can     acpAbility
	replays bool    // it replays an earlier process
	earlier float64 // US dollars that the session had cost before this process
	setting bool    // the model is being set
	sent    string  // the prompt without an answer
	begun   bool    // the beginning of its turn was reported
	unseen  int     // how many of its images the agent does not take
	dead    bool    // the agent could not begin
	queue   []acpPrompt
	asks    asks
	dropped []string // questions that an interrupt has closed
	tools   map[string]acpTool
	options map[string]string // the option that sets the model, or the mode
	text    string            // of the message that is arriving
	thought string
	result  string // the last message of the turn
}

// An acpPrompt waits for its turn. It has blocks that its sender made, or a text and
// images.
type acpPrompt struct {
	id     string
	blocks json.RawMessage
	text   string
	images []control.Image
}

// content is the prompt in the protocol's form, for an agent that takes images or does
// not.
func (p acpPrompt) content(images bool) json.RawMessage {
	if p.blocks != nil {
		return p.blocks
	}
	if !images {
		p = acpPrompt{text: control.WithoutImages(p.text, len(p.images), "which you cannot be given")}
	}
	var blocks []sdk.ContentBlock
	if p.text != "" || len(p.images) == 0 {
		blocks = append(blocks, sdk.TextBlock(p.text))
	}
	for _, i := range p.images {
		blocks = append(blocks, sdk.ImageBlock(base64.StdEncoding.EncodeToString(i.Data), i.Type))
	}
	return jsonLine(blocks)
}

func newACPTalk(l Launch, name string) *acpTalk {
	d := &acpTalk{
		turns: turns{name: name, total: Total{Model: l.Job.Agent.Model}}, rpc: rpc{version: "2.0", calls: map[string]rpcCall{}},
		launch: l, asks: asks{}, tools: map[string]acpTool{}, options: map[string]string{},
	}
	d.queue = []acpPrompt{{id: l.promptID(), text: l.prompt(), images: l.Images}}
	return d
}

// next sends the prompt that waits, if the agent can take it now.
func (d *acpTalk) next() [][]byte {
	if d.session == "" || d.setting || d.sent != "" || len(d.queue) == 0 {
		return nil
	}
	p := d.queue[0]
	d.queue, d.sent, d.begun = d.queue[1:], p.id, false
	if !d.can.Prompt.Image {
		d.unseen = len(p.images)
	}
	return [][]byte{d.request(sdk.AgentMethodSessionPrompt, map[string]any{"sessionId": d.session, "prompt": p.content(d.can.Prompt.Image)}, p.id)}
}

// Say implements [Speaker].
func (d *acpTalk) Say(id, text string, images ...control.Image) [][]byte {
	d.queue = append(d.queue, acpPrompt{id: id, text: text, images: images})
	return d.next()
}

// TakesImages implements [Speaker].
func (d *acpTalk) TakesImages() error {
	switch {
	case d.session == "":
		return control.Refuse(control.NotReady, "agent %s has not said yet whether it takes images", d.name)
	case !d.can.Prompt.Image:
		return control.Refuse(control.Cannot, "agent %s takes no images: it does not offer promptCapabilities.image", d.name)
	}
	return nil
}

// Interrupt implements [Speaker]. The protocol requires an answer to every open request
// of the agent.
func (d *acpTalk) Interrupt() [][]byte {
	if d.sent == "" {
		return nil
	}
	lines := [][]byte{d.notify(sdk.AgentMethodSessionCancel, sdk.CancelNotification{SessionId: d.session})}
	for _, id := range slices.Sorted(maps.Keys(d.asks)) {
		lines = append(lines, d.answer(d.asks[id].id, acpOutcome("")))
		d.dropped = append(d.dropped, id)
	}
	clear(d.asks)
	return lines
}

// Set implements [Speaker].
func (d *acpTalk) Set(id, model, mode string) (lines [][]byte) {
	if model != "" {
		lines = append(lines, d.set("model", model, id))
	}
	if mode != "" {
		lines = append(lines, d.set("mode", mode, id))
	}
	return lines
}

// set uses an option that the agent offers, or else the protocol's request.
func (d *acpTalk) set(what, value, input string) []byte {
	if option := d.options[what]; option != "" {
		return d.request(sdk.AgentMethodSessionSetConfigOption, map[string]any{"sessionId": d.session, "configId": option, "value": value}, input)
	}
	if what == "model" {
		return d.request(sdk.AgentMethodSessionSetModel, sdk.UnstableSetSessionModelRequest{SessionId: d.session, ModelId: sdk.UnstableModelId(value)}, input)
	}
	return d.request(sdk.AgentMethodSessionSetMode, sdk.SetSessionModeRequest{SessionId: d.session, ModeId: sdk.SessionModeId(value)}, input)
}

// acpRaw are the requests that people may send as they are.
var acpRaw = []string{
	sdk.AgentMethodSessionPrompt, sdk.AgentMethodSessionSetMode, sdk.AgentMethodSessionSetModel, sdk.AgentMethodSessionSetConfigOption,
}

// Raw implements [Speaker].
func (d *acpTalk) Raw(id string, line []byte) ([][]byte, error) {
	method, params, err := rawRequest(d.name, line, acpRaw)
	if err != nil {
		return nil, err
	}
	if method == sdk.AgentMethodSessionPrompt {
		var blocks []sdk.ContentBlock
		if err := json.Unmarshal(params["prompt"], &blocks); err != nil || len(blocks) == 0 {
			return nil, control.Refuse(control.Cannot, "agent %s does not take this line: session/prompt needs params with a list prompt", d.name)
		}
		d.queue = append(d.queue, acpPrompt{id: id, blocks: params["prompt"]})
		return d.next(), nil
	}
	if d.session == "" {
		return nil, control.Refuse(control.Nothing, "agent %s has not begun its session yet", d.name)
	}
	params["sessionId"] = jsonLine(d.session)
	return [][]byte{d.request(method, params, id)}, nil
}

// Answer implements [Speaker].
func (d *acpTalk) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.find(a)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := open.choose(a)
	if err != nil {
		return nil, nil, err
	}
	how, reply := "declined", json.RawMessage(jsonLine(acpOutcome("")))
	switch {
	case a.Deny:
		chosen = open.offers(acpDenies...)
	case chosen == nil:
		if chosen = open.offers(acpAllows...); chosen == nil {
			return nil, nil, control.Refuse(control.Unfit, "it offers no option that allows it: choose one by its label, or deny it")
		}
	}
	if chosen != nil {
		how, reply = chosen.how(), chosen.send
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = d.name, d.turn
	return []event.Event{e}, [][]byte{d.answer(open.id, reply)}, nil
}

// Kinds of options that a plain yes or no selects, the best first.
var (
	acpAllows = []string{"allow_once", "allow_always"}
	acpDenies = []string{"reject_once", "reject_always"}
)

// acpOutcome answers a request for a permission; without an option it is
// cancelled.
func acpOutcome(option string) sdk.RequestPermissionResponse {
	if option == "" {
		return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(sdk.PermissionOptionId(option))}
}
