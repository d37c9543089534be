package diskspace

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// A Tally is the sizes of the workspaces of running jobs, by the attempts' names.
type Tally struct {
	mu sync.Mutex
	of map[string]jobs.DiskUse
}

// NewTally returns one of no workspaces.
func NewTally() *Tally { return &Tally{of: map[string]jobs.DiskUse{}} }

// Set notes what one takes, nil for nothing more, and returns the sum of all.
func (t *Tally) Set(name string, use *jobs.DiskUse) (sum jobs.DiskUse) {
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

// A Watch measures the workspace of one attempt.
type Watch struct {
	Name string // of the attempt
	// Size measures the workspace.
	Size   func(context.Context) (bytes, inodes int64)
	Tally  *Tally
	Report func(sum jobs.DiskUse) // of all workspaces
	Put    func(...event.Event)   // into the session

	stated jobs.DiskUse // by the last event
}

// Begin measures the workspace again and again until the function that it returns is called,
// which returns the last result.
func (w *Watch) Begin(ctx context.Context) (end func() jobs.DiskUse) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for least, wait := sizeFirst, sizeFirst; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			began := time.Now()
			w.look(ctx)
			least = min(2*least, sizeEvery)
			wait = max(least, sizeShare*time.Since(began))
		}
	}()
	return func() jobs.DiskUse {
		cancel()
		<-done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sizeEvery)
		defer cancel()
		use := w.look(ctx)
		w.Report(w.Tally.Set(w.Name, nil))
		return use
	}
}

// look measures once. It adds an event to the session if the workspace has doubled, and
// is large.
func (w *Watch) look(ctx context.Context) jobs.DiskUse {
	var use jobs.DiskUse
	use.Bytes, use.Inodes = w.Size(ctx)
	w.Report(w.Tally.Set(w.Name, &use))
	if use.Bytes >= 2*w.stated.Bytes+16<<20 || use.Inodes >= 2*w.stated.Inodes+1000 {
		w.stated = use
		w.Put(event.Make(event.WorkspaceGrown(use)))
	}
	return use
}
