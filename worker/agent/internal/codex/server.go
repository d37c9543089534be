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
	thread string   // empty: the thread has not begun
	now    string   // the turn that is open, or the last one
	queue  []prompt // for when the thread has begun and is not compacted
	// sent are the prompts that the program was sent and has not taken up, with the
	// turn that will take each up; empty: the program has not said which.
	sent    map[string]string
	asks    decode.Asks
	compact compaction
	set     control.Settings      // what was chosen, with the program's own model where none was
	cut     bool                  // an interrupt waits for the turn's id
	dead    bool                  // the agent could not begin
	result  string                // the last message of the turn
	used    map[string]jobs.Usage // of each thread
	before  jobs.Usage            // of all threads, when the turn began
	earlier jobs.Usage            // of earlier processes
}

// A compaction is the state of a compaction that was asked for with thread/compact/start:
// a turn of its own, within which the program refuses prompts.
type compaction int

const (
	noCompaction compaction = iota
	compactionAsked
	compactionBegun
)

// A prompt has the parameters of turn/start.
type prompt struct {
	id     string
	params map[string]json.RawMessage
}

// promptOf makes a prompt of a text and images, of which each becomes a data URL.
func promptOf(id, text string, images []control.Image) prompt {
	var items []any
	if text != "" || len(images) == 0 {
		items = append(items, map[string]any{"type": "text", "text": text, "text_elements": []any{}})
	}
	for _, i := range images {
		items = append(items, map[string]any{"type": "image", "url": "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)})
	}
	return prompt{id, map[string]json.RawMessage{"input": decode.JSON(items)}}
}

func newAppServer(l agent.Launch) *appServer {
	d := &appServer{
		Turns: decode.Turns{Name: "codex", Sum: agent.Total{Session: l.Resume, Model: l.Job.Agent.Model}},
		rpc:   jsonrpc.NewClient(""), launch: l,
		queue: []prompt{promptOf(l.PromptID(), l.FirstPrompt(), l.Images)}, sent: map[string]string{}, asks: decode.Asks{}, used: map[string]jobs.Usage{},
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
	if mode := d.launch.Mode; mode != "" && mode != planMode {
		params["approvalPolicy"] = mode
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
	return d.say(promptOf(id, text, images))
}

func (d *appServer) say(p prompt) [][]byte {
	if d.thread == "" || d.compact != noCompaction {
		d.queue = append(d.queue, p)
		return nil
	}
	decode.Remember(d.sent, p.id, "")
	p.params["threadId"], p.params["clientUserMessageId"] = decode.JSON(d.thread), decode.JSON(p.id)
	return [][]byte{d.rpc.Request("turn/start", p.params, p.id)}
}

// sayQueued sends the prompts that have waited.
func (d *appServer) sayQueued(r *agent.Read) {
	waiting := d.queue
	d.queue = nil
	for _, p := range waiting {
		r.Reply = append(r.Reply, d.say(p)...)
	}
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

// planMode is the mode in which the program makes a plan with its user. It is a mode of
// collaboration; all others say for what the program asks permission, and end it.
const planMode = "plan"

// Set implements [agent.Speaker].
func (d *appServer) Set(id string, to control.Settings) ([][]byte, error) {
	policy, collaboration := to.Mode, ""
	switch {
	case to.Mode == planMode:
		policy, collaboration = "", planMode
	case to.Mode != "" && d.set.Mode == planMode:
		collaboration = "default"
	}
	d.set = d.set.Then(to)
	params := map[string]any{"threadId": d.thread}
	for name, value := range map[string]string{"model": to.Model, "approvalPolicy": policy, "effort": to.Effort} {
		if value != "" {
			params[name] = value
		}
	}
	if collaboration != "" {
		chosen := map[string]any{"model": d.set.Model}
		if d.set.Effort != "" {
			chosen["reasoning_effort"] = d.set.Effort
		}
		params["collaborationMode"] = map[string]any{"mode": collaboration, "settings": chosen}
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
	switch m {
	case "turn/start":
		var input []json.RawMessage
		if json.Unmarshal(params["input"], &input) != nil || len(input) == 0 {
			return nil, control.Refuse(control.Cannot, "agent codex does not take this line: turn/start needs params with a list input")
		}
		return d.say(prompt{id, params}), nil
	case "thread/compact/start":
		d.compact = compactionAsked
	}
	params["threadId"] = decode.JSON(d.thread)
	return [][]byte{d.rpc.Request(m, params, id)}, nil
}
