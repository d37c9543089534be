package poolpages

import (
	"net/url"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
)

var reportPage = page("report")

// reportShown is the dot of the page with the report of a batch.
type reportShown struct {
	*report.Report
	jobOf map[string]string
}

// showReport shows what the jobs of a batch came to. The page stands still: its answer is
// made of the results and patches of all of them.
func showReport(v *dashboard.Visit) error {
	made, err := dashboard.Look(v, operation.BatchReport, operation.Named{Name: v.R.PathValue("name")})
	if err != nil {
		return err
	}
	shown := reportShown{&made, map[string]string{}}
	for _, row := range made.Rows {
		shown.jobOf[row.ID] = row.Job
	}
	return v.Render(reportPage, dashboard.Page{Title: "Report of " + made.Batch, Nav: "Batches", Data: shown})
}

// A named is an item with the job that it is; that is empty where it is not known.
type named struct{ ID, Job string }

// Item is an item, for a link to its job.
func (s reportShown) Item(id string) named { return named{id, s.jobOf[id]} }

// Of is the address of the jobs of the batch that ended for a reason.
func (s reportShown) Of(reason jobs.Reason) string {
	return "/ui/jobs?" + url.Values{"batch": {s.Batch}, "reason": {string(reason)}}.Encode()
}

// Took is a number of seconds for people.
func (s reportShown) Took(seconds float64) string { return report.Seconds(seconds) }

// Tokens is a number of tokens for people.
func (s reportShown) Tokens(n int64) string { return report.Number(n) }

// Wall is how long the batch took.
func (s reportShown) Wall() time.Duration { return time.Duration(s.WallSeconds * float64(time.Second)) }
