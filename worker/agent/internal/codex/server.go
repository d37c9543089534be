package codex

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
)

// appServer speaks with Codex's app server, 0.169 and later: JSON-RPC without its
// version, one message a line.
//
//	initialize ──▶ thread/start or thread/resume ──▶ turn/start ──▶ turn open ──▶ turn over
//	                                                     ▲                           │
//	                                                     └───── another prompt ──────┘
//
// A prompt during a turn is sent as turn/start, too. The program adds it to the open
// turn, so the prompt cannot miss the end of that turn.
type appServer struct {
	decode.Turns
	rpc    *jsonrpc.Client
	launch agent.Launch
	thread string // empty: the thread has not begun
	now    string // the turn that is open, or the last one
	queue  []prompt
	// sent are the prompts that the program was sent and has not taken up, with the
	// turn that will take each up; empty: the program has not said which.
	sent    map[string]string
	asks    decode.Asks
	cut     bool                  // an interrupt waits for the turn's id
	dead    bool                  // the agent could not begin
	result  string                // the last message of the turn
	used    map[string]jobs.Usage // of each thread
	before  jobs.Usage            // of all threads, when the turn began
	earlier jobs.Usage            // of earlier processes
}

// A prompt waits for the thread.
type prompt struct {
	id, text string
	images   []control.Image
}

// input is the prompt as the items of a turn. An image is a data URL.
func (p prompt) input() []any {
	var items []any
	if p.text != "" || len(p.images) == 0 {
		items = append(items, map[string]any{"type": "text", "text": p.text, "text_elements": []any{}})
	}
	for _, i := range p.images {
		items = append(items, map[string]any{"type": "image", "url": "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)})
	}
	return items
}

func newAppServer(l agent.Launch) *appServer {
	d := &appServer{
		Turns: decode.Turns{Name: "codex", Sum: agent.Total{Session: l.Resume, Model: l.Job.Agent.Model}},
		rpc:   jsonrpc.NewClient(""), launch: l,
		queue: []prompt{{l.PromptID(), l.FirstPrompt(), l.Images}}, sent: map[string]string{}, asks: decode.Asks{}, used: map[string]jobs.Usage{},
	}
	hello(d.rpc) // the plan sends the request, and this decoder reads its answer
	return d
}

func serverArguments(l agent.Launch) []string {
	args := append([]string{"app-server"}, settings(l)...)
	args = append(args,
		// The jail decides what the agent may do, unless the job's arguments or a
		// person who talks to the agent ask for questions.
		"-c", `approval_policy="never"`, "-c", `sandbox_mode="danger-full-access"`,
		"--enable", "default_mode_request_user_input", "-c", "suppress_unstable_features_warning=true")
	if l.Job.Agent.Model != "" {
		args = append(args, "-c", "model="+strconv.Quote(l.Job.Agent.Model))
	}
	return args
}

// hello is the first line sent to the program, which answers nothing before it.
func hello(c *jsonrpc.Client) []byte {
	return c.Request("initialize", map[string]any{
		"clientInfo":   map[string]string{"name": "penstock", "title": "Penstock", "version": "1"},
		"capabilities": map[string]bool{"experimentalApi": true, "requestAttestation": false},
	}, "")
}

// beginThread is the request that begins the thread. It names no directory, so the thread
// uses that of the process: a named one would be trusted, with the settings and servers
// in it.
func (d *appServer) beginThread() []byte {
	params := map[string]any{}
	if d.launch.Mode != "" {
		params["approvalPolicy"] = d.launch.Mode
	}
	if d.launch.Resume != "" {
		params["threadId"], params["excludeTurns"] = d.launch.Resume, true
		return d.rpc.Request("thread/resume", params, "")
	}
	return d.rpc.Request("thread/start", params, "")
}

var _ agent.Speaker = (*appServer)(nil)

// Say implements [agent.Speaker].
func (d *appServer) Say(id, text string, images ...control.Image) [][]byte {
	return d.say(prompt{id, text, images})
}

func (d *appServer) say(p prompt) [][]byte {
	if d.thread == "" {
		d.queue = append(d.queue, p)
		return nil
	}
	decode.Remember(d.sent, p.id, "")
	return [][]byte{d.rpc.Request("turn/start", map[string]any{"threadId": d.thread, "clientUserMessageId": p.id, "input": p.input()}, p.id)}
}

// TakesImages implements [agent.Speaker].
func (d *appServer) TakesImages() error { return nil }

// Interrupt implements [agent.Speaker].
func (d *appServer) Interrupt() [][]byte {
	if !d.Open {
		d.cut = true // as soon as there is a turn
		return nil
	}
	d.cut = false
	return [][]byte{d.rpc.Request("turn/interrupt", map[string]any{"threadId": d.thread, "turnId": d.now}, "interrupt-"+uuid.NewString())}
}

// Set implements [agent.Speaker]. The mode says for what the program asks permission.
func (d *appServer) Set(id string, to control.Settings) ([][]byte, error) {
	params := map[string]any{"threadId": d.thread}
	for name, value := range map[string]string{"model": to.Model, "approvalPolicy": to.Mode, "effort": to.Effort} {
		if value != "" {
			params[name] = value
		}
	}
	return [][]byte{d.rpc.Request("thread/settings/update", params, id)}, nil
}

// rawRequests are the requests that people may send as they are. Others would change what
// the worker has set, or make the program answer without bound.
var rawRequests = []string{
	"turn/start", "turn/interrupt", "thread/compact/start", "thread/goal/get", "thread/goal/set", "thread/goal/clear",
	"thread/backgroundTerminals/list", "thread/backgroundTerminals/clean", "thread/settings/update", "thread/name/set",
}

// Raw implements [agent.Speaker].
func (d *appServer) Raw(id string, line []byte) ([][]byte, error) {
	m, params, err := jsonrpc.RawRequest("codex", line, rawRequests)
	if err != nil {
		return nil, err
	}
	if d.thread == "" {
		return nil, control.Refuse(control.Nothing, "agent codex has not begun its thread yet")
	}
	params["threadId"] = decode.JSON(d.thread)
	if m == "turn/start" {
		var input []json.RawMessage
		if json.Unmarshal(params["input"], &input) != nil || len(input) == 0 {
			return nil, control.Refuse(control.Cannot, "agent codex does not take this line: turn/start needs params with a list input")
		}
		params["clientUserMessageId"] = decode.JSON(id)
		decode.Remember(d.sent, id, "")
	}
	return [][]byte{d.rpc.Request(m, params, id)}, nil
}
