package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// dialogues are the checks of an interactive job.
var dialogues = []check{
	{"", "interactive", "it takes more prompts while it lives", func(a agent.About) bool { return a.Interactive }, followUp},
	{"", "interrupt", "a turn can be ended, and it lives on", func(a agent.About) bool { return a.Interrupt }, interrupt},
	{"", "interrupt_tool", "a turn can be ended within a command", func(a agent.About) bool { return a.Interrupt }, interruptTool},
	{"", "queued_prompt", "a prompt within a turn comes to the model, in that turn or after it", func(a agent.About) bool { return a.Interactive }, queued},
	{"", "set_model", "it goes on with another model: `job set --model`", func(a agent.About) bool { return a.Interactive && a.Model && a.Protocol != "acp" }, setModel},
	{"", "set_effort", "it goes on with another effort: `job set --effort`", func(a agent.About) bool { return a.Interactive && a.Effort && a.Protocol != "acp" }, setEffort},
	{"", "plan_mode", "it tells its model to plan first: `job set --mode plan`", func(a agent.About) bool { return a.Interactive && a.Protocol != "acp" }, planMode},
	{"", "questions", "it asks, and goes on with the answer", asksQuestions, question("contract-right", "Which?")},
	{"", "several_questions", "it asks several questions at once, and goes on with an answer to each", asksQuestions, question("contract-left", "Which?", "Whither?")},
	{"", "question_text", "it goes on with an answer in words of one's own", asksQuestions, question("contract-neither", "Which?")},
	{"", "images", "it is shown the images of a prompt: `send --image`", func(a agent.About) bool { return a.Images }, images},
}

func interactive(l *agent.Launch) { l.Job.Agent.Interactive = true }

func followUp(ctx context.Context, t *trial) error {
	s, err := t.run(ctx, task{launch: interactive, model: answer, with: &harness.Conversation{Say: []string{nextWord}}})
	if err != nil {
		return err
	}
	if err := s.ended(); err != nil {
		return err
	}
	if n := s.Count(jobs.TurnEnded); n != 2 {
		return fmt.Errorf("after two prompts %d turns ended; the events are %s", n, kinds(s.Run))
	}
	if !t.modelled() {
		return nil
	}
	return s.remembers(nextWord)
}

// remembers is an error unless the model was asked with these last words, after the first prompt
// and its answer.
func (s *seen) remembers(last string) error {
	r := s.asked(last)
	switch {
	case r == nil:
		return fmt.Errorf("the prompt %s did not come to the model", last)
	case r.Turn == 0 || !strings.Contains(r.First, firstWord):
		return fmt.Errorf("the prompt %s came to the model without what was said before", last)
	}
	return nil
}

func interrupt(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	c := &harness.Conversation{}
	afterFirst(c, func(speaker agent.Speaker) [][]byte { return speaker.Say(jobs.NewID(), nextWord) })
	var once sync.Once
	s, err := t.run(ctx, task{launch: interactive, with: c, model: func(r agenttest.Request) agenttest.Reply {
		if strings.Contains(r.Last, nextWord) {
			return answer(r)
		}
		once.Do(c.Interrupt)
		return agenttest.Reply{Text: "…", Hang: true}
	}})
	if err != nil {
		return err
	}
	if s.status(0) != "interrupted" || s.status(1) != "ok" {
		return fmt.Errorf("the interrupted turn ended as %q, and the next one as %q; it ended with %s (%s)", s.status(0), s.status(1), s.End.Outcome, s.End.Reason)
	}
	return s.ended()
}

func images(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	picture := Picture(20)
	c := &harness.Conversation{}
	var refused error
	afterFirst(c, func(speaker agent.Speaker) [][]byte {
		if refused = speaker.TakesImages(); refused != nil {
			return nil
		}
		return speaker.Say(jobs.NewID(), nextWord, picture)
	})
	s, err := t.run(ctx, task{launch: interactive, with: c, model: answer})
	if err != nil {
		return err
	}
	if no, ok := errors.AsType[*control.RefusedError](refused); ok && no.Code == control.Cannot {
		return &cannotError{no.Error()}
	}
	if err := errors.Join(refused, s.ended()); err != nil {
		return err
	}
	if r := s.asked(nextWord); r == nil || !slices.Contains(r.Images, DataURL(picture)) {
		return fmt.Errorf("the image did not come to the model")
	}
	return nil
}

// afterFirst calls a function once, when the first turn of a conversation has ended.
func afterFirst(c *harness.Conversation, then func(agent.Speaker) [][]byte) {
	done := false
	c.OnEvent = func(e event.Event) [][]byte {
		if e.Kind != jobs.TurnEnded || done {
			return nil
		}
		done = true
		return then(c.Decoder.(agent.Speaker))
	}
}

// began is the file by which a command is seen to run.
const began = "contract-began"

