// Package command runs any program as the agent. The program finds its prompt in the file that
// PENSTOCK_PROMPT_FILE names, and in PENSTOCK_PROMPT unless that would be longer than
// the system allows for a variable (128 KiB). An issue's fields are in
// PENSTOCK_ISSUE_FILE as JSON, the job's instructions in PENSTOCK_INSTRUCTIONS_FILE, its
// files in PENSTOCK_INPUT_DIR, and the model that it asks for in PENSTOCK_MODEL. The program's lines become events of kind
// output.line, whatever they contain. Exit status 0 means success.
package command

import (
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

// maxVariable is what Linux allows for one "NAME=value" and the NUL after it.
const maxVariable = 128 << 10

// An Adapter starts and decodes the job's own program.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{Name: "command", Protocol: "command", Brought: true, Abilities: agent.Abilities{Model: true, Effort: true, Skills: true, Terminals: true, Instructions: true}}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if len(l.Job.Agent.Command) == 0 {
		return agent.Plan{}, fmt.Errorf("agent command: no program given")
	}
	p := agent.Plan{
		Args:   slices.Concat(l.Job.Agent.Command, l.Job.Agent.Args),
		Env:    slices.Concat(l.Env(), l.GateEnv()),
		Files:  l.PlanFiles(),
		Mounts: l.Program.Mounts,
	}
	if v := "PENSTOCK_PROMPT=" + l.FirstPrompt(); len(v) < maxVariable {
		p.Env = append(p.Env, v)
	}
	return p, nil
}

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	d := &decoder{}
	if len(l.Job.Agent.Command) > 0 {
		d.program = l.Job.Agent.Command[0]
	}
	return d
}

type decoder struct {
	program string
	stderr  decode.LastError
}

// Line implements [agent.Decoder].
func (d *decoder) Line(line agent.Line) agent.Read {
	raw, _ := decode.Parse(line)
	e := d.stderr.Event(line, raw)
	e.Agent = "command"
	return agent.Read{Events: []event.Event{e}}
}

// Total implements [agent.Decoder].
func (d *decoder) Total() agent.Total { return agent.Total{} }

// Exit implements [agent.Decoder].
func (d *decoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	data := event.RunExited{Code: code, Signal: signal, Class: "error"}
	var end jobs.Ended
	switch {
	case signal != "":
		data.Class = "died"
		end = jobs.AgentCrashed.Ended(d.stderr.After(fmt.Sprintf("%s was killed by %s", d.program, signal)))
	case code == 0:
		data.Class = "ok"
		end = jobs.Ended{Outcome: jobs.Success}
	case code == 126 || code == 127:
		end = decode.Missing(d.program, code, &d.stderr)
	default:
		end = jobs.AgentFailed.Ended(d.stderr.After(fmt.Sprintf("%s ended with status %d", d.program, code)))
	}
	return decode.Exited("command", 0, data), end
}
