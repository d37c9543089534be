package httpapi

import (
	"net/http"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// Every error code has one row in the table of statuses, which is an error's.
func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	rows := map[jobs.ErrorCode]int{}
	for _, row := range statuses {
		rows[row.code]++
		if row.status < 400 || http.StatusText(row.status) == "" || row.meaning() == "" {
			t.Errorf("code %s has status %d and means %q", row.code, row.status, row.meaning())
		}
	}
	for _, known := range jobs.ErrorCodes {
		if rows[known.Code] != 1 {
			t.Errorf("code %s has %d rows, want one", known.Code, rows[known.Code])
		}
	}
	for code, n := range rows {
		if n != 1 {
			t.Errorf("code %s has %d rows, want one", code, n)
		}
	}
	if row := rowOf("new"); row.status != http.StatusInternalServerError {
		t.Errorf("a code that is not known has status %d", row.status)
	}
}
