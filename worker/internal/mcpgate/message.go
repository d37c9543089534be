package mcpgate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// A message is what the agent sends, as it was read and is sent on.
type message struct {
	calls   []call // several in a batch
	batch   bool
	content []byte
}

// A call is one request, notification or answer.
type call struct {
	ID     any
	Method string         // "" for an answer
	Params map[string]any // nil: none, or a list
}

// read reads JSON-RPC, and writes it anew. Names that a server could take for those of the
// protocol, because it does not look at their case, are refused.
func read(data []byte) (message, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // so that none changes
	var all any
	if err := decoder.Decode(&all); err != nil {
		return message{}, fmt.Errorf("the message is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return message{}, errors.New("there is something after the message")
	}
	list, batch := all.([]any)
	if !batch {
		list = []any{all}
	}
	m := message{batch: batch}
	for _, one := range list {
		c, err := readCall(one)
		if err != nil {
			return message{}, err
		}
		m.calls = append(m.calls, c)
	}
	if len(m.calls) == 0 {
		return message{}, errors.New("the message is empty")
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		return message{}, fmt.Errorf("the message cannot be sent on: %w", err)
	}
	m.content = bytes.TrimSpace(b.Bytes())
	return m, nil
}

func readCall(one any) (c call, err error) {
	object, ok := one.(map[string]any)
	if !ok {
		return c, errors.New("the message is not an object")
	}
	if err := exact(object, "jsonrpc", "id", "method", "params"); err != nil {
		return c, err
	}
	c.ID = object["id"]
	if method, given := object["method"]; given {
		if c.Method, ok = method.(string); !ok {
			return c, errors.New("method is not a text")
		}
	}
	c.Params, _ = object["params"].(map[string]any)
	return c, exact(c.Params, "name", "uri")
}

// exact refuses names that differ from others in their case alone.
func exact(object map[string]any, names ...string) error {
	for key := range object {
		for _, name := range names {
			if key != name && strings.EqualFold(key, name) {
				return fmt.Errorf("the message has %.40q, which some take for %q", key, name)
			}
		}
	}
	return nil
}

// tool is the name of the tool that a call calls.
func (c call) tool() (name string, is bool) {
	if c.Method != "tools/call" {
		return "", false
	}
	name, _ = c.Params["name"].(string)
	return name, true
}

// permit refuses calls of tools that the job does not list.
func (m message) permit(s jobs.MCPServer) error {
	for _, c := range m.calls {
		if name, is := c.tool(); is && !s.MayCall(name) {
			return &deniedError{
				call: c, batch: m.batch,
				why: fmt.Sprintf("tool %.200q is not among those that the job allows: %s", name, strings.Join(s.Tools, ", ")),
			}
		}
	}
	return nil
}

// describe adds the headers that say what a message is about, which servers of the protocol of
// 2026-07-28 want.
func (m message) describe(header http.Header) {
	c := m.calls[0]
	if m.batch || c.Method == "" {
		return
	}
	header.Set("Mcp-Method", headerValue(c.Method))
	for _, field := range []string{"name", "uri"} {
		if v, ok := c.Params[field].(string); ok && (c.Method == "tools/call" || c.Method == "prompts/get" || c.Method == "resources/read") {
			header.Set("Mcp-Name", headerValue(v))
			return
		}
	}
}

// headerValue is a text as the protocol has it in headers: as it is, or in base64.
func headerValue(text string) string {
	strange := func(r rune) bool { return r < ' ' || r > '~' }
	if strings.ContainsFunc(text, strange) || strings.TrimSpace(text) != text || strings.HasPrefix(text, "=?base64?") {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
	}
	return text
}

// A deniedError is a call that the job does not allow.
type deniedError struct {
	call  call
	batch bool
	why   string
}

func (e *deniedError) Error() string { return e.why }

// answer answers a request as a server would, so that the agent goes on.
func (e *deniedError) answer(w http.ResponseWriter) {
	if e.batch || e.call.ID == nil {
		refuse(w, http.StatusForbidden, "%s", e.why)
		return
	}
	data, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": e.call.ID, "error": map[string]any{"code": invalidParams, "message": "penstock: " + e.why},
	})
	if err != nil {
		refuse(w, http.StatusForbidden, "%s", e.why)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the agent may have gone
}

// invalidParams is what servers answer to a call of a tool that they do not have.
const invalidParams = -32602
