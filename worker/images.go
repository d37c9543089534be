package worker

import (
	"context"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/images"
)

// storeImages stores the images of a prompt, if the agent takes them now, and says
// where they are. It comes before the agent's decoder learns of the prompt, because
// that cannot be undone.
func (b *inbox) storeImages(ctx context.Context, run *agentrun.Run, c control.Message) ([]control.StoredImage, error) {
	if len(c.Images) == 0 {
		return nil, nil
	}
	if err := run.Takes(c); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agentrun.AcceptLimit)
	defer cancel()
	stored, err := images.Store{Artifacts: b.of.store, Job: b.of.rec.ID}.Put(ctx, b.of.claim.Epoch(), c.Images)
	if err != nil {
		return nil, control.Refuse(control.Lost, "its images could not be stored, so the agent did not get the prompt: %v", err)
	}
	return stored, nil
}
