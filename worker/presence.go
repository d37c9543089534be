package worker

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/worker/internal/admission"
)

// present reports to the pool until ctx ends that the worker is alive, its labels and
// slots, and why it claims nothing. It reads what the pool asks of the worker. It explains
// why jobs wait; no lease depends on it.
func (w *Worker) present(ctx context.Context) {
	tick := time.NewTicker(presence.Every)
	defer tick.Stop()
	asked, stop, err := w.cfg.Queue.Workers().Notify(w.cfg.Name)
	if err != nil {
		w.log.Warn("listen for requests to drain; they are read at each heartbeat", "err", err)
	} else {
		defer stop()
	}
	for ctx.Err() == nil {
		now := w.admission.State()
		w.tell(ctx, now)
		if w.awaitNews(ctx, now, asked, tick.C) {
			w.readDrain(ctx)
		}
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if err := w.cfg.Queue.Workers().Leave(leaving, w.cfg.Name); err != nil {
		w.log.Warn("leave; the pool forgets this worker by itself", "err", err)
	}
}

// newsEvery is how often the number of used slots is reported at most: each report is a
// write to the broker's disk, and short jobs change the number many times a second.
const newsEvery = 200 * time.Millisecond

// awaitNews waits until there is something to report, and says whether the pool may have
// asked something.
func (w *Worker) awaitNews(ctx context.Context, now admission.State, asked <-chan struct{}, tick <-chan time.Time) (mayAsk bool) {
	var news <-chan struct{} // none for a while
	quiet := time.NewTimer(newsEvery)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-now.Changed:
			return false
		case <-news:
			return false
		case <-asked:
			return true
		case <-tick:
			return true
		case <-quiet.C:
			news = w.news
		}
	}
}

// leaveLimit bounds the last word of a worker: the broker may be gone before.
const leaveLimit = time.Second

// tell sends one report of present. If the broker is away, a later report reaches it.
func (w *Worker) tell(ctx context.Context, now admission.State) {
	ctx, cancel := context.WithTimeout(ctx, presence.Every)
	defer cancel()
	// The slots are counted after now was read: if no slot waited for a job then, the
	// number includes all jobs that the worker has.
	me := why.Worker{Name: w.cfg.Name, Queues: w.cfg.Queues, Labels: w.labels.All(), Slots: w.cfg.Slots, Busy: int(w.busy.Load()), Version: w.cfg.Release, Started: w.started, Clock: time.Now().UTC()}
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
	if w.cfg.Queue.Workers().Present(ctx, me) == nil && w.cfg.Hooks.Present != nil {
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
