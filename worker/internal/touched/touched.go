// Package touched tells the pool which files the agent of an attempt has changed by now.
//
//	the agent's directory ──Look──▶ files and lines ──▶ the pool, when they are others than before
//
// It never ends an attempt: what cannot be told is logged.
package touched

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/pause"
)

const (
	// every is how long a Teller waits between looks, and share how many times longer than a
	// look takes, so that it costs a twentieth of one processor at most.
	every = 2 * time.Second
	share = 20
	// lookLimit ends a look, and putLimit what is told of it.
	lookLimit = time.Minute
	putLimit  = 5 * time.Second
)

// A Teller tells about one attempt.
type Teller struct {
	Store  overlap.Store
	Record jobs.Record
	Clean  func(string) string // removes secrets from the names of files
	Log    *slog.Logger

	last overlap.Work // that was told
}

// A Workspace is what an agent changes.
type Workspace interface {
	Base() string
	Touched(ctx context.Context) (patchstat.Stat, error)
}

// Watch looks at the workspace from time to time, until stop, which waits for a look to end.
func (t *Teller) Watch(ctx context.Context, w Workspace) (stop func()) {
	if w.Base() == "" {
		return func() {}
	}
	watching, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for wait := every; pause.For(watching, wait); {
			began := time.Now()
			t.look(ctx, w)
			wait = max(every, share*time.Since(began))
		}
	})
	return func() { end(); done.Wait() }
}

func (t *Teller) look(ctx context.Context, w Workspace) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	stat, err := w.Touched(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.Log.Warn("look which files the agent has changed", "err", err)
		}
		return
	}
	t.tell(ctx, w.Base(), stat)
}

// Patch tells what an attempt has changed in the end, by its patch: a file.
func (t *Teller) Patch(ctx context.Context, base, patch string) {
	if base == "" || patch == "" && len(t.last.Files) == 0 {
		return
	}
	stat, err := read(patch)
	if err != nil {
		t.Log.Warn("read which files the agent has changed", "err", err)
		return
	}
	t.tell(ctx, base, stat)
}

func read(patch string) (patchstat.Stat, error) {
	if patch == "" {
		return patchstat.Stat{}, nil
	}
	f, err := os.Open(patch)
	if err != nil {
		return patchstat.Stat{}, err
	}
	defer f.Close()
	return patchstat.Read(f)
}

func (t *Teller) tell(ctx context.Context, base string, stat patchstat.Stat) {
	now := overlap.New(t.Record, base, stat, t.Clean)
	if reflect.DeepEqual(now.Files, t.last.Files) && now.More == t.last.More {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	if err := t.Store.Put(ctx, now); err != nil {
		if ctx.Err() == nil {
			t.Log.Warn("tell which files the agent has changed", "err", err)
		}
		return
	}
	t.last = now
}
