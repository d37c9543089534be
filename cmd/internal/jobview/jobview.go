// Package jobview is what commands print of jobs: their records, results, submissions and
// artifacts, and the exit code of their outcomes.
package jobview

import (
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

// Records shows jobs as they are now.
var Records = cli.View[jobs.Record]{
	Header: []string{"JOB", "STATE", "OUTCOME", "REASON", "AGENT", "BATCH", "ITEM", "AGE", "TITLE"},
	Row: func(r jobs.Record) []string {
		return []string{
			r.ID, string(r.State), string(r.Outcome), string(r.Reason), r.Agent, console.ShortID(r.Batch), r.Item,
			time.Since(r.Submitted).Truncate(time.Second).String(), r.Title,
		}
	},
	ID: func(r jobs.Record) string { return r.ID },
}

// Results shows the results of finished jobs.
var Results = cli.View[jobs.Result]{
	Header: []string{"JOB", "ITEM", "OUTCOME", "REASON", "ATTEMPTS", "FILES", "COMMITS", "SECONDS", "COST", "MESSAGE"},
	Row: func(r jobs.Result) []string {
		return []string{
			r.Job, r.ID, string(r.Outcome), string(r.Reason), strconv.Itoa(r.Attempts), strconv.Itoa(r.FilesChanged),
			strconv.Itoa(r.Commits), fmt.Sprintf("%.1f", r.Durations.Total), fmt.Sprintf("%.2f", r.CostUSD), visible.FirstLine(r.Message),
		}
	},
	ID: func(r jobs.Result) string { return r.Job },
}

// Submitted shows jobs that were submitted.
var Submitted = cli.View[operation.Submitted]{
	Header: []string{"JOB", "SESSION", "DUPLICATE"},
	Row:    func(s operation.Submitted) []string { return []string{s.ID, s.Session, fmt.Sprint(s.Duplicate)} },
	ID:     func(s operation.Submitted) string { return s.ID },
}

// Artifacts shows stored files.
var Artifacts = cli.View[jobs.Artifact]{
	Header: []string{"NAME", "BYTES", "SHA256", "PATH"},
	Row: func(a jobs.Artifact) []string {
		return []string{a.Name, strconv.FormatInt(a.Bytes, 10), a.SHA256, a.Path}
	},
	ID: func(a jobs.Artifact) string { return a.Name },
}
