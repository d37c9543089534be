package api

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// What is merged matters, and not what tries of one item have in common.
func TestWhichOverlapsMatter(t *testing.T) {
	t.Parallel()
	try := func(item string, rec jobs.Record) jobs.Record {
		rec.Labels = map[string]string{report.ItemLabel: item}
		return rec
	}
	runs, failed, done := jobs.Record{State: jobs.Executing}, jobs.Record{State: jobs.Finished, Outcome: jobs.Failure}, jobs.Record{State: jobs.Finished, Outcome: jobs.Success}
	for _, c := range []struct {
		name  string
		other jobs.Record
		rec   jobs.Record
		want  bool
	}{
		{"runs", runs, runs, true}, {"succeeded", done, runs, true}, {"failed", failed, runs, false},
		{"a try of the same item", try("1", done), try("1", runs), false}, {"one of another item", try("2", runs), try("1", runs), true},
	} {
		if got := matters(c.rec, c.other); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
