package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// pages are all of this package, with what each has of a filled pool.
var pages = map[string][]string{
	"/ui/":                             {"Two callers still use", "low-priority-maintenance", "rather-long-name", "open questions"},
	"/ui/jobs":                         {"Fix the race in the upload retry", "team=scheduling", "check_failed", "question"},
	"/ui/jobs?outcome=failure&q=flaky": {"Make the flaky scheduler"},
	"/ui/batches":                      {"nightly-fixes", "another-batch"},
	"/ui/batches/nightly-fixes":        {"check_failed", "Review the migration", "$1.85", "of the budget of $7.77"},
	"/ui/batches/nightly-fixes/report": {"check_failed", "Slowest", "$1.85", "cost of $7.77", "go.sum", "item-0</a>, <a", "Items that run", "accounts.sql", "Merge in this order: "},
	"/ui/queues":                       {"low-priority-maintenance", "paused", "gpu", "$43.21", "class=\"warn\">86%"},
	"/ui/workers":                      {"build-7", "less than the reserve"},
	"/ui/schedules":                    {"Europe/Vienna", "every 1h", "paused"},
	"/ui/dead":                         {"Backport the parser fix", "promt: is not a field"},
	"/ui/webhooks":                     {"ci-results", "https://ci.example/hooks/penstock"},
	"/ui/webhooks/ci-results":          {"upstream connect error", "retrying", "delivered"},
	"/ui/webhooks/ci-results?failed":   {"upstream connect error"},
	"/ui/tokens":                       {"screen-on-the-wall", "submitter"},
	"/ui/jobs?queue=gpu&state=pending": {"Supercalifragilistic"},
	"/ui/jobs?label=team%3Dscheduling": {"Make the flaky scheduler"},
	"/ui/jobs?reason=check_failed":     {"Make the flaky scheduler"},
	"/ui/jobs?q=nothing-like-it":       {"No job matches."},
	"/ui/dead?kind=submission":         {"promt: is not a field"},
}

// Every page shows what the pool has, to those who may see it, and buttons to those who
// may use them.
func TestPages(t *testing.T) {
	t.Parallel()
	p, empty := open(t), open(t)
	p.fill()
	for path, wanted := range pages {
		if !strings.HasPrefix(path, "/ui/batches/nightly-fixes") && !strings.HasPrefix(path, "/ui/webhooks/") {
			empty.page("operator", path)
		}
		body := p.page("operator", path)
		for _, text := range wanted {
			if !strings.Contains(body, text) {
				t.Errorf("%s has no %q: %s", path, text, body[strings.Index(body, "<main"):])
			}
		}
		if got := p.ask("submitter", "GET "+path, nil); got.status != http.StatusForbidden && path != "/ui/" && !strings.HasPrefix(path, "/ui/batches/") {
			t.Errorf("%s for a submitter: %d", path, got.status)
		}
		viewed := p.ask("viewer", "GET "+path, nil)
		if path == "/ui/tokens" {
			if viewed.status != http.StatusForbidden {
				t.Errorf("tokens for a viewer: %d", viewed.status)
			}
			continue
		}
		main := viewed.body[strings.Index(viewed.body, "<main"):strings.Index(viewed.body, "</main>")]
		if strings.Contains(main, `method="post"`) || strings.Contains(main, "<button class") || strings.Contains(main, "checkbox") {
			t.Errorf("%s offers a viewer actions: %s", path, main)
		}
		if !strings.Contains(body[strings.Index(body, "<main"):], "post") && strings.Contains("/ui/queues /ui/schedules /ui/dead /ui/tokens /ui/batches /ui/jobs", path) {
			t.Errorf("%s offers an operator no action", path)
		}
	}
	if body := p.page("autoscale", "/ui/"); strings.Contains(body, "/ui/jobs") || strings.Contains(body, "Two callers") || !strings.Contains(body, "low-priority-maintenance") {
		t.Errorf("an autoscaler sees %s", body)
	}
}

// The newest jobs come first, and pages follow each other without a gap.
func TestPaging(t *testing.T) {
	t.Parallel()
	p := open(t)
	var ids []string
	for range 120 {
		ids = append(ids, p.submit(prompt("needle")).ID)
	}
	for _, path := range []string{"/ui/jobs", "/ui/jobs?q=needle"} {
		var seen []string
		for next := path; next != "" && len(seen) < 200; {
			body := p.page("viewer", next)
			for part := range strings.SplitSeq(body, `href="/ui/jobs/`) {
				if id, _, ok := strings.Cut(part, `"`); ok && len(id) == 36 {
					seen = append(seen, id)
				}
			}
			next = ""
			if before, _, more := strings.Cut(body, `">Next page`); more {
				next = strings.ReplaceAll(before[strings.LastIndex(before, `href="`)+len(`href="`):], "&amp;", "&")
			}
		}
		if len(seen) != 120 || seen[0] != ids[119] || seen[119] != ids[0] {
			t.Errorf("%s: %d jobs of %d", path, len(seen), len(ids))
		}
	}
}

// What a role may not do is refused, whatever is sent; so is what another origin sends,
// and everything in a dashboard for reading.
func TestForgedActions(t *testing.T) {
	t.Parallel()
	p, only := open(t), open(t, func(cfg *dashboard.Config) { cfg.ReadOnly = true })
	for _, p := range []*pool{p, only} {
		p.fill()
	}
	id := p.submit().ID
	for _, path := range []string{
		"/ui/bulk/cancel", "/ui/bulk/retry", "/ui/queues/gpu/pause", "/ui/queues/low-priority-maintenance/resume", "/ui/batches/another-batch/pause", "/ui/batches/another-batch/resume",
		"/ui/batches/another-batch/cancel", "/ui/queues/gpu/drain", "/ui/workers/build-7/drain", "/ui/workers/build-7/resume", "/ui/schedules/dependencies/run", "/ui/schedules/dependencies/pause", "/ui/schedules/dependencies/resume",
		"/ui/dead/" + id + "/retry", "/ui/dead/" + id + "/drop", "/ui/tokens/ci/remove", "/ui/webhooks/ci-results/test", "/ui/deliveries/1/redeliver",
	} {
		form := url.Values{"id": {id}, "reason": {string(jobs.CheckFailed)}}
		if got := p.ask("viewer", "POST "+path, form); got.status != http.StatusForbidden {
			t.Errorf("a viewer at %s: %d", path, got.status)
		}
		if got := p.ask("", "POST "+path, form); got.status != http.StatusSeeOther || got.header.Get("Location") != "/ui/login" {
			t.Errorf("a stranger at %s: %d %v", path, got.status, got.header)
		}
		if got := p.ask("operator", "POST "+path, form, "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden {
			t.Errorf("another origin at %s: %d", path, got.status)
		}
		if got := p.ask("operator", "GET "+path, nil); got.status != http.StatusNotFound {
			t.Errorf("a link to %s: %d", path, got.status)
		}
		if got := only.ask("operator", "POST "+path, form); got.status != http.StatusForbidden || !strings.Contains(got.body, "reading only") {
			t.Errorf("read only, at %s: %d", path, got.status)
		}
	}
	if rec, err := p.client.Get(jobstest.Context(t), id); err != nil || rec.State != jobs.Pending {
		t.Errorf("the job is %s: %v", rec.State, err)
	}
	for path := range pages {
		body := only.page("operator", path)
		if main := body[strings.Index(body, "<main"):strings.Index(body, "</main>")]; strings.Contains(main, `method="post"`) {
			t.Errorf("read only, %s has actions: %s", path, main)
		}
	}
}
