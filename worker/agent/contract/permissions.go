package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// permissions are the checks of an interactive job whose agent asks before it acts.
var permissions = []check{
	{"", "permission_once", "it asks before a command, runs it when that is allowed, and asks again for the next one", mayAsk, permit(answerOnce, 2, 2)},
	{"", "permission_always", "allowed for good, it does not ask for the same command again", mayAsk, permit(answerAlways, 1, 2)},
	{"", "permission_changed", "a command that is granted with another input runs with that: `answer --tool-input`", func(a agent.About) bool { return a.Protocol == "claude" }, permissionChanged},
	{"", "permission_refused", "a command that is refused does not run", mayAsk, permit(answerNever, 0, 0)},
}

// asking are the modes in which agents ask, by protocol. One of protocol acp asks when it wants.
var asking = map[string]string{"claude": "default", "codex": "untrusted", "gemini": "default", "opencode": "ask", "acp": ""}

// asking launches an agent that asks before it acts.
func (t *trial) asking(l *agent.Launch) {
	l.Job.Agent.Interactive, l.Mode = true, asking[t.about.Protocol]
}

func mayAsk(a agent.About) bool {
	_, can := asking[a.Protocol]
	return can && a.Interactive
}

// The answers to a request for permission. The second value is whether the agent offers it.
func answerOnce(control.Ask) (control.Message, bool) { return control.Message{}, true }

func answerNever(control.Ask) (control.Message, bool) { return control.Message{Deny: true}, true }

func answerAlways(a control.Ask) (control.Message, bool) {
	for _, q := range a.List() {
		for _, o := range q.Options {
			if o.Kind == "allow_always" {
				return control.Message{Options: []string{o.Label}}, true
			}
		}
	}
	return control.Message{}, false
}

// guarded leaves a new file each time.
const guarded = "mktemp guarded.XXXXXXXX"

// permit has the agent run one command twice, and answers what it asks. It wants so many questions
// (0: any number), and so many files of the command.
func permit(decide func(control.Ask) (control.Message, bool), asks, left int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		c := &harness.Conversation{}
		asked, offered := 0, true
		var refused error
		c.OnEvent = func(e event.Event) [][]byte {
			open, ok := e.Payload.(event.AskOpened)
			if !ok {
				return nil
			}
			asked++
			message, can := decide(control.Ask(open))
			offered = offered && can
			message.Ask = open.Ask
			lines, err := c.Answer(message)
			refused = errors.Join(refused, err)
			return lines
		}
		s, err := t.run(ctx, task{with: c, asks: true, launch: t.asking, model: func(r agenttest.Request) agenttest.Reply {
			if r.Turn < 2 {
				return shell(r, guarded)
			}
			return answer(r)
		}})
		if err := errors.Join(err, refused); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(s.workspace, "guarded.*"))
		if err != nil {
			return err
		}
		switch {
		case s.hasShell() != nil:
			return s.hasShell()
		case asked == 0 && t.about.Protocol == "acp":
			return untried("it asked for no permission")
		case asked == 0:
			return fmt.Errorf("in mode %s it asked for no permission", asking[t.about.Protocol])
		case !offered:
			return untried("it offers no such answer")
		case len(files) != left:
			return fmt.Errorf("the command ran %d times, not %d; it asked %d times, and ended with %s", len(files), left, asked, s.how())
		case asks > 0 && asked != asks:
			return fmt.Errorf("of two commands it asked for %d, not %d", asked, asks)
		case s.Count(jobs.AskClosed) < asked:
			return fmt.Errorf("%d questions were opened and %d closed", asked, s.Count(jobs.AskClosed))
		case s.End.Reason == jobs.AgentCrashed || left > 0 && s.ended() != nil:
			return s.ended()
		}
		return nil
	}
}

// permissionChanged grants another command than the agent asks for.
func permissionChanged(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	c := &harness.Conversation{}
	var refused error
	c.OnEvent = func(e event.Event) [][]byte {
		open, ok := e.Payload.(event.AskOpened)
		if !ok {
			return nil
		}
		lines, err := c.Answer(control.Message{Ask: open.Ask, ToolInput: changedInput})
		refused = errors.Join(refused, err)
		return lines
	}
	s, err := t.run(ctx, task{with: c, asks: true, launch: t.asking, model: func(r agenttest.Request) agenttest.Reply {
		if r.Turn == 0 {
			return shell(r, "touch asked-for")
		}
		return answer(r)
	}})
	if err := errors.Join(err, refused); err != nil {
		return err
	}
	_, wanted := os.Lstat(filepath.Join(s.workspace, "asked-for"))
	_, granted := os.Lstat(filepath.Join(s.workspace, "granted"))
	switch {
	case s.hasShell() != nil:
		return s.hasShell()
	case wanted == nil || granted != nil:
		return fmt.Errorf("the command that was granted ran: %t; the one that it asked for ran: %t", granted == nil, wanted == nil)
	}
	return s.ended()
}

var changedInput = json.RawMessage(`{"command":"touch granted","description":"run it"}`)
