package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// basics are the checks of one prompt in one process.
var basics = []check{
	{"", "version", "its program starts in a jail and says its version", nil, version},
	{"", "prompt", "it takes a prompt, asks its model, and ends by itself; the answer becomes an event", nil, answers},
	{"", "turns", "its turns are seen as they begin and end", hasTurns, turns},
	{"", "model", "it uses the model that the job names: `agent.model`", func(a agent.About) bool { return a.Model }, firstRun(uses)},
	{"", "effort", "its model thinks as much as the job says: `agent.effort`", func(a agent.About) bool { return a.Effort }, effort},
	{"", "instructions", "it is given instructions of the job's own: `agent.instructions`", func(a agent.About) bool { return a.Instructions }, firstRun(instructed)},
	{"", "skills", "it has the skills of the job among those of its user, and tells the model of them: `agent.skills`", func(a agent.About) bool { return a.Skills }, firstRun(skilled)},
	{"", "tokens", "it reports the tokens that the gate counts", func(a agent.About) bool { return a.Tokens }, firstRun(tokens)},
	{"", "cost", "it reports its cost", func(a agent.About) bool { return a.Cost }, firstRun(cost)},
	{"", "max_turns", "it stops after a number of turns: `agent.max_turns`", func(a agent.About) bool { return a.MaxTurns }, maxTurns},
}

