// Package jsonrpc makes and reads the messages of agents that speak JSON-RPC over their
// pipes. A [Client] is our side: it numbers its requests and knows which have no answer
// yet.
package jsonrpc

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// A Message is a message of JSON-RPC: a request has a method and an id, a
// notification a method only, an answer an id only.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
}

// An Error is the answer to a request that failed.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// maxID bounds an id that the agent chose, since answers repeat it.
const maxID = 128

// AnswerID returns the text of an id that can be answered: a number or a string.
func (m Message) AnswerID() (string, bool) {
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

// A Call is a request of ours that has no answer yet.
type Call struct {
	Method string
	Input  string // the id of the message that the call sends, or of the request that a person sent
}

// A Client makes the messages of our side.
type Client struct {
	version string
	made    int
	calls   map[string]Call // by id
}

// NewClient returns the side of a protocol that has a version field in every message;
// empty: the agent wants none.
func NewClient(version string) *Client { return &Client{version: version, calls: map[string]Call{}} }

// Request makes a request to the agent. Input is the id of the message that it sends,
// for the answer.
func (c *Client) Request(method string, params any, input string) []byte {
	c.made++
	decode.Remember(c.calls, strconv.Itoa(c.made), Call{method, input})
	return c.message(map[string]any{"id": c.made, "method": method, "params": params})
}

// Notify makes a notification, which has no answer.
func (c *Client) Notify(method string, params any) []byte {
	m := map[string]any{"method": method}
	if params != nil {
		m["params"] = params
	}
	return c.message(m)
}

// Reply answers a request of the agent.
func (c *Client) Reply(id json.RawMessage, result any) []byte {
	return c.message(map[string]any{"id": id, "result": result})
}

// Refuse answers a request that this host cannot meet.
func (c *Client) Refuse(id json.RawMessage) []byte {
	return c.message(map[string]any{"id": id, "error": map[string]any{"code": -32601, "message": "not supported by this host"}})
}

func (c *Client) message(m map[string]any) []byte {
	if c.version != "" {
		m["jsonrpc"] = c.version
	}
	return decode.JSON(m)
}

// Open is the method of the request that a message answers; empty: it answers none.
func (c *Client) Open(m Message) string { return c.calls[string(m.ID)].Method }

// Answered returns the request that a message answers, once.
func (c *Client) Answered(m Message) (Call, bool) {
	id := string(m.ID)
	call, ok := c.calls[id]
	delete(c.calls, id)
	return call, ok
}

// Result is the event of an answer that only says whether the request succeeded.
func (c Call) Result(m Message) event.ControlReply {
	ok := m.Error == nil
	data := event.ControlReply{Type: c.Method, OK: &ok}
	if c.Input != "" {
		data.Type = c.Input
	}
	if !ok {
		data.Text = wording.Short(m.Error.Message, 1000)
	}
	return data
}

// RawRequest checks a request that a person has written: its method must be one of
// those allowed, and its params an object.
func RawRequest(name string, line []byte, allowed []string) (method string, params map[string]json.RawMessage, err error) {
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
