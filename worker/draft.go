package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/confine"
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
func (a *attempt) draft(ctx context.Context, in confine.Jail, adapter agent.Adapter, change workspace.Change) error {
	if !a.job.Deliver.DraftText || change.PatchSize == 0 {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, draftLimit, fmt.Errorf("it took longer than %v", draftLimit))
	defer cancel()
	said, err := a.describe(limited, in, adapter, change)
	a.count()
	found := outcome.ReadDraft(a.clean(said))
	if err == nil && found.Title == "" {
		err = errors.New("the agent wrote nothing")
	}
	if err == nil {
		err = a.out.KeepDraft(limited, found)
	}
	if over := context.Cause(ctx); over != nil {
		return over
	}
	if err != nil {
		a.events.Put(event.Make(event.Notice{Text: a.clean("no text was drafted, so the job's title stands for it: " + err.Error())}))
		return nil
	}
	return nil
}

// describe runs the agent once more, in a jail with nothing in it but the
// change, and returns what it said. The budget is that of the job.
func (a *attempt) describe(ctx context.Context, in confine.Jail, adapter agent.Adapter, change workspace.Change) (string, error) {
	if in.Unjailed {
		return "", errors.New("without a jail it could change the files")
	}
	defer a.times.took("agent", time.Now())
	model, err := in.Model(false)
	if err != nil {
		return "", err
	}
	launch, err := a.launch(in, model, adapter)
	if err != nil {
		return "", err
	}
	diff, err := beginning(change.Patch, draftDiff)
	if err != nil {
		return "", err
	}
	launch = launch.Describing(a.job.Title(), diff, int64(len(diff)) < change.PatchSize)
	plan, err := adapter.Launch(launch)
	if err != nil {
		return "", err
	}
	way := a.gateTo(in, adapter.About().API)
	if adapter.About().API != "" && way == nil {
		return "", errors.New("the worker has no key for its model API")
	}
	start, err := in.Draft(plan, wayTo(model, way))
	if err != nil {
		return "", err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	answer := &answerReader{Decoder: adapter.Decoder(launch)}
	cfg := a.runConfig(answer, way, end)
	cfg.KeepStdin, cfg.Greets = plan.KeepStdin, adapter.About().Protocol != "command"
	err = a.runAgent(ctx, in, start, agentrun.New(cfg), plan.Stdin)
	used := answer.Total()
	a.talk.total.Usage, a.talk.total.CostUSD = a.talk.total.Usage.Add(used.Usage), jobs.AddUSD(a.talk.total.CostUSD, used.CostUSD)
	return answer.text(), err
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

// An answerReader keeps what the agent says in the end: the result of its last turn,
// or all that a program prints which has no turns.
type answerReader struct {
	agent.Decoder
	result string
	lines  []byte
}

func (r *answerReader) Line(line agent.Line) agent.Read {
	read := r.Decoder.Line(line)
	for _, e := range read.Events {
		switch d := e.Payload.(type) {
		case event.TurnEnded:
			r.result = d.Result
		case event.OutputLine:
			if d.Stream == agent.Stdout {
				room := max(0, outcome.MaxDraft-len(r.lines))
				r.lines = append(append(r.lines, line.Bytes[:min(len(line.Bytes), room)]...), '\n')
			}
		}
	}
	return read
}

func (r *answerReader) text() string {
	if r.result != "" {
		return r.result
	}
	return string(r.lines)
}
