package agent

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// readRequest handles a request of the program.
func (d *codexTalk) readRequest(m rpcMessage, p *codexParams, r *Read) {
	id, ok := m.answerable()
	if !ok {
		return
	}
	var q struct {
		Questions json.RawMessage `json:"questions"`
	}
	open := ask{id: m.ID}
	opened := control.Ask{Ask: id, Type: "permission", Call: p.ItemID, Input: m.Params}
	permit := func(tool string) {
		open = permission("May it use "+tool+"?", codexChoices(p.Decisions))
		open.id, opened.Tool, opened.Questions = m.ID, tool, open.list()
	}
	switch m.Method {
	case "item/commandExecution/requestApproval":
		permit("command_execution")
	case "item/fileChange/requestApproval":
		permit("file_change")
	case "item/tool/requestUserInput":
		_ = json.Unmarshal(m.Params, &q) // without a list there is no question
		opened.Type, opened.Questions, opened.Input = "question", q.Questions, nil
		var names []struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(q.Questions, &names) == nil && json.Unmarshal(q.Questions, &open.questions) == nil && len(names) > 0 {
			for _, n := range names {
				open.names = append(open.names, n.ID)
			}
			break
		}
		fallthrough
	default:
		r.add(event.AskOpened{Ask: id, Type: "other", Tool: m.Method})
		r.add(event.AskClosed{Ask: id, How: "declined"})
		r.Reply = append(r.Reply, d.refuse(m.ID))
		return
	}
	remember(d.asks, id, open)
	r.add(event.AskOpened(opened))
}

// Answer implements [Speaker].
func (d *codexTalk) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.find(a)
	if err != nil {
		return nil, nil, err
	}
	result, how, err := codexAnswer(open, a)
	if err != nil {
		return nil, nil, err
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = d.name, d.turn
	return []event.Event{e}, [][]byte{d.answer(open.id, result)}, nil
}

// codexAnswer is the answer sent to the program, and how it closes the ask.
func codexAnswer(open ask, a control.Message) (result any, how string, err error) {
	how = "answered"
	if a.Deny {
		how = "declined"
	}
	if open.names != nil {
		result, err = codexAnswers(open, a)
		return result, how, err
	}
	chosen, err := open.choose(a)
	switch {
	case err != nil:
		return nil, "", err
	case chosen != nil:
		return map[string]json.RawMessage{"decision": chosen.send}, chosen.how(), nil
	case a.Deny:
		return map[string]string{"decision": "decline"}, how, nil
	}
	return map[string]string{"decision": "accept"}, how, nil
}

// codexAnswers is the answer to each question, as the program expects it.
func codexAnswers(open ask, a control.Message) (any, error) {
	type said struct {
		Answers []string `json:"answers"`
	}
	answers := map[string]said{}
	if a.Deny {
		for _, name := range open.names {
			answers[name] = said{[]string{firstText(a.Text, unattended)}}
		}
		return map[string]any{"answers": answers}, nil
	}
	texts, err := a.Fit(open.questions)
	if err != nil {
		return nil, err
	}
	for i, q := range open.questions {
		answers[open.names[i]] = said{[]string{texts[q.Question]}}
	}
	return map[string]any{"answers": answers}, nil
}

// codexDecisions are the program's names for answers to a request for permission.
var codexDecisions = map[string]control.Option{
	"accept":                        {Label: "Allow", Kind: "allow_once"},
	"acceptForSession":              {Label: "Allow in this session", Kind: "allow_always"},
	"acceptWithExecpolicyAmendment": {Label: "Always allow", Kind: "allow_always"},
	"applyNetworkPolicyAmendment":   {Label: "Set for this host", Kind: "allow_always"},
	"decline":                       {Label: "Reject", Kind: "reject_once"},
	"cancel":                        {Label: "Reject, and end the turn", Kind: "reject_once"},
}

// codexChoices are the answers that the program offers. It gets a decision back exactly
// as it offered it.
func codexChoices(decisions []json.RawMessage) (choices []choice) {
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
		option, known := codexDecisions[word]
		switch {
		case word == "" || len(object) > 1:
			continue // not a decision
		case !known:
			option.Label = word
		}
		if network != nil && network[0] == "deny" {
			option.Kind = "reject_always"
		}
		option.Description = short(strings.TrimSpace(strings.Join(append(about, network...), " ")), 500)
		choices = append(choices, choice{option, raw})
	}
	return choices
}
