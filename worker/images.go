package worker

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/images"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// storeImages stores the images of a prompt, if the agent takes them now, and says
// where they are. It comes before the agent's decoder learns of the prompt, because
// that cannot be undone.
func (a *attempt) storeImages(ctx context.Context, run *agentRun, c control.Message) ([]control.StoredImage, error) {
	if len(c.Images) == 0 {
		return nil, nil
	}
	if err := refusesImages(run, c); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	stored, err := images.Store{Artifacts: a.cfg.Store, Job: a.rec.ID}.Put(ctx, a.claim.Epoch(), c.Images)
	if err != nil {
		return nil, control.Refuse(control.Lost, "its images could not be stored, so the agent was not told: %v", err)
	}
	return stored, nil
}

func refusesImages(run *agentRun, c control.Message) error {
	run.mu.Lock()
	defer run.mu.Unlock()
	_, err := run.listener(c)
	return err
}

// loadPrompts reads back the prompts that the agent has to be told again, with their
// images. The session is told of images that are missing, and so is the agent.
func (a *attempt) loadPrompts(ctx context.Context) error {
	if a.talk.round > 0 { // an agent that goes on with a check is told nothing again
		return nil
	}
	loaded, err := images.Store{Artifacts: a.cfg.Store, Job: a.rec.ID}.Load(ctx, a.unheard())
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "read the images of a prompt", err)
	}
	a.retold = map[string]images.Prompt{}
	for _, p := range loaded {
		a.retold[p.ID] = p
		if p.Missing > 0 {
			a.events.put(event.Make(event.Notice{Text: fmt.Sprintf("the agent is told message %s again without %d of its images, %s", p.ID, p.Missing, p.Why)}))
		}
	}
	return nil
}
