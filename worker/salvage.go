package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// The names of what is saved of an attempt that has no result. They are not
// those of a result: nobody may take the one for the other.
const (
	salvagePatch  = "salvage.patch"
	salvageBundle = "salvage.bundle"
)

// salvageLimit bounds the salvage at the end of an attempt, which holds a slot
// meanwhile. What takes longer is left to a sweep, which has as long as collecting
// a result may take.
const salvageLimit = time.Minute

// vacate ends the attempt's hold on its workspace, which goes if what is in it
// is stored, and stays if not.
func (a *attempt) vacate(ctx context.Context, space *workspace.Workspace, v jobs.Ended) error {
	var err error
	if v.Outcome != jobs.Success || space.Unsaved() {
		err = a.salvage(ctx, space, v.Reason)
	}
	if a.parked == nil { // its capsule is of before it was told to end
		a.seal(ctx, space, v)
	}
	if a.stored != nil || space.Reused() {
		space.Keep()
	}
	return errors.Join(err, space.Close())
}

// salvage saves what the attempt did. What is stored already, as the result of
// an attempt that failed, is only noted.
func (a *attempt) salvage(ctx context.Context, space *workspace.Workspace, why jobs.Reason) error {
	if a.stored == nil && !space.Unsaved() {
		return nil // nothing was changed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), salvageLimit)
	defer cancel()
	s := a.salvaged(why)
	var err error
	if a.stored != nil && !space.Unsaved() {
		s = a.stored.of(s)
		err = a.cfg.Store.PutSalvage(ctx, s)
	} else {
		s, err = rescue(ctx, a.cfg.Store, space, s)
	}
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	if a.saved = &s; s.Patch == nil {
		return nil // there was nothing in it
	}
	a.log.Info("salvaged", "why", why, "bytes", s.Bytes)
	a.events.put(event.Make(event.SalvageStored(s)))
	return nil
}

// salvaged is a salvage of this attempt that nothing is stored of yet.
func (a *attempt) salvaged(why jobs.Reason) jobs.Salvage {
	return jobs.Salvage{Job: a.rec.ID, Epoch: a.claim.Epoch(), Why: why, Worker: a.cfg.Name}
}

// Salvage returns what a sweep does with the workspaces of workers that died:
// it stores their work, under the attempt's own epoch, and tells the session.
// Of cfg it needs the queue, the log, the store, and the name of who does it.
func Salvage(cfg Config) func(context.Context, *workspace.Workspace) error {
	return func(ctx context.Context, space *workspace.Workspace) error {
		ctx, cancel := context.WithTimeout(ctx, collectLimit)
		defer cancel()
		job, epoch, err := attemptOf(space.ID())
		if err != nil {
			return err
		}
		s, err := rescue(ctx, cfg.Store, space, jobs.Salvage{Job: job, Epoch: epoch, Why: jobs.WorkerLost, Worker: cfg.Name})
		if err != nil || s.Patch == nil {
			return err
		}
		return tell(ctx, cfg, s)
	}
}

// attemptOf reads the name of an attempt.
func attemptOf(name string) (job string, epoch uint64, err error) {
	job, at, _ := strings.Cut(name, ".")
	if epoch, err = strconv.ParseUint(at, 10, 64); err != nil {
		err = fmt.Errorf("workspace %s is not of an attempt: %w", name, err)
	}
	return job, epoch, err
}

// tell appends a sweep's salvage to the session. The job may have gone on
// elsewhere meanwhile, which is not disturbed by it.
func tell(ctx context.Context, cfg Config, s jobs.Salvage) error {
	rec, err := cfg.Queue.Get(ctx, s.Job)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil // it was kept for less time than its workspace
	}
	if err != nil {
		return err
	}
	_, err = cfg.Log.Append(ctx, session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent}, event.New(event.SalvageStored(s)))
	return err
}

// Stored returns what a sweep asks before it removes a worktree with changes of
// an attempt: whether the store still has them.
func Stored(store *artifact.Store) func(context.Context, string, workspace.Receipt) (bool, error) {
	return func(ctx context.Context, attempt string, r workspace.Receipt) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, salvageLimit)
		defer cancel()
		job, epoch, err := attemptOf(attempt)
		if err != nil {
			return false, err
		}
		for name, sum := range map[string]string{PatchName: r.Patch, BundleName: r.Bundle} {
			if sum == "" {
				continue
			}
			got, err := store.Check(ctx, job, epoch, name)
			if errors.Is(err, jobs.ErrNotFound) || err == nil && got.SHA256 != sum {
				return false, nil
			}
			if err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

// rescue stores what is in a workspace and reads it back. A salvage without a
// patch says that nothing was changed.
func rescue(ctx context.Context, store *artifact.Store, space *workspace.Workspace, s jobs.Salvage) (jobs.Salvage, error) {
	change, err := space.Collect(ctx)
	if err != nil {
		return s, err
	}
	keep := func() error { return nil }
	if change.Over != nil {
		whole := space.Whole(ctx, change.Over)
		change.Notes = append(change.Notes, tooLarge(s.Worker, whole))
		keep = func() error { return space.KeepWhole(whole) }
	}
	if change.Empty() {
		return s, keep()
	}
	at := place{store: store, job: s.Job, epoch: s.Epoch}
	k := stored{base: space.Base(), change: change}
	if err := at.keepAll(ctx, &k, salvagePatch, salvageBundle); err != nil {
		return s, err
	}
	s = k.of(s)
	// Before the workspace may go: files that nothing tells of are lost, too.
	if err := store.PutSalvage(ctx, s); err != nil {
		return s, err
	}
	if err := space.Saved(k.receipt()); err != nil {
		return s, err
	}
	return s, keep()
}

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

// A place is where an attempt's files are stored. Its epoch is the attempt's
// own: one that lost its lease reaches nothing of those after it.
type place struct {
	store *artifact.Store
	job   string
	epoch uint64
	// sent: the names are the agent's, and lead to what its programs have sent.
	sent bool
}

// keepAll stores the files of a change under these names. After an error k
// has what was stored before it.
func (p place) keepAll(ctx context.Context, k *stored, patch, bundle string) (err error) {
	if k.change.Patch != "" {
		k.patch, err = p.keep(ctx, patch, k.change.Patch)
	}
	if err == nil && k.change.Bundle != "" {
		k.bundle, err = p.keep(ctx, bundle, k.change.Bundle)
	}
	return err
}

// keep stores one file of the host and reads it back.
func (p place) keep(ctx context.Context, name, path string) (*jobs.Artifact, error) {
	content, err := os.Open(path)
	if err != nil {
		return nil, verdict.Failed(jobs.WorkspaceFailed, "read "+name, err)
	}
	defer content.Close()
	return p.put(ctx, name, content)
}

// put stores what content has and reads it back.
func (p place) put(ctx context.Context, name string, content io.Reader) (*jobs.Artifact, error) {
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
