package contract

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/capsule"
)

// continuations are the checks of conversations that outlive their process.
var continuations = []check{
	{"", "capsule", "with the files of its conversation alone, another home goes on with it", func(a agent.About) bool { return a.Conversation.Known() }, elsewhere},
	{"", "resume", "after kill -9 within a turn a new process goes on with the conversation", func(a agent.About) bool { return a.Resume }, resume},
	{"", "resume_asking", "after kill -9 while it asks for a permission, too", func(a agent.About) bool { return a.Resume && mayAsk(a) }, resumeAsking},
	{"", "lost_conversation", "a conversation that is not there is a failure, or is said to be begun anew", func(a agent.About) bool { return a.Resume }, lost},
}

// conversation is the id of a conversation of one turn in the home of t.
func (t *trial) conversation(ctx context.Context) (string, error) {
	if err := needsModel(t); err != nil {
		return "", err
	}
	s, err := t.once(ctx)
	if err != nil {
		return "", err
	}
	if s.Total.Session == "" {
		return "", fmt.Errorf("it reported no id of its conversation")
	}
	return s.Total.Session, nil
}

// goOn is a later attempt, which continues a conversation.
func goOn(id string, attempt int, word string) func(*agent.Launch) {
	return func(l *agent.Launch) { l.Resume, l.Attempt, l.Prompt = id, attempt, prompt(word) }
}

// resumeAsking kills an agent that asks for a permission.
func resumeAsking(ctx context.Context, t *trial) error {
	id, err := t.conversation(ctx)
	if err != nil {
		return err
	}
	c := &harness.Conversation{Home: t.home}
	asked := false
	c.OnEvent = func(e event.Event) [][]byte {
		if e.Kind == jobs.AskOpened {
			asked = true
			c.Kill()
		}
		return nil
	}
	killed, err := t.run(ctx, task{with: c, asks: true, launch: func(l *agent.Launch) {
		goOn(id, 2, nextWord)(l)
		t.asking(l)
	}, model: func(r agenttest.Request) agenttest.Reply { return shell(r, guarded) }})
	switch {
	case err != nil:
		return err
	case !asked && t.about.Protocol == "acp":
		return untried("it asked for no permission")
	case !asked:
		return fmt.Errorf("in mode %s it asked for no permission", asking[t.about.Protocol])
	case killed.End.Outcome == jobs.Success:
		return fmt.Errorf("a run that was killed ended with success")
	}
	return t.goesOn(ctx, id, t.home)
}

func resume(ctx context.Context, t *trial) error {
	id, err := t.conversation(ctx)
	if err != nil {
		return err
	}
	c := &harness.Conversation{Home: t.home}
	killed, err := t.run(ctx, task{launch: goOn(id, 2, nextWord), with: c, model: func(r agenttest.Request) agenttest.Reply {
		if strings.Contains(r.Last, nextWord) {
			c.Abort()
		}
		return agenttest.Reply{Hang: true}
	}})
	switch {
	case err != nil:
		return err
	case killed.End.Reason == jobs.AgentProtocol && t.about.Protocol == "acp":
		return &cannotError{killed.End.Message}
	case killed.asked(nextWord) == nil:
		return fmt.Errorf("the second process did not ask the model: %w", killed.ended())
	case killed.End.Outcome == jobs.Success:
		return fmt.Errorf("a run that was killed ended with success")
	}
	return t.goesOn(ctx, id, t.home)
}

// goesOn is an error unless a new process continues the conversation in a home.
func (t *trial) goesOn(ctx context.Context, id, home string) error {
	s, err := t.run(ctx, task{launch: goOn(id, 3, lastWord), model: answer, with: &harness.Conversation{Home: home}})
	if err != nil {
		return err
	}
	if err := s.ended(); err != nil {
		return err
	}
	return s.remembers(lastWord)
}

func elsewhere(ctx context.Context, t *trial) error {
	id, err := t.conversation(ctx)
	if err != nil {
		return err
	}
	other, err := os.MkdirTemp(t.dir, "home-")
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	files := t.about.Conversation
	if err := (capsule.Conversation{Home: t.home, Files: files, ID: id}).Pack(&packed, asIs{}); err != nil {
		return fmt.Errorf("pack the files %v: %w", files.Paths, err)
	}
	if err := (capsule.Conversation{Home: other, Files: files, ID: id}).Unpack(&packed); err != nil {
		return fmt.Errorf("unpack the files %v: %w", files.Paths, err)
	}
	return t.goesOn(ctx, id, other)
}

// asIs leaves a conversation as it is: there is no secret in it.
type asIs struct{}

// Line implements [capsule.Cleaner].
func (asIs) Line(line []byte) []byte { return line }

// Mask implements [capsule.Cleaner].
func (asIs) Mask(value []byte) []byte { return value }

func lost(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	s, err := t.run(ctx, task{launch: goOn(jobs.NewID(), 2, nextWord), model: answer})
	if err != nil {
		return err
	}
	if s.ended() == nil && s.Count(jobs.SessionContinued) == 0 {
		return fmt.Errorf("it answered as if there had been a conversation")
	}
	return nil
}
