package dashboard_test

import (
	"flag"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
)

var shots = flag.String("shots", "", "directory for pictures of every page")

// A real browser finds nothing to complain about on any page, in light and dark, on a desk
// and on a phone; all that can be used is reached by the keyboard, and the actions act.
func TestBrowser(t *testing.T) {
	node, chromium := browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	p := open(t)
	p.fill()
	task, err := browsertest.Task(chromium, map[string]any{
		"url": p.url, "token": "operator", "shots": *shots,
		"pages": map[string]string{
			"overview": "/ui/", "jobs": "/ui/jobs", "batches": "/ui/batches", "batch": "/ui/batches/nightly-fixes", "report": "/ui/batches/nightly-fixes/report", "all": "/ui/bulk/jobs/retry?batch=nightly-fixes",
			"filtered": "/ui/jobs?batch=nightly-fixes", "queues": "/ui/queues", "workers": "/ui/workers",
			"schedules": "/ui/schedules", "dead": "/ui/dead", "tokens": "/ui/tokens", "webhooks": "/ui/webhooks", "webhook": "/ui/webhooks/ci-results", "missing": "/ui/batches/no-such-batch",
		},
	})
	must(t, err)
	browsertest.Browse(t, node, "testdata/browse.cjs", task)
}
