package conversation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/images"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Prompts are the prompts that the agent was sent besides the job's own, those of them
// that the conversation has, and what people set besides. Their methods may be called from any goroutine.
type Prompts struct {
	cfg  *Config
	said []control.Input // in earlier attempts

	mu       sync.Mutex
	sent     map[string]bool          // of said and of this attempt, by id; not taken up yet
	taken    []string                 // prompts that the conversation has; the oldest first
	within   []string                 // prompts in the agent's first prompt
	reloaded map[string]images.Prompt // missing prompts of said, with their images
	// model and mode are what the agent was set to.
	settings control.Settings
}

// maxTaken bounds the list of prompts that an agent has taken up.
const maxTaken = 1024

// Tells records that a prompt is sent to the agent.
func (p *Prompts) Tells(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.markSent(id)
}

func (p *Prompts) markSent(id string) {
	if p.sent == nil {
		p.sent = map[string]bool{}
	}
	p.sent[id] = true
}

// Note records which prompts the conversation has, by the agent's events.
func (p *Prompts) Note(events []event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.TurnStarted:
			for _, id := range p.within {
				p.markTaken(id)
			}
		case event.InputState:
			if d.State == "taken" {
				p.markTaken(d.Input)
			}
		}
	}
}

// markTaken records that the agent has taken up a prompt.
func (p *Prompts) markTaken(id string) {
	if p.sent[id] {
		delete(p.sent, id)
		p.taken = append(p.taken, id)
		p.taken = p.taken[max(0, len(p.taken)-maxTaken):]
	}
}

// Change notes what a person has set the agent to: its next process begins so.
func (p *Prompts) Change(to control.Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = p.settings.Then(to)
}

// Settings are what the agent was set to; empty: it was not.
func (p *Prompts) Settings() control.Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// Heard returns the prompts that the conversation has.
func (p *Prompts) Heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

// missing are the prompts that earlier attempts, or the dispatcher that resumed the
// job, have accepted, and that the conversation does not have.
func (p *Prompts) missing() []control.Input {
	return slices.DeleteFunc(slices.Clone(p.said), func(in control.Input) bool { return slices.Contains(p.taken, in.Input) })
}

// Rest returns the other missing prompts besides those in the first prompt; they are
// sent to the agent now.
func (p *Prompts) Rest() (rest []images.Prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.missing() {
		if slices.Contains(p.within, in.Input) {
			continue
		}
		p.markSent(in.Input)
		prompt := p.reloaded[in.Input]
		prompt.ID = in.Input
		rest = append(rest, prompt)
	}
	return rest
}

// lastTaken is the text of the last prompt of earlier attempts that the conversation has.
func (p *Prompts) lastTaken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range slices.Backward(p.said) {
		if slices.Contains(p.taken, in.Input) {
			return in.Text
		}
	}
	return ""
}

// Load reads back the prompts that are repeated to the agent, with their images. It
// reports missing images to the session, and so does the prompt to the agent.
func (p *Prompts) Load(ctx context.Context) error {
	loaded, err := images.Store{Artifacts: p.cfg.Store, Job: p.cfg.Record.ID}.Load(ctx, p.missing())
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the images of a prompt", err)
	}
	p.reloaded = map[string]images.Prompt{}
	for _, prompt := range loaded {
		p.reloaded[prompt.ID] = prompt
		if prompt.Missing > 0 {
			p.cfg.Tell(event.Make(event.Notice{Text: fmt.Sprintf("the agent gets message %s again without %d of its images, %s", prompt.ID, prompt.Missing, prompt.Why)}))
		}
	}
	return nil
}

// first returns at most so many missing prompts, for the agent's first prompt.
func (p *Prompts) first(most int) (first []images.Prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within = nil
	missing := p.missing()
	for _, in := range missing[:min(most, len(missing))] {
		prompt := p.reloaded[in.Input]
		prompt.ID = in.Input
		first, p.within = append(first, prompt), append(p.within, in.Input)
		p.markSent(in.Input)
	}
	return first
}

// begin sets the prompts that the conversation has at the beginning.
func (p *Prompts) begin(taken []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = taken
}
