package poolpages

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var (
	batchesPage = page("batches")
	batchPage   = page("batch")
)

func batchRoutes() []dashboard.Route {
	return []dashboard.Route{
		{Pattern: "GET /ui/batches", Row: operation.BatchList.Row, Serve: listBatches},
		{Pattern: "GET /ui/batches/{name}", Row: operation.BatchGet.Row, Serve: showBatch},
		{Pattern: "GET /ui/batches/{name}/report", Row: operation.BatchReport.Row, Serve: showReport},
		{Pattern: "POST /ui/batches/{name}/pause", Row: operation.BatchPause.Row, Serve: pauseBatch},
		{Pattern: "POST /ui/batches/{name}/resume", Row: operation.BatchResume.Row, Serve: resumeBatch},
		{Pattern: "POST /ui/batches/{name}/cancel", Row: operation.BatchCancel.Row, Serve: cancelBatch},
	}
}

// A batchRow is a batch with what can be done about it.
type batchRow struct {
	operation.Batch
	Hold *dashboard.Action
}

// In is how many of its jobs are in a state.
func (r batchRow) In(state string) int { return r.States[jobs.State(state)] }

// Ended is how many of them have ended with an outcome.
func (r batchRow) Ended(outcome string) int { return r.Outcomes[jobs.Outcome(outcome)] }

// Progress is its bar.
func (r batchRow) Progress() progress { return progressOf(r.Batch) }

// A progress is how far a batch is, as parts of 1000.
type progress struct {
	Done, Success, Bad, Other, Executing int // parts; Other have ended neither well nor badly
	Finished, Jobs                       int // jobs
}

func progressOf(b operation.Batch) progress {
	p := progress{Jobs: b.Jobs, Finished: b.States[jobs.Finished]}
	part := func(n int) int { return 1000 * n / max(1, b.Jobs) }
	p.Success = part(b.Outcomes[jobs.Success])
	p.Bad = part(b.Outcomes[jobs.Failure] + b.Outcomes[jobs.Error] + b.Outcomes[jobs.TimedOut])
	p.Other = part(b.Outcomes[jobs.Cancellation] + b.Outcomes[jobs.Skip])
	p.Executing = part(b.States[jobs.Executing])
	p.Done = part(p.Finished)
	return p
}

// BadAt, OtherAt and ExecutingAt are where the parts of the bar begin.
func (p progress) BadAt() int       { return p.Success }
func (p progress) OtherAt() int     { return p.Success + p.Bad }
func (p progress) ExecutingAt() int { return p.Success + p.Bad + p.Other }

// batchList is the dot of the page of batches.
type batchList struct {
	Rows        []batchRow
	Next, First string
}

// listBatches shows the newest first, which the pool lists last.
func listBatches(v *dashboard.Visit) error {
	rows, err := allBatches(v)
	if err != nil {
		return err
	}
	slices.Reverse(rows)
	list, after := batchList{}, v.R.URL.Query().Get("after")
	if at := slices.IndexFunc(rows, func(r batchRow) bool { return r.Batch.Batch == after }); at >= 0 {
		rows, list.First = rows[at+1:], "/ui/batches"
	}
	if len(rows) > rowsOfAPage {
		rows, list.Next = rows[:rowsOfAPage], "/ui/batches?after="+rows[rowsOfAPage-1].Batch.Batch
	}
	list.Rows = rows
	return v.Render(batchesPage, dashboard.Page{Title: "Batches", Nav: "Batches", Refresh: true, Data: list})
}

func allBatches(v *dashboard.Visit) (rows []batchRow, err error) {
	for request := (operation.PageRequest{}); ; {
		page, err := dashboard.Look(v, operation.BatchList, request)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Batches {
			rows = append(rows, batchRow{b, batchHold(v, b)})
		}
		if request.After = page.Next; page.Next == "" {
			return rows, nil
		}
	}
}

// batchHold pauses or resumes a batch that has something left to do.
func batchHold(v *dashboard.Visit, b operation.Batch) *dashboard.Action {
	if b.Paused == nil && b.States[jobs.Finished] == b.Jobs {
		return nil
	}
	return held{"/ui/batches/" + b.Batch, b.Batch, b.Paused, operation.BatchPause.Row, operation.BatchResume.Row}.action(v)
}

// batchShown is the dot of the page of a batch.
type batchShown struct {
	batchRow
	Cancel  *dashboard.Action
	Read    int // how many of its jobs were read, if not all
	Spent   jobs.Spent
	Left    time.Duration // until its end, if that can be told
	Reasons []reasonRow
	Running []jobs.Record
	Last    []jobs.Record // that have ended, the latest first
	Titles  bool
	Budgets []budgetRow // none or one
}

