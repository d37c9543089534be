package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/seal"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Submit hands a job in.
func (p *Pool) Submit(ctx context.Context, job jobs.Job, source string) (operation.Submitted, error) {
	job, err := p.sign(job)
	if err != nil {
		return operation.Submitted{}, err
	}
	return p.Client.As(source).Submit(ctx, job)
}

// waitingEvery is how often a command says that it waits for a dispatcher.
const waitingEvery = 30 * time.Second

// Outlast lets the requests that follow wait for a dispatcher, as long as there is
// none: for commands that wait for jobs, once a dispatcher has answered.
func (p *Pool) Outlast(shell cli.Shell) {
	var mu sync.Mutex
	var told time.Time
	p.Client = p.Client.Patient(func(why error) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(told) >= waitingEvery {
			told = now
			shell.Progressf("%v; waiting for one (%s runs one)", why, dispatcherCommand(shell.Config))
		}
	})
}

// Signs reports whether what is submitted is signed, or cannot be: its key is not readable.
func (p *Pool) Signs() bool {
	key, err := p.signKey()
	return key != nil || err != nil
}

// sign signs a job with the key of --sign-key, where there is one.
func (p *Pool) sign(job jobs.Job) (jobs.Job, error) {
	key, err := p.signKey()
	if err != nil || key == nil {
		return job, err
	}
	signed, err := seal.Sign(job.WithDefaults(), jobs.NewID(), key)
	if err != nil {
		return job, fmt.Errorf("sign the job: %w", err)
	}
	return signed, nil
}

// Salvager stores in the pool the work of workers that died. It acts under the name of
// a worker.
func (p *Pool) Salvager(name string) func(context.Context, *workspace.Workspace) error {
	return worker.Salvage(worker.Config{Name: name, Queue: p.Queue, Log: p.Log, Store: p.Store})
}
