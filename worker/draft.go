package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/workspace"
)

const (
	draftLimit = 5 * time.Minute // of the agent that writes it
	draftDiff  = 256 << 10       // of the patch, that the agent is shown
)

// draft has the agent write about its change, where the job wants that. Nothing
// depends on it: where it fails, the job's title stands for it. Only what ends
// the attempt is an error.
func (r *agentRuns) draft(ctx context.Context, change workspace.Change) error {
	if !r.plan.Job.Deliver.DraftText || change.PatchSize == 0 {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, draftLimit, fmt.Errorf("it took longer than %v", draftLimit))
	defer cancel()
	said, err := r.describe(limited, change)
	r.count()
	found := outcome.ReadDraft(r.of.clean(said))
	if err == nil && found.Title == "" {
		err = errors.New("the agent wrote nothing")
	}
	if err == nil {
		err = r.of.out.KeepDraft(limited, found)
	}
	if over := context.Cause(ctx); over != nil {
		return over
	}
	if err != nil {
		r.of.events.Put(event.Make(event.Notice{Text: r.of.clean("no text was drafted, so the job's title stands for it: " + err.Error())}))
		return nil
	}
	return nil
}

// describe runs the agent once more, in a jail with nothing in it but the
// change, and returns what it said. The budget is that of the job.
func (r *agentRuns) describe(ctx context.Context, change workspace.Change) (string, error) {
	if r.in.Unjailed {
		return "", errors.New("without a jail it could change the files")
	}
	defer r.of.times.took("agent", time.Now())
	model, err := r.in.Model(false) // no port of the host: this jail has no network
	if err != nil {
		return "", err
	}
	model.Served = r.of.cfg.served()
	launch, err := r.launch(model)
	if err != nil {
		return "", err
	}
	diff, err := beginning(change.Patch, draftDiff)
	if err != nil {
		return "", err
	}
	launch = launch.Describing(r.plan.Job.Title(), diff, int64(len(diff)) < change.PatchSize)
	plan, err := r.planStart(launch)
	if err != nil {
		return "", err
	}
	way := r.gateTo(r.plan.Adapter.About().API, model)
	if r.plan.Adapter.About().API != "" && way == nil {
		return "", errors.New("the worker has no key for its model API")
	}
	start, err := r.in.Draft(plan, wayTo(model, way))
	if err != nil {
		return "", err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	answer := &agentrun.Answer{Limit: outcome.MaxDraft, Decoder: r.plan.Adapter.Decoder(launch)}
	cfg := r.runConfig(answer, way, end)
	cfg.KeepStdin, cfg.Greets = plan.KeepStdin, r.plan.Adapter.About().Protocol != "command"
	err = r.runAgent(ctx, &agentStart{run: agentrun.New(cfg), start: start, stdin: plan.Stdin})
	r.used.Add(answer.Total())
	return answer.Text(), err
}

// beginning reads up to limit bytes of a file.
func beginning(file string, limit int64) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}
