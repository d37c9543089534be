package jobstest

import (
	"testing"

	"github.com/penstock-run/penstock/jobs/freeport"
)

// FreePort returns a port of [freeport.Port].
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freeport.Port()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}