// A reasonRow is how many jobs of a batch ended for a reason.
type reasonRow struct {
	Reason jobs.Reason
	Count  int
	Cost   float64
	Advice string
	Retry  string // the address that asks whether to run all of them again
}

func showBatch(v *dashboard.Visit) error {
	b, err := dashboard.Look(v, operation.BatchGet, operation.Named{Name: v.R.PathValue("name")})
	if err != nil {
		return err
	}
	shown := batchShown{batchRow: batchRow{b, batchHold(v, b)}}
	if b.States[jobs.Finished] < b.Jobs {
		shown.Cancel = v.Action(operation.BatchCancel.Row, dashboard.Action{
			Path: "/ui/batches/" + b.Batch + "/cancel", Label: "Cancel batch", Kind: "danger", About: b.Batch,
			Confirm: fmt.Sprintf("Cancel the jobs of this batch that have not ended (%d)?", b.Jobs-b.States[jobs.Finished]),
		})
	}
	if shown.Budgets, err = readBudgets(v, b.Batch); err != nil {
		return err
	}
	if v.May(operation.List.Row) {
		all, more, err := lookAll(v, operation.ListRequest{Batch: b.Batch, Newest: true}, searched)
		if err != nil {
			return err
		}
		if more {
			shown.Read = len(all)
		}
		shown.sum(v, all, time.Now())
	}
	return v.Render(batchPage, dashboard.Page{Title: b.Batch, Nav: "Batches", Refresh: true, Data: shown})
}

// sum says what the jobs of the batch come to.
func (s *batchShown) sum(v *dashboard.Visit, all []jobs.Record, now time.Time) {
	const listed = 10
	reasons := map[jobs.Reason]*reasonRow{}
	var ended []jobs.Record
	for _, rec := range all {
		spent := rec.SpentBefore.Add(rec.LastAttempt)
		s.Spent = s.Spent.Add(spent)
		switch {
		case rec.State == jobs.Executing && len(s.Running) < listed:
			s.Running = append(s.Running, rec)
		case rec.State == jobs.Finished && rec.Finished != nil:
			ended = append(ended, rec)
		}
		if rec.Reason == "" || rec.State != jobs.Finished {
			continue
		}
		if reasons[rec.Reason] == nil {
			reasons[rec.Reason] = &reasonRow{Reason: rec.Reason, Advice: jobs.Reasons[rec.Reason].Advice}
		}
		reasons[rec.Reason].Count++
		reasons[rec.Reason].Cost += spent.CostUSD
	}
	for _, row := range slices.SortedFunc(maps.Values(reasons), func(a, b *reasonRow) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	}) {
		row.Retry = retryJobs.link(v, url.Values{"batch": {s.Batch.Batch}, "reason": {string(row.Reason)}})
		s.Reasons = append(s.Reasons, *row)
	}
	slices.SortFunc(ended, func(a, b jobs.Record) int { return b.Finished.Compare(*a.Finished) })
	s.Last = ended[:min(len(ended), listed)]
	s.Left = timeLeft(all, ended, s.Batch, now)
}

// timeLeft says how long the rest of a batch takes if it goes on as it did since its first
// job began; zero if that cannot be told.
func timeLeft(all, ended []jobs.Record, b operation.Batch, now time.Time) time.Duration {
	const enough = 3
	var began time.Time
	for _, rec := range all {
		if rec.Started != nil && (began.IsZero() || rec.Started.Before(began)) {
			began = *rec.Started
		}
	}
	left := b.Jobs - b.States[jobs.Finished]
	if len(ended) < enough || left == 0 || b.Paused != nil || began.IsZero() {
		return 0
	}
	return now.Sub(began) / time.Duration(len(ended)) * time.Duration(left)
}

func pauseBatch(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	if _, err := dashboard.Ask(v, operation.BatchPause, operation.PauseRequest{Name: name}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/batches/"+name, "paused", 0))
}

func resumeBatch(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	if _, err := dashboard.Ask(v, operation.BatchResume, operation.Named{Name: name}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/batches/"+name, "resumed", 0))
}

func cancelBatch(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	asking, err := v.Client(operation.BatchCancel.Row)
	if err != nil {
		return err
	}
	cancelled, err := asking.Batches().Cancel(v.Context(), name)
	if err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/batches/"+name, "batch-cancelled", len(cancelled)))
}
