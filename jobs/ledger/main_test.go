package ledger_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

func open(t *testing.T, s *jobstest.Server) ledger.Ledger {
	return ledger.Of(jobstest.Queue(t, jobstest.Connect(t, s.URL()), queue.Config{}).Workers())
}
