package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
)

// present reports to the pool until work ends that the worker is alive, its labels and
// slots, and why it claims nothing once ctx has ended. It explains why jobs wait; no
// lease depends on it.
func (w *Worker) present(ctx, work context.Context) {
	tick := time.NewTicker(queue.PresentEvery)
	defer tick.Stop()
	draining := ctx.Done()
	for work.Err() == nil {
		turned, _ := w.admission.state()
		w.tell(work, ctx.Err() != nil)
		select {
		case <-work.Done():
		case <-draining:
			draining = nil // it stays so
		case <-turned:
		case <-w.news:
		case <-tick.C:
		}
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(work), leaveLimit)
	defer cancel()
	if err := w.cfg.Queue.Leave(leaving, w.cfg.Name); err != nil {
		w.log.Warn("leave; the pool forgets this worker by itself", "err", err)
	}
}

// leaveLimit bounds the last word of a worker: the broker may be gone before.
const leaveLimit = time.Second

// tell sends one report of present. If the broker is away, a later report reaches it.
func (w *Worker) tell(ctx context.Context, draining bool) {
	ctx, cancel := context.WithTimeout(ctx, queue.PresentEvery)
	defer cancel()
	me := why.Worker{Name: w.cfg.Name, Queues: w.cfg.Queues, Labels: w.cfg.Labels, Slots: w.cfg.Slots, Busy: int(w.busy.Load()), Started: w.started}
	if _, refused := w.admission.state(); refused != nil {
		me.Closed = refused.Error()
	}
	if draining {
		me.Closed = cmp.Or(me.Closed, "it shuts down")
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
