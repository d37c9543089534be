package worker

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/recorder"
	"github.com/penstock-run/penstock/worker/workspace"
)

// A tally is the sizes of the workspaces of running jobs, by the attempts' names.
type tally struct {
	mu sync.Mutex
	of map[string]jobs.DiskUse
}

// set notes what one takes, nil for nothing more, and returns the sum of all.
func (t *tally) set(name string, use *jobs.DiskUse) (sum jobs.DiskUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, name)
	if use != nil {
		t.of[name] = *use
	}
	for _, u := range t.of {
		sum.Bytes, sum.Inodes = sum.Bytes+u.Bytes, sum.Inodes+u.Inodes
	}
	return sum
}

// Between two looks at a workspace there are at least so many seconds, and so
// many times as long as the last one took.
const (
	sizeFirst = time.Second
	sizeEvery = 10 * time.Second
	sizeShare = 50
)

// A sizeWatch measures the workspace of one attempt.
type sizeWatch struct {
	name   string // of the attempt
	space  *workspace.Workspace
	tally  *tally
	report func(sum jobs.DiskUse) // of all workspaces
	events *recorder.Recorder
	stated jobs.DiskUse // by the last event
}

// watchSize measures the workspace again and again until the function that it
// returns is called, which has the last result recorded.
func (a *attempt) watchSize(ctx context.Context, space *workspace.Workspace) (stop func()) {
	m := &sizeWatch{name: a.name(), space: space, tally: a.tally, events: a.events, report: func(sum jobs.DiskUse) {
		if a.cfg.Hooks.Workspaces != nil {
			a.cfg.Hooks.Workspaces(sum.Bytes, sum.Inodes)
		}
	}}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for least, wait := sizeFirst, sizeFirst; pause(ctx, wait); {
			began := time.Now()
			m.look(ctx)
			least = min(2*least, sizeEvery)
			wait = max(least, sizeShare*time.Since(began))
		}
	}()
	return func() {
		cancel()
		<-done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sizeEvery)
		defer cancel()
		a.out.Result.SetDisk(m.look(ctx))
		m.report(m.tally.set(m.name, nil))
	}
}

// look measures once. It adds an event to the session if the workspace has doubled, and
// is large.
func (m *sizeWatch) look(ctx context.Context) jobs.DiskUse {
	var use jobs.DiskUse
	use.Bytes, use.Inodes = m.space.Size(ctx)
	m.report(m.tally.set(m.name, &use))
	if use.Bytes >= 2*m.stated.Bytes+16<<20 || use.Inodes >= 2*m.stated.Inodes+1000 {
		m.stated = use
		m.events.Put(event.Make(event.WorkspaceGrown(use)))
	}
	return use
}
