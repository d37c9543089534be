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

// Prompts are what the agent was told besides the job's own prompt, and what of it the
// conversation has. Their methods may be called from any goroutine.
type Prompts struct {
	cfg  Config
	said []control.Input // in earlier attempts

	mu     sync.Mutex
	told   map[string]bool          // of said and of this attempt, by id
	heard  []string                 // the part of it that the conversation has; the oldest first
	within []string                 // the part of it that the agent's first prompt has
	retold map[string]images.Prompt // of said, what the agent has not heard
}

// maxHeard bounds what is remembered of the prompts that an agent has heard.
const maxHeard = 1024

// Tells notes that the agent is told something.
func (p *Prompts) Tells(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tells(id)
}

func (p *Prompts) tells(id string) {
	if p.told == nil {
		p.told = map[string]bool{}
	}
	p.told[id] = true
}

// Note notes which prompts the conversation has, by what the agent says.
func (p *Prompts) Note(events []event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.TurnStarted:
			for _, id := range p.within {
				p.hears(id)
			}
		case event.InputState:
			if d.State == "taken" {
				p.hears(d.Input)
			}
		}
	}
}

// hears notes that the agent has taken up what it was told.
func (p *Prompts) hears(id string) {
	if p.told[id] {
		delete(p.told, id)
		p.heard = append(p.heard, id)
		p.heard = p.heard[max(0, len(p.heard)-maxHeard):]
	}
}

// Heard returns the prompts that the conversation has.
func (p *Prompts) Heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.heard)
}

// unheard are the prompts that earlier attempts, or who brought the job back,
// have accepted, and that the conversation does not have.
func (p *Prompts) unheard() []control.Input {
	return slices.DeleteFunc(slices.Clone(p.said), func(in control.Input) bool { return slices.Contains(p.heard, in.Input) })
}

// Rest returns what else the conversation has not heard, besides what its first prompt
// has; the agent is told it now.
func (p *Prompts) Rest() (rest []images.Prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.unheard() {
		if slices.Contains(p.within, in.Input) {
			continue
		}
		p.tells(in.Input)
		told := p.retold[in.Input]
		told.ID = in.Input
		rest = append(rest, told)
	}
	return rest
}

// Load reads back the prompts that the agent has to be told again, with their
// images. The session is told of images that are missing, and so is the agent.
func (p *Prompts) Load(ctx context.Context) error {
	loaded, err := images.Store{Artifacts: p.cfg.Store, Job: p.cfg.Record.ID}.Load(ctx, p.unheard())
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the images of a prompt", err)
	}
	p.retold = map[string]images.Prompt{}
	for _, prompt := range loaded {
		p.retold[prompt.ID] = prompt
		if prompt.Missing > 0 {
			p.cfg.Tell(event.Make(event.Notice{Text: fmt.Sprintf("the agent gets message %s again without %d of its images, %s", prompt.ID, prompt.Missing, prompt.Why)}))
		}
	}
	return nil
}

// first returns what the conversation has not heard and the agent is told in its first
// prompt: so many prompts at most.
func (p *Prompts) first(most int) (first []images.Prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within = nil
	unheard := p.unheard()
	for _, in := range unheard[:min(most, len(unheard))] {
		told := p.retold[in.Input]
		told.ID = in.Input
		first, p.within = append(first, told), append(p.within, in.Input)
		p.tells(in.Input)
	}
	return first
}

// begin sets what the conversation has heard by now.
func (p *Prompts) begin(heard []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = heard
}
