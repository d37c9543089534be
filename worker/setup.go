package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// setup brings into the workspace what the job's setup commands write. Where
// another job of this host had the same done, it takes that over.
func (a *attempt) setup(ctx context.Context, in jail) error {
	if len(a.job.Setup) == 0 {
		return nil
	}
	began := time.Now()
	key, why, err := a.setupKey(in)
	if err != nil {
		return err
	}
	var ran error
	took, reused, err := in.space.Setup(ctx, key, func(ctx context.Context, space *workspace.Workspace) error {
		there := in
		there.space = space
		ran = a.commands(ctx, there, jobs.SetupFailed, a.job.Setup)
		return ran
	})
	switch {
	case ran != nil:
		return err
	case err != nil:
		return verdict.Failed(jobs.WorkspaceFailed, "share what setup wrote", err)
	}
	spent := time.Since(began)
	data := event.SetupEnded{Cached: reused, Seconds: spent.Seconds(), Reason: why}
	if reused {
		data.Saved = max(0, took-spent).Seconds()
		a.result.Durations.Check += data.Seconds
		for _, command := range a.job.Setup {
			a.result.Checks = append(a.result.Checks, jobs.Check{Command: command, Cached: true})
		}
	}
	a.events.put(event.Make(data))
	return nil
}

// setupKey names all that setup depends on besides the commit, as this host
// knows it: the commands, and the jail that they run in. It is "" where what
// they write is for this job alone, and then says why.
func (a *attempt) setupKey(in jail) (key, why string, err error) {
	s, err := a.around(in)
	if err != nil {
		return "", "", err
	}
	switch {
	case a.cfg.SetupCache == 0:
		return "", "the worker's setting setup_cache is 0", nil
	case a.job.FreshSetup:
		return "", "the job has fresh_setup", nil
	case in.space.Strategy() != workspace.Overlay:
		return "", "the workspace is no overlay", nil
	case in.space.Unsaved():
		return "", "the workspace begins from a salvage", nil
	case len(a.job.Secrets) > 0:
		return "", "the job has secrets, which could be in what setup writes", nil
	case slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Writable }):
		return "", "the worker's policy lets it write elsewhere, too", nil
	}
	s.Args, s.Label = nil, "" // of this attempt
	depends := struct {
		Version, Backend     string
		Setup, Hosts, Weaker []string
		Jail                 sandbox.Spec
		Limits               jobs.Limits // those of the network are in no jail
		Period               int64
	}{
		"1", in.backend.Name(), a.job.Setup, slices.Compact(slices.Sorted(slices.Values(a.net.hosts))), a.job.Sandbox.AllowWeaker, s, a.job.Sandbox.Limits,
		time.Now().UnixNano() / int64(a.cfg.SetupCache),
	}
	data, err := json.Marshal(depends)
	if err != nil {
		return "", "", verdict.Failed(jobs.WorkspaceFailed, "name what setup depends on", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), "", nil
}