var versionText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+\.\d+(\.\d+)?[-+.\w]*`) })

func version(ctx context.Context, t *trial) error {
	if t.about.Protocol == "command" || t.about.Protocol == "acp" {
		return untried("the options of an agent of protocol %s are not known", t.about.Protocol)
	}
	out, exit, err := t.jail.Output(ctx, agent.Plan{Args: append(slices.Clone(t.program.Args), "--version"), Mounts: t.program.Mounts})
	if err != nil {
		return err
	}
	if t.version = versionText().FindString(string(out)); t.version == "" || !exit.Success() {
		return fmt.Errorf("--version exited with %v and printed %q", exit, short(string(out)))
	}
	return nil
}

// once is the run of one prompt, which several checks look at, and whose conversation others continue.
func (t *trial) once(ctx context.Context) (*seen, error) {
	if t.prompted != nil || t.broken != nil {
		return t.prompted, t.broken
	}
	home, err := os.MkdirTemp(t.dir, "home-")
	if err != nil {
		return nil, err
	}
	s, err := t.run(ctx, task{model: answer, with: &harness.Conversation{Home: home}, launch: func(l *agent.Launch) {
		if t.about.Instructions {
			l.Job.Agent.Instructions = ruleWord
		}
		if t.about.Skills {
			l.Job.Agent.Skills = map[string]jobs.Skill{"contract": {Files: map[string]string{
				jobs.SkillFile: "---\nname: contract\ndescription: Use this skill for " + skillWord + ".\n---\nSay so.\n",
			}}}
		}
	}})
	if err == nil {
		err = s.ended()
	}
	if err != nil {
		t.broken = err
		return nil, err
	}
	t.prompted, t.home = s, home
	return s, nil
}

func answers(ctx context.Context, t *trial) error {
	s, err := t.once(ctx)
	switch {
	case err != nil:
		return err
	case !t.modelled() && len(s.Events) < 2: // besides its exit
		return fmt.Errorf("it printed nothing")
	case !t.modelled():
		return nil
	case s.asked(firstWord) == nil:
		return fmt.Errorf("the prompt did not come to the model; it was asked %d times", len(s.requests))
	case !strings.Contains(s.Output(), answerWord):
		return fmt.Errorf("no event has the model's answer; there are %s", kinds(s.Run))
	}
	return nil
}

// kinds lists the events of a run.
func kinds(r harness.Run) string {
	words := make([]string, len(r.Events))
	for i, e := range r.Events {
		words[i] = string(e.Kind)
	}
	return strings.Join(words, ", ")
}

func hasTurns(a agent.About) bool { return a.Protocol != "command" }

func turns(ctx context.Context, t *trial) error {
	s, err := t.once(ctx)
	if err != nil {
		return err
	}
	if s.Count(jobs.TurnStarted) != 1 || s.Count(jobs.TurnEnded) != 1 {
		return fmt.Errorf("%d turns began and %d ended; the events are %s", s.Count(jobs.TurnStarted), s.Count(jobs.TurnEnded), kinds(s.Run))
	}
	return nil
}

func clean(ctx context.Context, t *trial) error {
	s, err := t.once(ctx)
	if err != nil {
		return err
	}
	left, err := os.ReadDir(s.workspace)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	return fmt.Errorf("it left %s", strings.Join(names, ", "))
}

// needsModel is an error for an agent that has no model API here.
func needsModel(t *trial) error {
	if t.modelled() {
		return nil
	}
	return untried("the agent names no model API")
}

// firstRun is a check that looks at the run of one prompt, for agents with a model API.
func firstRun(look func(*trial, *seen) error) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := needsModel(t); err != nil {
			return err
		}
		s, err := t.once(ctx)
		if err != nil {
			return err
		}
		return look(t, s)
	}
}

func network(_ *trial, s *seen) error {
	if m := s.meter; m.Violations+m.Strangers > 0 {
		return fmt.Errorf("the gate refused %d requests for something else, and %d without the key of the jail", m.Violations, m.Strangers)
	}
	return nil
}

func uses(t *trial, s *seen) error {
	if t.about.Protocol == "acp" {
		return untried("agents of protocol acp offer models of their own")
	}
	if r := s.asked(firstWord); r == nil || r.Model != models[t.about.API] {
		return fmt.Errorf("the job named %s, and the requests %s", models[t.about.API], named(s.requests))
	}
	return nil
}

// thinking are models that can be told how much to think, and little is what all of them take.
var thinking = map[string]string{"anthropic": "claude-opus-4-6", "openai": "gpt-5.4"}

const little = "low"

func effort(ctx context.Context, t *trial) error {
	if err := needsEfforts(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{model: answer, launch: func(l *agent.Launch) {
		l.Job.Agent.Model, l.Job.Agent.Effort = thinking[t.about.API], little
	}})
	if err != nil {
		return err
	}
	return s.thinks(firstWord)
}

func needsEfforts(t *trial) error {
	if t.about.Protocol == "acp" || t.about.Protocol == "command" {
		return untried("what efforts an agent of protocol %s takes is not known", t.about.Protocol)
	}
	return needsModel(t)
}

// thinks is an error unless the request with these last words told the model to think little.
func (s *seen) thinks(last string) error {
	if err := s.ended(); err != nil {
		return err
	}
	if r := s.asked(last); r == nil || r.Effort != little {
		return fmt.Errorf("told to think with effort %s, its requests name %q", little, efforts(s.requests))
	}
	return nil
}

func efforts(requests []agenttest.Request) (all []string) {
	for _, r := range requests {
		all = append(all, r.Effort)
	}
	return all
}

func instructed(t *trial, s *seen) error {
	if t.about.Protocol == "command" {
		return untried("an agent of protocol command may do what it wants with the file of its instructions")
	}
	if r := s.asked(firstWord); r == nil || !strings.Contains(r.System, ruleWord) {
		return fmt.Errorf("the instructions did not come to the model")
	}
	return nil
}

func skilled(t *trial, s *seen) error {
	if t.about.Protocol == "command" {
		return untried("an agent of protocol command may do what it wants with the directory of its skills")
	}
	if r := s.asked(firstWord); r == nil || !slices.Contains(r.Words, skillWord) {
		return fmt.Errorf("the description of the skill did not come to the model")
	}
	return nil
}

func named(requests []agenttest.Request) string {
	var words []string
	for _, r := range requests {
		words = append(words, fmt.Sprintf("%q", r.Model))
	}
	return strings.Join(words, ", ")
}

func tokens(_ *trial, s *seen) error {
	if s.Total.Usage != s.meter.Usage {
		return fmt.Errorf("it reports %+v, and the gate counted %+v in %d calls", s.Total.Usage, s.meter.Usage, s.meter.Calls)
	}
	return nil
}

func cost(_ *trial, s *seen) error {
	if s.Total.CostUSD <= 0 {
		return fmt.Errorf("it reports no cost, for a model with a price")
	}
	return nil
}

// search looks for the real key wherever a program in the jail can look. Neither its pattern nor
// the words of its output match the command itself.
const search = `env; for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ; tr '\0' ' ' <$p/cmdline; done 2>/dev/null; ` +
	`grep -rsl 'sk-real-ke[y]-that' /workspace "$HOME" /tmp /run /etc /var 2>/dev/null | sed 's/^/FOUN''D IN /'; echo SEARCH ENDS`

// look is the run of a command that looks for the key.
func (t *trial) look(ctx context.Context) (*seen, error) {
	if t.searched != nil {
		return t.searched, nil
	}
	if err := needsModel(t); err != nil {
		return nil, err
	}
	s, err := t.run(ctx, task{model: func(r agenttest.Request) agenttest.Reply {
		if r.Turn == 0 {
			return shell(r, search)
		}
		return answer(r)
	}})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.hasShell(), s.ended()); err != nil {
		return nil, err
	}
	t.searched = s
	return s, nil
}

func tools(ctx context.Context, t *trial) error {
	s, err := t.look(ctx)
	if err != nil {
		return err
	}
	if s.asked("SEARCH ENDS") == nil {
		return fmt.Errorf("the model did not get the output of a command")
	}
	if s.Count(jobs.ToolStarted) != 1 || s.Count(jobs.ToolEnded) != 1 {
		return fmt.Errorf("%d commands began and %d ended, of one; the events are %s", s.Count(jobs.ToolStarted), s.Count(jobs.ToolEnded), kinds(s.Run))
	}
	return nil
}

func secrets(ctx context.Context, t *trial) error {
	s, err := t.look(ctx)
	if _, notTried := errors.AsType[*untriedError](err); notTried && t.modelled() {
		s, err = t.once(ctx) // then its output is all that can be searched
	}
	if err != nil {
		return err
	}
	out := s.Output()
	for _, r := range s.requests {
		out += r.Last
	}
	if i := strings.Index(out, "FOUND IN "); i >= 0 {
		return fmt.Errorf("the key of the model API is in a file: %.100s", out[i:])
	}
	if i := strings.Index(out, harness.RealKey); i >= 0 {
		return fmt.Errorf("the key of the model API is in its output: %.100s", out[max(0, i-50):])
	}
	for _, r := range s.requests {
		if sent := fmt.Sprint(r.Header); !strings.Contains(sent, harness.RealKey) || strings.Contains(sent, harness.JailKey) {
			return fmt.Errorf("a request to %s did not have the real key, or had the jail's", r.Path)
		}
	}
	return nil
}

func maxTurns(ctx context.Context, t *trial) error {
	const limit = 2
	s, err := t.run(ctx, task{
		launch: func(l *agent.Launch) { l.Job.Agent.MaxTurns = limit },
		model:  func(r agenttest.Request) agenttest.Reply { return shell(r, "true") },
	})
	if err != nil {
		return err
	}
	if err := s.hasShell(); err != nil {
		return err
	}
	if s.End.Reason != jobs.TurnLimit {
		return fmt.Errorf("with %d turns, %d requests to the model, it ended with %s (%s): %s", limit, len(s.requests), s.End.Outcome, s.End.Reason, s.End.Message)
	}
	return nil
}

// status is how the nth turn ended, from 0; empty: there is none.
func (s *seen) status(n int) string {
	for _, e := range s.Events {
		if ended, ok := e.Payload.(event.TurnEnded); ok {
			if n == 0 {
				return ended.Status
			}
			n--
		}
	}
	return ""
}
