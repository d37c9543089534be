package worker

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/worker/internal/admission"
)

// present reports to the pool until ctx ends that the worker is alive, its labels and
// slots, and why it claims nothing. It reads what the pool asks of the worker. It explains
// why jobs wait; no lease depends on it.
func (w *Worker) present(ctx context.Context) {
	tick := time.NewTicker(queue.PresentEvery)
	defer tick.Stop()
	asked, stop, err := w.cfg.Queue.Drains().Notify(w.cfg.Name)
	if err != nil {
		w.log.Warn("listen for requests to drain; they are read at each heartbeat", "err", err)
	} else {
		defer stop()
	}
	for ctx.Err() == nil {
		now := w.admission.State()
		w.tell(ctx, now)
		select {
		case <-ctx.Done():
		case <-now.Changed:
		case <-w.news:
		case <-asked:
			w.readDrain(ctx)
		case <-tick.C:
			w.readDrain(ctx)
		}
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if err := w.cfg.Queue.Leave(leaving, w.cfg.Name); err != nil {
		w.log.Warn("leave; the pool forgets this worker by itself", "err", err)
	}
}

// leaveLimit bounds the last word of a worker: the broker may be gone before.
const leaveLimit = time.Second

// tell sends one report of present. If the broker is away, a later report reaches it.
func (w *Worker) tell(ctx context.Context, now admission.State) {
	ctx, cancel := context.WithTimeout(ctx, queue.PresentEvery)
	defer cancel()
	// The slots are counted after now was read: if no slot waited for a job then, the
	// number includes all jobs that the worker has.
	me := why.Worker{Name: w.cfg.Name, Queues: w.cfg.Queues, Labels: w.cfg.Labels, Slots: w.cfg.Slots, Busy: int(w.busy.Load()), Version: w.cfg.Release, Started: w.started, Clock: time.Now().UTC()}
	switch {
	case now.Drain != nil:
		me.Closed = now.Drain.String()
	case now.Low != nil:
		me.Closed = now.Low.Error()
	}
	if now.Drain != nil && now.Settled {
		drain := *now.Drain
		drain.Confirmed = true
		me.Drain = &drain
	}
	if w.cfg.Queue.Present(ctx, me) == nil && w.cfg.Hooks.Present != nil {
		w.cfg.Hooks.Present(time.Now())
	}
}

// occupy counts the slots in use.
func (w *Worker) occupy(delta int32) {
	w.busy.Add(delta)
	select {
	case w.news <- struct{}{}:
	default: // there is news already
	}
}
