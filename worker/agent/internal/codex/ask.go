package codex

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// readRequest handles a request of the program.
func (d *appServer) readRequest(m jsonrpc.Message, p *serverParams, r *agent.Read) {
	id, ok := m.AnswerID()
	if !ok {
		return
	}
	var q struct {
		Questions json.RawMessage `json:"questions"`
	}
	open := decode.Ask{ID: m.ID}
	opened := control.Ask{Ask: id, Type: "permission", Call: p.ItemID, Input: m.Params}
	permit := func(tool string) {
		open = decode.Permission("May it use "+tool+"?", choicesOf(p.Decisions))
		open.ID, opened.Tool, opened.Questions = m.ID, tool, open.List()
	}
	switch m.Method {
	case "item/commandExecution/requestApproval":
		permit("command_execution")
		opened.Input = lasting(m.Params)
	case "item/fileChange/requestApproval":
		permit("file_change")
	case "item/tool/requestUserInput":
		_ = json.Unmarshal(m.Params, &q) // without a list there is no question
		opened.Type, opened.Questions, opened.Input = "question", q.Questions, nil
		var names []struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(q.Questions, &names) == nil && json.Unmarshal(q.Questions, &open.Questions) == nil && len(names) > 0 {
			for _, n := range names {
				open.Names = append(open.Names, n.ID)
			}
			break
		}
		fallthrough
	default:
		r.Add(event.AskOpened{Ask: id, Type: "other", Tool: m.Method})
		r.Add(event.AskClosed{Ask: id, How: "declined"})
		r.Reply = append(r.Reply, d.rpc.Refuse(m.ID))
		return
	}
	decode.Remember(d.asks, id, open)
	r.Add(event.AskOpened(opened))
}

// lasting is what the program asks without the names that this process has for it: by the rest
// the same request is known again in the next process. (What a change of files would be is not in
// the request for it, so that one is not known again.)
func lasting(params json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil {
		return params
	}
	for _, name := range []string{"threadId", "turnId", "itemId", "approvalId", "startedAtMs"} {
		delete(fields, name)
	}
	return decode.JSON(fields)
}

// Answer implements [agent.Speaker].
func (d *appServer) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.Find(a)
	if err != nil {
		return nil, nil, err
	}
	result, how, err := answerTo(open, a)
	if err != nil {
		return nil, nil, err
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = d.Name, d.Turn
	return []event.Event{e}, [][]byte{d.rpc.Reply(open.ID, result)}, nil
}

// answerTo is the answer sent to the program, and how it closes the ask.
func answerTo(open decode.Ask, a control.Message) (result any, how string, err error) {
	how = "answered"
	if a.Deny {
		how = "declined"
	}
	if open.Names != nil {
		result, err = answersTo(open, a)
		return result, how, err
	}
	chosen, err := open.Choose(a)
	switch {
	case err != nil:
		return nil, "", err
	case chosen != nil:
		return map[string]json.RawMessage{"decision": chosen.Send}, chosen.How(), nil
	case a.Deny:
		return map[string]string{"decision": "decline"}, how, nil
	}
	return map[string]string{"decision": "accept"}, how, nil
}

// answersTo is the answer to each question, as the program expects it.
func answersTo(open decode.Ask, a control.Message) (any, error) {
	type given struct {
		Answers []string `json:"answers"`
	}
	answers := map[string]given{}
	if a.Deny {
		for _, name := range open.Names {
			answers[name] = given{[]string{wording.First(a.Text, wording.Unattended)}}
		}
		return map[string]any{"answers": answers}, nil
	}
	texts, err := a.Fit(open.Questions)
	if err != nil {
		return nil, err
	}
	for i, q := range open.Questions {
		answers[open.Names[i]] = given{[]string{texts[q.Question]}}
	}
	return map[string]any{"answers": answers}, nil
}

// decisionOptions are the program's names for answers to a request for permission.
var decisionOptions = map[string]control.Option{
	"accept":                        {Label: "Allow", Kind: "allow_once"},
	"acceptForSession":              {Label: "Allow in this session", Kind: "allow_always"},
	"acceptWithExecpolicyAmendment": {Label: "Always allow", Kind: "allow_always"},
	"applyNetworkPolicyAmendment":   {Label: "Set for this host", Kind: "allow_always"},
	"decline":                       {Label: "Reject", Kind: "reject_once"},
	"cancel":                        {Label: "Reject, and end the turn", Kind: "reject_once"},
}

// choicesOf are the answers that the program offers. It gets a decision back exactly
// as it offered it.
func choicesOf(decisions []json.RawMessage) (choices []decode.Choice) {
	for _, raw := range decisions {
		var word string
		var object map[string]struct {
			Command []string `json:"execpolicy_amendment"`
			Network struct {
				Host   string `json:"host"`
				Action string `json:"action"`
			} `json:"network_policy_amendment"`
		}
		var about, network []string
		if json.Unmarshal(raw, &word) != nil {
			_ = json.Unmarshal(raw, &object) // an unknown object shows its name at least
			for name, o := range object {
				word = name
				about, network = o.Command, []string{o.Network.Action, o.Network.Host}
			}
		}
		option, known := decisionOptions[word]
		switch {
		case word == "" || len(object) > 1:
			continue // not a decision
		case !known:
			option.Label = word
		}
		if network != nil && network[0] == "deny" {
			option.Kind = "reject_always"
		}
		option.Description = wording.Short(strings.TrimSpace(strings.Join(append(about, network...), " ")), 500)
		choices = append(choices, decode.Choice{Option: option, Send: raw})
	}
	return choices
}
