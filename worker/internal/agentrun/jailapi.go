package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/terminals"
)

// tell appends what the agent has done to the log, where an attempt that has
// lost its lease cannot write.
func (r *Run) tell(ctx context.Context, e jobs.Event) error {
	ctx, cancel := context.WithTimeout(ctx, AcceptLimit)
	defer cancel()
	r.state.mu.Lock()
	e.Turn = r.state.turns.turn
	r.state.watchdog.Touch(time.Now()) // it does something
	r.state.mu.Unlock()
	err := r.cfg.Append(ctx, e)
	if errors.Is(err, jobs.ErrFenced) {
		r.cfg.End(err)
	}
	return err
}

// Terminal answers a request about the terminals of the agent's jail. It reports whether the
// request is for this attempt.
func (r *Run) Terminal(ctx context.Context, t terminal.Request) (terminal.Answer, bool) {
	return r.terminals.Answer(ctx, t)
}

// A jailAPI carries out what the programs of the agent's jail may have done. It knows nothing of
// the run but how it tells the session, and how it asks users.
type jailAPI struct {
	cfg       Config
	tell      func(context.Context, jobs.Event) error
	ask       func(context.Context, inside.Ask) (inside.Answer, error)
	terminals *terminals.Set
}

// serve answers the programs until ctx ends. A jail that nothing leads out of has no
// listener for that.
func (j *jailAPI) serve(ctx context.Context, l net.Listener) error {
	if l == nil {
		return nil
	}
	return j.cfg.Inside.Serve(ctx, l, inside.Handlers{
		Milestone: func(ctx context.Context, text string) error {
			return j.tell(ctx, event.New(event.Milestone{Text: text}))
		},
		Artifact: j.artifact,
		Result:   j.result,
		Ask:      j.ask,
		Terminal: j.terminal,
		MCP:      j.cfg.MCP,
		Shut:     func(why string) { j.cfg.Events.Put(event.Make(event.Notice{Text: why})) },
	})
}

// artifact stores a file that a program of the agent sends, under a name of the
// agent's own.
func (j *jailAPI) artifact(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error) {
	file, err := j.cfg.Outcome.Send(ctx, name, content)
	if large, ok := errors.AsType[*artifact.TooLargeError](err); ok {
		return jobs.Artifact{}, inside.Refuse("too_large", "%v", large)
	}
	return file, j.attach(ctx, file, err)
}

// attach lists one of the attempt's files among its artifacts, if it was stored and
// the log can be told.
func (j *jailAPI) attach(ctx context.Context, file jobs.Artifact, err error) error {
	if err == nil {
		err = j.tell(ctx, event.New(event.ArtifactStored(file)))
	}
	if err == nil {
		j.cfg.Outcome.Attach(file)
	}
	return err
}

// result takes the job's result, if it is what the job wants.
func (j *jailAPI) result(ctx context.Context, value json.RawMessage) error {
	if len(j.cfg.Job.ResultSchema) > 0 {
		if err := j.cfg.Typed(j.cfg.Job.ResultSchema, value); err != nil {
			return inside.Refuse("invalid", "it does not fit the job's result_schema: %v", err)
		}
	}
	e := j.cfg.Secrets.Event(event.New(event.ResultSet{Value: value}))
	if err := j.tell(ctx, e); err != nil {
		return err
	}
	j.cfg.Outcome.SetValue(event.As[event.ResultSet](e).Value) // as the log has it
	return nil
}

// terminal answers a program of the jail, which says neither who it is nor
// which attempt.
func (j *jailAPI) terminal(ctx context.Context, t terminal.Request) (terminal.Answer, error) {
	if !j.cfg.Job.Agent.Terminals {
		return terminal.Answer{}, inside.Refuse("forbidden", "the job gives its agent no terminals: it needs agent.terminals, or --terminals")
	}
	t.By, t.Attempt = terminals.Own, j.cfg.Record.Attempt
	if err := t.Validate(); err != nil {
		return terminal.Answer{}, inside.Refuse("invalid", "%v", err)
	}
	answer, ours := j.terminals.Answer(ctx, t)
	switch {
	case !ours:
		return terminal.Answer{}, inside.Refuse("over", "another attempt has the session")
	case answer.Error != nil:
		return terminal.Answer{}, inside.Refused(answer.Error)
	}
	return answer, nil
}

// terminalConfig joins the terminals to the jail and to the session's log.
func (j *jailAPI) terminalConfig(p *sandbox.Process, output func(...event.Event)) terminals.Config {
	return terminals.Config{
		Attempt: j.cfg.Record.Attempt, First: j.cfg.Terminals + 1,
		Start: p.Terminal, Prove: j.tell, Output: output,
		Keep: func(ctx context.Context, name string, content io.Reader) error {
			file, err := j.cfg.Outcome.Keep(ctx, name, content)
			return j.attach(ctx, file, err)
		},
		Clean: func(w io.Writer) io.WriteCloser { return j.cfg.Secrets.Writer(w) },
	}
}
