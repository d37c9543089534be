package agent

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// An rpcMessage is a message of JSON-RPC: a request has a method and an id, a
// notification a method only, an answer an id only.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// maxID bounds an id that the agent chose, since answers repeat it.
const maxID = 128

// answerable returns the text of an id that can be answered: a number or a string.
func (m rpcMessage) answerable() (string, bool) {
	if len(m.ID) == 0 || len(m.ID) > maxID {
		return "", false
	}
	var text string
	if json.Unmarshal(m.ID, &text) == nil && m.ID[0] == '"' {
		return text, text != ""
	}
	var number json.Number
	return string(m.ID), json.Unmarshal(m.ID, &number) == nil && m.ID[0] != '"' && m.ID[0] != 'n'
}

// An rpcCall is a request of ours that has no answer yet.
type rpcCall struct {
	method string
	input  string // the id of the message that the call sends, or of the request that a person sent
}

// An rpc makes the messages of our side.
type rpc struct {
	version string // the protocol's version field in every message; empty: the agent wants none
	made    int
	calls   map[string]rpcCall // by id
}

// request makes a request to the agent. Input is the id of the message that it sends,
// for the answer.
func (c *rpc) request(method string, params any, input string) []byte {
	c.made++
	remember(c.calls, strconv.Itoa(c.made), rpcCall{method, input})
	return c.message(map[string]any{"id": c.made, "method": method, "params": params})
}

// notify makes a notification, which has no answer.
func (c *rpc) notify(method string, params any) []byte {
	m := map[string]any{"method": method}
	if params != nil {
		m["params"] = params
	}
	return c.message(m)
}

// answer answers a request of the agent.
func (c *rpc) answer(id json.RawMessage, result any) []byte {
	return c.message(map[string]any{"id": id, "result": result})
}

// refuse answers a request that this host cannot meet.
func (c *rpc) refuse(id json.RawMessage) []byte {
	return c.message(map[string]any{"id": id, "error": map[string]any{"code": -32601, "message": "not supported by this host"}})
}

func (c *rpc) message(m map[string]any) []byte {
	if c.version != "" {
		m["jsonrpc"] = c.version
	}
	return jsonLine(m)
}

// answered returns the request that a message answers, once.
func (c *rpc) answered(m rpcMessage) (rpcCall, bool) {
	id := string(m.ID)
	call, ok := c.calls[id]
	delete(c.calls, id)
	return call, ok
}

// reply makes the event of an answer that only says whether the request succeeded.
func (r *Read) reply(call rpcCall, m rpcMessage) {
	ok := m.Error == nil
	data := event.ControlReply{Type: call.method, OK: &ok}
	if call.input != "" {
		data.Type = call.input
	}
	if !ok {
		data.Text = short(m.Error.Message, 1000)
	}
	r.add(data)
}

// rawRequest checks a request that a person has written: its method must be one of
// those allowed, and its params an object.
func rawRequest(name string, line []byte, allowed []string) (method string, params map[string]json.RawMessage, err error) {
	var m struct {
		Method string                     `json:"method"`
		Params map[string]json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return "", nil, control.Refuse(control.Cannot, "agent %s does not take this line: %v", name, err)
	}
	if !slices.Contains(allowed, m.Method) {
		return "", nil, control.Refuse(control.Cannot, "agent %s does not take this line: method %q is not among %s", name, m.Method, strings.Join(allowed, ", "))
	}
	if m.Params == nil {
		m.Params = map[string]json.RawMessage{}
	}
	return m.Method, m.Params, nil
}
