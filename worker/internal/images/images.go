// Package images stores the images of prompts as artifacts of the attempt that accepts
// a prompt, because an event has no room for them. Later attempts read them when they
// repeat the prompt to their agents.
//
//	message ──Put──▶ artifacts, named by the event that accepts it ──Load──▶ the next attempt's agent
//
// An image that cannot be read back, or that exceeds the limit, is counted and never
// omitted silently.
package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
)

// maxLoaded bounds the images that an attempt holds in memory to repeat prompts to its
// agent.
const maxLoaded = 16 << 20

// A Store keeps the images of one job.
type Store struct {
	Artifacts *artifact.Store
	Job       string
}

// Put stores images as artifacts of the attempt with that epoch, and returns their
// names and hashes.
func (s Store) Put(ctx context.Context, epoch uint64, images []control.Image) ([]control.StoredImage, error) {
	var stored []control.StoredImage
	for _, i := range images {
		at := i.Stored(epoch)
		if _, err := s.Artifacts.Put(ctx, s.Job, epoch, at.Artifact, bytes.NewReader(i.Data)); err != nil {
			return nil, err
		}
		stored = append(stored, at)
	}
	return stored, nil
}

// A Prompt is a prompt that is repeated to an agent.
type Prompt struct {
	ID      string
	Text    string // lists what is missing
	Images  []control.Image
	Missing int    // images that are left out
	Why     string // they are
}

// Load reads back the images of prompts. If there are too many, it takes those of the
// newest prompts. Another try may succeed after an error, which comes from the store.
func (s Store) Load(ctx context.Context, prompts []control.Input) ([]Prompt, error) {
	loaded := make([]Prompt, len(prompts))
	room := int64(maxLoaded)
	for n, in := range slices.Backward(prompts) {
		p := Prompt{ID: in.Input, Why: "which are not kept any more"}
		for _, at := range in.Images {
			if at.Bytes > room {
				p.Why = "because newer messages have as many as can be shown again"
				continue
			}
			data, err := s.get(ctx, at)
			if errors.Is(err, jobs.ErrUnavailable) || ctx.Err() != nil {
				return nil, err
			}
			if err == nil {
				p.Images, room = append(p.Images, control.Image{Type: at.Type, Data: data}), room-at.Bytes
			}
		}
		p.Missing = len(in.Images) - len(p.Images)
		p.Text = control.WithoutImages(in.Text, p.Missing, p.Why)
		loaded[n] = p
	}
	return loaded, nil
}

// get reads an image back, and verifies its hash.
func (s Store) get(ctx context.Context, at control.StoredImage) (data []byte, err error) {
	content, err := s.Artifacts.Get(ctx, s.Job, at.Epoch, at.Artifact)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	data, err = io.ReadAll(io.LimitReader(content, control.MaxImageBytes+1))
	if err != nil {
		return nil, err
	}
	if is := (control.Image{Type: at.Type, Data: data}).Stored(at.Epoch); is != at {
		return nil, fmt.Errorf("artifact %s is not what was stored", at.Artifact)
	}
	return data, nil
}
