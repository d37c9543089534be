package worker

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}
