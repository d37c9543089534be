package layout_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}
