package outcome

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// stored is a change, and those of its files that are stored and were read back.
type stored struct {
	base          string
	change        workspace.Change
	patch, bundle *jobs.Artifact
}

func (k *stored) files() []*jobs.Artifact {
	return slices.DeleteFunc([]*jobs.Artifact{k.patch, k.bundle}, func(a *jobs.Artifact) bool { return a == nil })
}

func (k *stored) of(s jobs.Salvage) jobs.Salvage {
	s.BaseCommit, s.Commits, s.Files = k.base, k.change.Commits, k.change.Files
	s.Patch, s.Bundle, s.Skipped, s.Notes = k.patch, k.bundle, k.change.Skipped, k.change.Notes
	s.Stored = time.Now().UTC()
	for _, a := range k.files() {
		s.Bytes += a.Bytes
	}
	return s
}

func (k *stored) receipt() workspace.Receipt {
	var r workspace.Receipt
	if k.patch != nil {
		r.Patch = k.patch.SHA256
	}
	if k.bundle != nil {
		r.Bundle = k.bundle.SHA256
	}
	return r
}

// A destination is the place of an attempt's files in the store. Its epoch is the
// attempt's own: an attempt that has lost its lease cannot write to a later one's.
type destination struct {
	store *artifact.Store
	job   string
	epoch uint64
	// sent: the names are the agent's, and mean files that its programs have sent.
	sent bool
}

// destination returns that of the attempt's own files.
func (o *Outcome) destination() destination {
	return destination{store: o.cfg.Store, job: o.cfg.Record.ID, epoch: o.cfg.Epoch}
}

// keepAll stores the files of a change under these names. After an error k has the
// files that were stored before it.
func (p destination) keepAll(ctx context.Context, k *stored, patch, bundle string) (err error) {
	if k.change.Patch != "" {
		k.patch, err = p.keep(ctx, patch, k.change.Patch)
	}
	if err == nil && k.change.Bundle != "" {
		k.bundle, err = p.keep(ctx, bundle, k.change.Bundle)
	}
	return err
}

// keep stores one file of the host and reads it back.
func (p destination) keep(ctx context.Context, name, path string) (*jobs.Artifact, error) {
	content, err := os.Open(path)
	if err != nil {
		return nil, verdict.Failed(jobs.WorkspaceFailed, "read "+name, err)
	}
	defer content.Close()
	return p.put(ctx, name, content)
}

// put stores content and reads it back.
func (p destination) put(ctx context.Context, name string, content io.Reader) (*jobs.Artifact, error) {
	write := p.store.Put
	if p.sent {
		write = p.store.PutSent
	}
	put, err := write(ctx, p.job, p.epoch, name, content)
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "store "+name, err)
	}
	back, err := p.store.Check(ctx, p.job, p.epoch, put.Name)
	if err == nil && back != put {
		err = fmt.Errorf("%d bytes were stored, %d came back, and not the same", put.Bytes, back.Bytes)
	}
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "read "+name+" back", err)
	}
	return &put, nil
}

// Send stores a file that a program of the agent's jail sends, under a name of the
// agent's own.
func (o *Outcome) Send(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error) {
	at := o.destination()
	at.sent = true
	return o.keep(ctx, at, name, content)
}

// Keep stores a file under a name that no agent can choose.
func (o *Outcome) Keep(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error) {
	return o.keep(ctx, o.destination(), name, content)
}

func (o *Outcome) keep(ctx context.Context, at destination, name string, content io.Reader) (jobs.Artifact, error) {
	file, _, err := o.keepClean(ctx, at, name, content)
	if err != nil {
		return jobs.Artifact{}, err
	}
	return *file, nil
}
