// Package conversation keeps the parts of a conversation that outlive the agent's
// process: the prompts that it was sent and has taken up, questions and answers, and
// the capsules from which a later attempt continues.
//
//	the session's log ──Read──▶ prompts, questions ─┐
//	the store ──Find──▶ capsule ──Resume────────────┴▶ Launch, Rest, Recall ──▶ the agent
//	the agent ──Tells, Note──▶ Position ──Store──▶ capsule ──▶ the store
//
// It starts no agent. An agent that cannot continue its conversation begins anew,
// unless the job is bound to the conversation.
package conversation

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// Config names the conversation, and its stores.
type Config struct {
	Store  *artifact.Store
	Log    *slog.Logger
	Job    jobs.Job
	Record jobs.Record // as the claim left it
	Epoch  uint64
	Worker string
	// Lost: the previous attempt has lost its lease.
	Lost bool
	// Secrets removes the values that must not leave the worker.
	Secrets *redact.Redactor
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
	// Assert proves that the attempt still has its lease.
	Assert func(context.Context) (time.Time, error)
	// Progressed is called when a prompt is answered, and stored, that no earlier attempt
	// has answered.
	Progressed func()
}

// A Conversation is the conversation of one attempt's agent, over all of its runs.
type Conversation struct {
	// Prompts and Questions are the messages between people and the agent.
	Prompts   *Prompts
	Questions *Questions

	cfg       *Config
	home      string        // the conversation's id; empty: it is not kept
	files     capsule.Files // of the conversation
	described bool          // by settings
	begun     *jobs.Capsule // the capsule from which the attempt continues; nil: it began anew
	last      jobs.Capsule  // that the attempt has stored
	complain  bool          // the session was told why there is no capsule
	turns     int           // of agents that have ended
}

// New returns the conversation of an attempt whose agent has not started.
func New(cfg Config) *Conversation {
	return &Conversation{
		cfg: &cfg, Prompts: &Prompts{cfg: &cfg},
		Questions: &Questions{cfg: &cfg, past: dialog.Past{Job: cfg.Record.ID}},
	}
}

// Read reads the messages of earlier attempts, and closes the questions that they have
// left open.
func (c *Conversation) Read(ctx context.Context, log *session.Log) error {
	if c.cfg.Record.Attempt < 2 {
		return nil
	}
	prompts, err := c.Questions.read(ctx, log)
	c.Prompts.said = prompts
	c.Prompts.Change(c.Questions.past.Settings)
	return err
}

// A Position is the progress of a conversation.
type Position struct {
	Conversation string // the agent's id of it
	Turn         int
	Open         bool // the turn is not over
	Heard        []string
	Asks         []string  // that are open
	Since        time.Time // of the last sign of life, if the session is to be parked
}

// Continues reports whether the agent's conversations can be kept at all.
func (c *Conversation) Continues() bool { return c.files.Known() }

// Kept reports whether the next attempt can continue the conversation.
func (c *Conversation) Kept() bool { return c.home != "" && c.files.Known() }

// Begun returns the position from which the attempt continues the conversation.
func (c *Conversation) Begun() Position {
	if c.begun == nil {
		return Position{}
	}
	return Position{Conversation: c.begun.Conversation, Turn: c.begun.Turn, Open: c.begun.Open, Heard: c.begun.Heard}
}

// Turns counts the turns of the agent's finished runs.
func (c *Conversation) Turns() int { return c.turns }

// EndRun adds the turns of a finished run.
func (c *Conversation) EndRun(turns int) { c.turns += turns }

func (c *Conversation) talk(id string) capsule.Conversation {
	return capsule.Conversation{Home: c.home, Files: c.files, ID: id}
}

// clean removes the values of secrets from text that is not an event.
func (c *Conversation) clean(text string) string { return string(c.cfg.Secrets.Text([]byte(text))) }