func interruptTool(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	c := &harness.Conversation{}
	afterFirst(c, func(speaker agent.Speaker) [][]byte { return speaker.Say(jobs.NewID(), nextWord) })
	workspace := make(chan string, 1)
	watched, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { interruptAt(watched, workspace, c) })
	s, err := t.run(ctx, task{with: c, launch: func(l *agent.Launch) {
		l.Job.Agent.Interactive = true
		workspace <- l.Cwd
	}, model: func(r agenttest.Request) agenttest.Reply {
		if r.Turn == 0 {
			return shell(r, "touch "+began+"; sleep 300")
		}
		return answer(r)
	}})
	stop()
	watching.Wait()
	switch {
	case err != nil:
		return err
	case s.hasShell() != nil:
		return s.hasShell()
	case s.status(0) != "interrupted" || s.status(1) != "ok":
		return fmt.Errorf("the interrupted turn ended as %q, and the next one as %q; it ended with %s (%s)", s.status(0), s.status(1), s.End.Outcome, s.End.Reason)
	}
	return s.ended()
}

// interruptAt interrupts the turn when its command runs, which only its file tells.
func interruptAt(ctx context.Context, workspace <-chan string, c *harness.Conversation) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var file string
	for {
		select {
		case <-ctx.Done():
			return
		case dir := <-workspace:
			file = filepath.Join(dir, began)
		case <-look.C:
		}
		if _, err := os.Lstat(file); file != "" && err == nil {
			c.Interrupt()
			return
		}
	}
}

func queued(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	c := &harness.Conversation{}
	said := false
	c.OnEvent = func(e event.Event) [][]byte {
		if e.Kind != jobs.ToolStarted || said {
			return nil
		}
		said = true
		return c.Decoder.(agent.Speaker).Say(jobs.NewID(), nextWord)
	}
	s, err := t.run(ctx, task{launch: interactive, with: c, model: func(r agenttest.Request) agenttest.Reply {
		if r.Turn == 0 {
			return shell(r, "sleep 1; echo COMMAND ENDS")
		}
		return answer(r)
	}})
	switch {
	case err != nil:
		return err
	case s.hasShell() != nil:
		return s.hasShell()
	case !slices.ContainsFunc(s.requests, func(r agenttest.Request) bool { return strings.Contains(r.First+r.Last, nextWord) }):
		return fmt.Errorf("the prompt within a turn did not come to the model; it ended with %s", s.how())
	}
	return s.ended()
}

// otherModels are those that agents go on with.
var otherModels = map[string]string{"anthropic": "claude-haiku-4-5", "openai": "gpt-5.4", "google": "gemini-2.5-pro"}

func setModel(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	other := otherModels[t.about.API]
	s, err := t.run(ctx, task{launch: interactive, with: setAfterFirst(control.Settings{Model: other}), model: answer})
	if err != nil {
		return err
	}
	if err := s.ended(); err != nil {
		return err
	}
	if r := s.asked(nextWord); r == nil || r.Model != other {
		return fmt.Errorf("told to go on with %s, its requests name %s", other, named(s.requests))
	}
	return nil
}

// setAfterFirst is a conversation whose agent is set to something after its first turn, and told to go
// on. What the model is asked shows it if that was refused.
func setAfterFirst(to control.Settings) *harness.Conversation {
	c := &harness.Conversation{}
	afterFirst(c, func(speaker agent.Speaker) [][]byte {
		lines, _ := speaker.Set(jobs.NewID(), to)
		return append(lines, speaker.Say(jobs.NewID(), nextWord)...)
	})
	return c
}

func setEffort(ctx context.Context, t *trial) error {
	if err := needsEfforts(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{with: setAfterFirst(control.Settings{Effort: little}), model: answer, launch: func(l *agent.Launch) {
		l.Job.Agent.Interactive, l.Job.Agent.Model = true, thinking[t.about.API]
	}})
	if err != nil {
		return err
	}
	return s.thinks(nextWord)
}

// planMode has an agent plan that runs, and one that begins, as after a park.
func planMode(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{launch: interactive, with: setAfterFirst(control.Settings{Mode: plan}), model: answer})
	if err != nil {
		return err
	}
	if r := s.asked(nextWord); r == nil || !plans(*r) || plans(s.requests[0]) {
		return fmt.Errorf("told to plan, it did not tell its model of a plan mode; it ended with %s", s.how())
	}
	begun, err := t.run(ctx, task{model: answer, launch: func(l *agent.Launch) { l.Job.Agent.Interactive, l.Mode = true, plan }})
	switch {
	case err != nil:
		return err
	case len(begun.requests) == 0 || !plans(begun.requests[0]):
		return fmt.Errorf("begun to plan, it did not tell its model of a plan mode; it ended with %s", begun.how())
	}
	return errors.Join(s.ended(), begun.ended())
}

const plan = "plan"

func plans(r agenttest.Request) bool {
	return strings.Contains(strings.ToLower(r.System+r.First+r.Last), "plan mode")
}
