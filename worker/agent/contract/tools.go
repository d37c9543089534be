package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// toolsOf are the checks of the commands that an agent runs.
var toolsOf = []check{
	{"", "tools", "the commands that it runs are seen as they begin and end", nil, tools},
	{"", "parallel_tools", "several commands of one answer are seen, each as it begins and ends", nil, parallel},
	{"", "failed_tool", "a command that fails is seen as that, and the agent goes on", tellsFailures, failedTool},
	{"", "changes", "its commands work in the workspace, and what they write is there afterwards", nil, changes},
	{"", "variables", "its commands have the job's variables", nil, variables},
	{"", "tool_input", "a command that reads its input does not wait for it, or take the agent's", nil, commandEnds("cat >/dev/null; echo COMMAND ENDS")},
	{"", "binary_output", "a command may print what is no text", nil, goesOnAfter(`printf '\377\376\000\033[31m'; echo COMMAND ENDS`)},
	{"", "large_output", "a command may print megabytes", keepsOutput, goesOnAfter("yes contract | head -c 5000000")},
	{"", "subagents", "a subagent that it hands work to is seen as it begins and ends", hasSubagents, subagents},
	{"", "background", "it ends although a command has left a process behind", nil, commandEnds("sleep 900 >/dev/null 2>&1 & echo COMMAND ENDS")},
}

// command is the run of one answer with commands, after which the model ends the turn.
func (t *trial) command(ctx context.Context, launch func(*agent.Launch), commands ...string) (*seen, error) {
	if err := needsModel(t); err != nil {
		return nil, err
	}
	s, err := t.run(ctx, task{launch: launch, model: func(r agenttest.Request) agenttest.Reply {
		if r.Turn == 0 {
			return shell(r, commands...)
		}
		return answer(r)
	}})
	if err != nil {
		return nil, err
	}
	return s, errors.Join(s.hasShell(), s.ended())
}

// commandEnds is a check that a command ends, and the model is told so.
func commandEnds(command string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		s, err := t.command(ctx, nil, command)
		if err != nil {
			return err
		}
		if s.asked("COMMAND ENDS") == nil {
			return fmt.Errorf("the model did not get the end of the output of: %s", command)
		}
		return nil
	}
}

// goesOnAfter is a check that the agent goes on after a command, whatever the model is told of its
// output.
func goesOnAfter(command string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		s, err := t.command(ctx, nil, command)
		if err != nil {
			return err
		}
		if s.Count(jobs.ToolEnded) != 1 || !s.says(answerWord) {
			return fmt.Errorf("it did not go on after the command; the events are %s", kinds(s.Run))
		}
		return nil
	}
}

func parallel(ctx context.Context, t *trial) error {
	s, err := t.command(ctx, nil, "echo first", "echo second")
	if err != nil {
		return err
	}
	began, ended := map[string]bool{}, map[string]bool{}
	for _, e := range s.Events {
		switch p := e.Payload.(type) {
		case event.ToolStarted:
			began[p.Call] = true
		case event.ToolEnded:
			ended[p.Call] = began[p.Call]
		}
	}
	if len(began) != 2 || len(ended) != 2 {
		return fmt.Errorf("of two commands %d began and %d ended, each with an id of its own; the events are %s", len(began), len(ended), kinds(s.Run))
	}
	return nil
}

// keepsOutput is false for Gemini CLI, which ends in the middle of a line that its pipe cannot hold.
func keepsOutput(a agent.About) bool { return a.Protocol != "gemini" }

// tellsLongAnswers is also false for opencode, which loses the end of such a line where it is its last.
func tellsLongAnswers(a agent.About) bool { return keepsOutput(a) && a.Protocol != "opencode" }

// tellsFailures is false for Gemini CLI, which says of each command that it has succeeded.
func tellsFailures(a agent.About) bool { return a.Protocol != "gemini" }

func failedTool(ctx context.Context, t *trial) error {
	s, err := t.command(ctx, nil, "echo sorry; exit 3")
	if err != nil {
		return err
	}
	for _, e := range s.Events {
		if ended, ok := e.Payload.(event.ToolEnded); ok && (ended.OK == nil || *ended.OK) && (ended.ExitCode == nil || *ended.ExitCode != 3) {
			return fmt.Errorf("a command that exited with 3 is seen as %.200s", e.Data)
		}
	}
	if s.Count(jobs.ToolEnded) != 1 {
		return fmt.Errorf("its end is not among the events: %s", kinds(s.Run))
	}
	return nil
}

func changes(ctx context.Context, t *trial) error {
	s, err := t.command(ctx, nil, "pwd; printf made >made.txt")
	if err != nil {
		return err
	}
	if made, err := os.ReadFile(filepath.Join(s.workspace, "made.txt")); err != nil || string(made) != "made" {
		return fmt.Errorf("what a command wrote is not in the workspace")
	}
	if s.asked("/workspace") == nil {
		return fmt.Errorf("its commands do not begin in the workspace")
	}
	return nil
}

func variables(ctx context.Context, t *trial) error {
	s, err := t.command(ctx, func(l *agent.Launch) {
		l.Job.Env = map[string]string{"CONTRACT_TEAM": "contract-team", "CONTRACT_TOKEN": "contract-token"}
	}, `echo "they are $CONTRACT_TEAM $CONTRACT_TOKEN"`)
	if err != nil {
		return err
	}
	if s.asked("they are contract-team contract-token") == nil {
		said := ""
		if r := s.asked("they are"); r != nil {
			said = r.Last
		}
		return fmt.Errorf("of CONTRACT_TEAM and CONTRACT_TOKEN a command has %.100q", strings.TrimSpace(said))
	}
	return nil
}
