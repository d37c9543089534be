package agent

import (
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// maxVariable is what Linux allows for one "NAME=value" and the NUL after it.
const maxVariable = 128 << 10

// command runs any program as the agent. The program finds its prompt in the file that
// PENSTOCK_PROMPT_FILE names, and in PENSTOCK_PROMPT unless that would be longer than
// the system allows for a variable (128 KiB). An issue's fields are in
// PENSTOCK_ISSUE_FILE as JSON, the job's files in PENSTOCK_INPUT_DIR, and the model
// that the job asks for in PENSTOCK_MODEL. The program's lines become events of kind
// output.line, whatever they contain. Exit status 0 means success.
type command struct{}

func (command) About() About {
	return About{Name: "command", Protocol: "command", Brought: true, Abilities: Abilities{Model: true, Terminals: true}}
}

func (command) Launch(l Launch) (Plan, error) {
	if len(l.Job.Agent.Command) == 0 {
		return Plan{}, fmt.Errorf("agent command: no program given")
	}
	p := Plan{
		Args:   slices.Concat(l.Job.Agent.Command, l.Job.Agent.Args),
		Env:    slices.Concat(l.env(), l.gateEnv()),
		Files:  l.files(),
		Mounts: l.Program.Mounts,
	}
	if v := "PENSTOCK_PROMPT=" + l.prompt(); len(v) < maxVariable {
		p.Env = append(p.Env, v)
	}
	return p, nil
}

func (command) Decoder(l Launch) Decoder {
	d := &commandDecoder{}
	if len(l.Job.Agent.Command) > 0 {
		d.program = l.Job.Agent.Command[0]
	}
	return d
}

type commandDecoder struct {
	program string
	last    lastError
}

func (d *commandDecoder) Line(line Line) Read {
	raw, _ := parse(line)
	e := d.last.event(line, raw)
	e.Agent = "command"
	return Read{Events: []event.Event{e}}
}

func (d *commandDecoder) Total() Total { return Total{} }

func (d *commandDecoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	data := event.RunExited{Code: code, Signal: signal, Class: "error"}
	var end jobs.Ended
	switch {
	case signal != "":
		data.Class = "died"
		end = jobs.AgentCrashed.Ended(d.last.after(fmt.Sprintf("%s was killed by %s", d.program, signal)))
	case code == 0:
		data.Class = "ok"
		end = jobs.Ended{Outcome: jobs.Success}
	case code == 126 || code == 127:
		end = missing(d.program, code, &d.last)
	default:
		end = jobs.AgentFailed.Ended(d.last.after(fmt.Sprintf("%s ended with status %d", d.program, code)))
	}
	return exited("command", 0, data), end
}

// missing is the verdict on a program that was not found or cannot be executed.
func missing(program string, code int, last *lastError) jobs.Ended {
	what := "was not found (status 127)"
	if code == 126 {
		what = "cannot be executed (status 126)"
	}
	return jobs.AgentMissing.Ended(last.after(fmt.Sprintf(
		"%s %s; the jail sees the system's directories and the workspace only, so install it there, name its path in the workspace, or use an image", program, what)))
}

func exited(name string, turn int, data event.RunExited) event.Event {
	e := event.Make(data)
	e.Agent, e.Turn = name, turn
	return e
}
