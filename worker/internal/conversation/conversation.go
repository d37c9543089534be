// Package conversation keeps what outlives an agent's process of its conversation:
// what it was told and has heard, what was asked and answered, and the capsules from which a later
// attempt goes on.
//
//	the session's log ──Read──▶ prompts, questions ─┐
//	the store ──Find──▶ capsule ──Resume────────────┴▶ Launch, Rest, Recall ──▶ the agent
//	the agent ──Tells, Note──▶ Position ──Store──▶ capsule ──▶ the store
//
// It starts no agent. One that cannot go on with its conversation begins anew, unless the job
// is bound to it.
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

// Config says whose conversation it is, and where it is kept.
type Config struct {
	Store  *artifact.Store
	Log    *slog.Logger
	Job    jobs.Job
	Record jobs.Record // as the claim left it
	Epoch  uint64
	Worker string
	// Lost: the attempt before has lost its lease.
	Lost bool
	// Secrets removes what must not leave the worker.
	Secrets *redact.Redactor
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
	// Assert proves that the attempt still has its lease.
	Assert func(context.Context) (time.Time, error)
}

// A Conversation is that of one attempt's agent, over all of its runs.
type Conversation struct {
	// Prompts and Questions are what people and the agent have said.
	Prompts   *Prompts
	Questions *Questions

	cfg      Config
	home     string          // that is kept; empty: there is none
	files    capsule.Pattern // of the conversation; empty: they are not known
	begun    *jobs.Capsule   // that the attempt goes on with; nil: it began anew
	last     jobs.Capsule    // that the attempt has stored
	complain bool            // the session was told that there is no capsule
	turns    int             // of agents that have ended
}

// New returns the conversation of an attempt whose agent has not begun.
func New(cfg Config) *Conversation {
	return &Conversation{
		cfg: cfg, Prompts: &Prompts{cfg: cfg},
		Questions: &Questions{cfg: cfg, past: dialog.Past{Job: cfg.Record.ID}},
	}
}

// Read reads what was said in earlier attempts, and closes the questions that they have left
// open.
func (c *Conversation) Read(ctx context.Context, log *session.Log) error {
	if c.cfg.Record.Attempt < 2 {
		return nil
	}
	prompts, err := c.Questions.read(ctx, log)
	c.Prompts.said = prompts
	return err
}

// A Position is how far a conversation has come.
type Position struct {
	Conversation string // what the agent calls it
	Turn         int
	Open         bool // the turn goes on
	Heard        []string
	Asks         []string  // that are open
	Since        time.Time // of the last sign of life, where the session is to be parked
}

// Continues reports whether the conversation of such an agent can be kept at all.
func (c *Conversation) Continues() bool { return c.files != "" }

// Kept reports whether the next attempt can go on with the conversation.
func (c *Conversation) Kept() bool { return c.home != "" && c.files != "" }

// Begun returns how far the conversation had come that the attempt goes on with.
func (c *Conversation) Begun() Position {
	if c.begun == nil {
		return Position{}
	}
	return Position{Conversation: c.begun.Conversation, Turn: c.begun.Turn, Open: c.begun.Open, Heard: c.begun.Heard}
}

// Turns counts those of the agent's runs that are over.
func (c *Conversation) Turns() int { return c.turns }

// EndRun adds the turns of a run that is over.
func (c *Conversation) EndRun(turns int) { c.turns += turns }

func (c *Conversation) talk(id string) capsule.Conversation {
	return capsule.Conversation{Home: c.home, Files: c.files, ID: id}
}

// clean removes the values of secrets from what is not an event.
func (c *Conversation) clean(text string) string { return string(c.cfg.Secrets.Text([]byte(text))) }
