package poolpages

import (
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

var (
	queuesPage    = page("queues")
	workersPage   = page("workers")
	schedulesPage = page("schedules")
	tokensPage    = page("tokens")
)

func poolRoutes() []dashboard.Route {
	return []dashboard.Route{
		{Pattern: "GET /ui/queues", Row: operation.QueueList.Row, Serve: listQueues},
		{Pattern: "POST /ui/queues/{name}/pause", Row: operation.QueuePause.Row, Serve: pauseQueue},
		{Pattern: "POST /ui/queues/{name}/drain", Row: operation.QueuePause.Row, Serve: drainQueue},
		{Pattern: "POST /ui/queues/{name}/resume", Row: operation.QueueResume.Row, Serve: resumeQueue},
		{Pattern: "GET /ui/workers", Row: operation.Workers.Row, Serve: listWorkers},
		{Pattern: "POST /ui/workers/{name}/drain", Row: operation.WorkerDrain.Row, Serve: onWorker(operation.WorkerDrain, "worker-drains")},
		{Pattern: "POST /ui/workers/{name}/resume", Row: operation.WorkerResume.Row, Serve: onWorker(operation.WorkerResume, "worker-resumed")},
		{Pattern: "GET /ui/schedules", Row: operation.ScheduleList.Row, Serve: listSchedules},
		{Pattern: "POST /ui/schedules/{name}/pause", Row: operation.SchedulePause.Row, Serve: onSchedule(operation.SchedulePause, "schedule-paused")},
		{Pattern: "POST /ui/schedules/{name}/resume", Row: operation.ScheduleResume.Row, Serve: onSchedule(operation.ScheduleResume, "resumed")},
		{Pattern: "POST /ui/schedules/{name}/run", Row: operation.ScheduleRun.Row, Serve: runSchedule},
		{Pattern: "GET /ui/tokens", Row: operation.TokenList.Row, Serve: listTokens},
		{Pattern: "POST /ui/tokens/{name}/remove", Row: operation.TokenRemove.Row, Serve: removeToken},
	}
}

// A queueRow is a queue with what can be done about it.
type queueRow struct {
	operation.Queue
	Action, Drain *dashboard.Action
}

// queueList is the dot of the page of queues.
type queueList struct {
	Queues  []queueRow
	Caps    []schedule.CapUse
	Budgets []budgetRow
}

func listQueues(v *dashboard.Visit) error {
	var list queueList
	all, err := dashboard.Look(v, operation.QueueList, operation.PageRequest{})
	if err != nil {
		return err
	}
	for _, q := range all.Queues {
		list.Queues = append(list.Queues, queueRow{q, held{"/ui/queues/" + q.Queue, q.Queue, q.Paused, operation.QueuePause.Row, operation.QueueResume.Row}.action(v), drainAction(v, q)})
	}
	if v.May(operation.Caps.Row) {
		caps, err := dashboard.Look(v, operation.Caps, operation.Nothing{})
		if err != nil {
			return err
		}
		list.Caps = caps.Caps
	}
	if list.Budgets, err = readBudgets(v, ""); err != nil {
		return err
	}
	return v.Render(queuesPage, dashboard.Page{Title: "Queues", Nav: "Queues", Refresh: true, Data: list})
}

// A held is what can be paused: a queue or a batch.
type held struct {
	path, name    string
	paused        *jobs.Hold
	pause, resume operation.Row
}

// action pauses what is not paused, and resumes what is.
func (h held) action(v *dashboard.Visit) *dashboard.Action {
	switch {
	case h.paused == nil:
		return v.Action(h.pause, dashboard.Action{Path: h.path + "/pause", Label: "Pause", About: h.name})
	case h.paused.Cancel:
		return nil // cancelled for good
	}
	return v.Action(h.resume, dashboard.Action{Path: h.path + "/resume", Label: "Resume", About: h.name})
}

func pauseQueue(v *dashboard.Visit) error {
	if _, err := dashboard.Ask(v, operation.QueuePause, operation.PauseRequest{Name: v.R.PathValue("name")}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/queues", "paused", 0))
}

func resumeQueue(v *dashboard.Visit) error {
	if _, err := dashboard.Ask(v, operation.QueueResume, operation.Named{Name: v.R.PathValue("name")}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/queues", "resumed", 0))
}

// A workerRow is a worker with what can be done about it.
type workerRow struct {
	why.Worker
	Action *dashboard.Action
}

// workerList is the dot of the page of workers.
type workerList struct {
	Workers     []workerRow
	Busy, Slots int
}

func listWorkers(v *dashboard.Visit) error {
	all, err := dashboard.Look(v, operation.Workers, operation.Nothing{})
	if err != nil {
		return err
	}
	var list workerList
	for _, w := range all.Workers {
		list.Workers = append(list.Workers, workerRow{w, workerAction(v, w)})
		list.Busy += w.Busy
		list.Slots += w.Slots
	}
	return v.Render(workersPage, dashboard.Page{Title: "Workers", Nav: "Workers", Refresh: true, Data: list})
}

// A scheduleRow is a schedule with what can be done about it.
type scheduleRow struct {
	calendar.Record
	Hold, Run *dashboard.Action
}

// Each is the distance of its firings.
func (r scheduleRow) Each() time.Duration { return time.Duration(r.Every) }

func listSchedules(v *dashboard.Visit) error {
	rows, err := allSchedules(v)
	if err != nil {
		return err
	}
	return v.Render(schedulesPage, dashboard.Page{Title: "Schedules", Nav: "Schedules", Refresh: true, Data: rows})
}

func allSchedules(v *dashboard.Visit) (rows []scheduleRow, err error) {
	for request := (operation.PageRequest{}); ; {
		page, err := dashboard.Look(v, operation.ScheduleList, request)
		if err != nil {
			return nil, err
		}
		for _, rec := range page.Schedules {
			rows = append(rows, newScheduleRow(v, rec))
		}
		if request.After = page.Next; page.Next == "" {
			return rows, nil
		}
	}
}

func newScheduleRow(v *dashboard.Visit, rec calendar.Record) scheduleRow {
	under := "/ui/schedules/" + rec.Name
	row := scheduleRow{Record: rec, Run: v.Action(operation.ScheduleRun.Row, dashboard.Action{Path: under + "/run", Label: "Run now", About: rec.Name})}
	if rec.Paused != nil {
		row.Hold = v.Action(operation.ScheduleResume.Row, dashboard.Action{Path: under + "/resume", Label: "Resume", About: rec.Name})
	} else {
		row.Hold = v.Action(operation.SchedulePause.Row, dashboard.Action{Path: under + "/pause", Label: "Pause", About: rec.Name})
	}
	return row
}

func onSchedule(op operation.Operation[operation.Named, calendar.Record], notice string) func(*dashboard.Visit) error {
	return func(v *dashboard.Visit) error {
		if _, err := dashboard.Ask(v, op, operation.Named{Name: v.R.PathValue("name")}); err != nil {
			return err
		}
		return v.Redirect(v.Back("/ui/schedules", notice, 0))
	}
}

func runSchedule(v *dashboard.Visit) error {
	asking, err := v.Client(operation.ScheduleRun.Row)
	if err != nil {
		return err
	}
	if _, err := asking.Schedules().Run(v.Context(), v.R.PathValue("name")); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/schedules", "schedule-run", 0))
}

// A tokenRow is a token with what can be done about it.
type tokenRow struct {
	operation.Token
	Remove *dashboard.Action
}

func listTokens(v *dashboard.Visit) error {
	all, err := dashboard.Look(v, operation.TokenList, operation.PageRequest{})
	if err != nil {
		return err
	}
	var rows []tokenRow
	for _, token := range all.Tokens {
		rows = append(rows, tokenRow{token, v.Action(operation.TokenRemove.Row, dashboard.Action{
			Path: "/ui/tokens/" + token.Name + "/remove", Label: "Remove", Kind: "danger", About: token.Name,
			Confirm: "Remove token " + token.Name + "? Whoever uses it is refused within a second.",
		})})
	}
	return v.Render(tokensPage, dashboard.Page{Title: "Tokens", Nav: "Tokens", Refresh: true, Data: rows})
}

func removeToken(v *dashboard.Visit) error {
	if _, err := dashboard.Ask(v, operation.TokenRemove, operation.Named{Name: v.R.PathValue("name")}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/tokens", "token-removed", 0))
}
