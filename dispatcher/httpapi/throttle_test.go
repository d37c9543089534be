package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Whoever asks too often is told when to ask again. Neither other identities are affected
// nor, by strangers at the same address, those that have a credential.
func TestRates(t *testing.T) {
	t.Parallel()
	p := open(t)
	cfg := p.config()
	cfg.Rate = 0.01 // one, and another after 100 s
	p.url = p.serve(cfg)
	for i, tt := range []struct {
		role   jobs.Role
		status int
	}{
		{"wrong", 401}, {"", 429}, {"other", 429},
		{jobs.RoleViewer, 200}, {jobs.RoleViewer, 429}, {jobs.RoleOperator, 200}, {jobs.RoleOperator, 429},
	} {
		got := p.ask(tt.role, "GET /v1/version", "")
		if got.status != tt.status {
			t.Errorf("request %d, as %q: %d %s", i, tt.role, got.status, got.body)
		}
		if got.status != http.StatusTooManyRequests {
			continue
		}
		if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 100 || got.problem(t).Code != "too_many_requests" {
			t.Errorf("request %d: Retry-After is %q: %s", i, got.header.Get("Retry-After"), got.body)
		}
	}
}

// Requests without an identity, and those that a role may not make, are in the audit log:
// some of many, and how many more there were.
func TestRefusalsAreAudited(t *testing.T) {
	t.Parallel()
	p := open(t)
	log := jobstest.Audit(t, p.nc)
	cfg := p.config()
	cfg.Refused = func(ctx context.Context, e operation.AuditEntry) {
		if err := log.Append(ctx, e); err != nil {
			t.Error(err)
		}
	}
	url, stop := p.listenAs(cfg, "127.0.0.1:0", nil)
	p.url = url
	for range 20 {
		p.ask("guessed", "GET /v1/jobs", "")
	}
	p.ask(jobs.RoleViewer, "POST /v1/jobs/some-job/cancel", "{}")
	p.ask(jobs.RoleViewer, "GET /v1/jobs", "")
	stop()
	page, err := log.Read(jobstest.Context(t), operation.AuditRequest{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page.Entries {
		got = append(got, fmt.Sprintf("%s %s by %s %s: %s via %s", e.Operation, e.About, e.Who, e.Role, e.Outcome, e.Via))
	}
	stranger := "authenticate 127.0.0.1 by unknown : unauthenticated via http\n"
	want := strings.Repeat(stranger, 5) + "cancel some-job by token-viewer viewer: forbidden via http\nauthenticate 15 more requests by unknown : refused via http"
	if strings.Join(got, "\n") != want {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
