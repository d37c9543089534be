package poolpages

import (
	"fmt"
	"net/url"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// drainAction pauses a queue of which jobs run, for those who wait until none does.
func drainAction(v *dashboard.Visit, q operation.Queue) *dashboard.Action {
	if q.Paused != nil || q.Executing == 0 {
		return nil
	}
	return v.Action(operation.QueuePause.Row, dashboard.Action{
		Path: "/ui/queues/" + q.Queue + "/drain", Label: "Drain", About: q.Queue,
		Confirm: fmt.Sprintf("Drain queue %s? Nothing new begins there, and what runs goes on to its end (%d).", q.Queue, q.Executing),
	})
}

// Draining reports whether a paused queue has jobs that run.
func (r queueRow) Draining() bool { return r.Paused != nil && r.Executing > 0 }

// drainQueue pauses a queue, and says how many of its jobs still run. The page of the queues
// counts them down.
func drainQueue(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	if _, err := dashboard.Ask(v, operation.QueuePause, operation.PauseRequest{Name: name}); err != nil {
		return err
	}
	if !v.May(operation.List.Row) {
		return v.Redirect(v.Back("/ui/queues", "paused", 0))
	}
	asking, err := v.Client(operation.List.Row)
	if err != nil {
		return err
	}
	running := 0
	for _, err := range asking.List(v.Context(), operation.ListRequest{Queue: name, State: jobs.Executing}) {
		if err != nil {
			return err
		}
		running++
	}
	if running == 0 {
		return v.Redirect(v.Back("/ui/queues", "drained", 0))
	}
	return v.Redirect(v.Back("/ui/queues", "draining", running))
}

// workerAction drains a worker, and resumes one that drains. One that shuts down does so.
func workerAction(v *dashboard.Visit, w why.Worker) *dashboard.Action {
	under := "/ui/workers/" + url.PathEscape(w.Name)
	switch {
	case w.Drain == nil:
		return v.Action(operation.WorkerDrain.Row, dashboard.Action{
			Path: under + "/drain", Label: "Drain", About: w.Name, Confirm: "Let worker " + w.Name + " claim no more jobs? What it runs goes on.",
		})
	case w.Drain.Ends:
		return nil
	}
	return v.Action(operation.WorkerResume.Row, dashboard.Action{Path: under + "/resume", Label: "Resume", About: w.Name})
}

func onWorker(op operation.Operation[operation.Named, why.Worker], notice string) func(*dashboard.Visit) error {
	return func(v *dashboard.Visit) error {
		if _, err := dashboard.Ask(v, op, operation.Named{Name: v.R.PathValue("name")}); err != nil {
			return err
		}
		return v.Redirect(v.Back("/ui/workers", notice, 0))
	}
}
