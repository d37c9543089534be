package jobpage_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/dashboard/jobpage"
	"github.com/penstock-run/penstock/jobs"
)

// Terminals are for operators, and for reading where the dashboard is. The policy of their
// page is that of all others.
func TestTheTabOfTerminals(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	base := "/ui/jobs/" + job.id
	for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter} {
		if got := p.page(role, base); strings.Contains(got, "/terminal\"") {
			t.Errorf("a %s has the tab", role)
		}
		if got := p.ask(role, "GET "+base+"/terminal", nil); got.status != http.StatusForbidden {
			t.Errorf("a %s: %d", role, got.status)
		}
	}
	if got := p.page(jobs.RoleOperator, base); !strings.Contains(got, `href="`+base+`/terminal"`) || strings.Contains(got, "xterm") {
		t.Errorf("the page of the session has no tab, or the scripts of terminals: %s", got)
	}
	got := p.ask(jobs.RoleOperator, "GET "+base+"/terminal", nil)
	policy := got.header.Get("Content-Security-Policy")
	if policy != p.ask(jobs.RoleOperator, "GET "+base, nil).header.Get("Content-Security-Policy") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
	for _, text := range []string{`data-attach="/v1/jobs/` + job.id + `/attach"`, `id="open-terminal"`, "/ui/static/xterm.js?v=", "penstock attach " + job.id} {
		if !strings.Contains(got.body, text) {
			t.Errorf("no %s: %s", text, got.body)
		}
	}
	pages := dashboard.New(dashboard.Config{Client: p.client, Authenticate: identities, Sections: []dashboard.Section{jobpage.Section()}, ReadOnly: true})
	p.stop()
	p.config.Pages = pages.Serve
	p.listen("127.0.0.1:0")
	if got := p.page(jobs.RoleOperator, base+"/terminal"); !strings.Contains(got, " data-watch") || strings.Contains(got, "open-terminal") {
		t.Errorf("where pages are for reading: %s", got)
	}
	job.finish(jobs.Ended{Outcome: jobs.Success})
	if got := p.page(jobs.RoleOperator, base+"/terminal"); !strings.Contains(got, "The job has ended") || strings.Contains(got, "data-attach") {
		t.Errorf("of a finished job: %s", got)
	}
}
