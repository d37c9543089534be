package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// audited reads the whole log, in pages of so many entries.
func (p pool) audited(t *testing.T, r operation.AuditRequest) []operation.AuditEntry {
	t.Helper()
	var all []operation.AuditEntry
	for {
		page, err := request(t, p, operation.Audit, r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Entries...)
		if r.After = page.Next; !page.More {
			return all
		}
	}
}

// Each operation that changes something is in the log once, also when it is refused or
// its request cannot be read, and no other one is.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	p := open(t)
	for _, row := range operation.All() {
		p.raw(t, row.Name, `{"colour":"s3cret"}`)
		p.raw(t, row.Name, `{"id":"nothing","name":"nothing"}`)
	}
	counts := map[string]int{}
	for _, e := range p.audited(t, operation.AuditRequest{Limit: 7}) {
		counts[e.Operation]++
		if e.Outcome == "ok" || e.Who != "unsaid" || e.Via != "bus" || e.At.IsZero() {
			t.Errorf("the entry is %+v", e)
		}
		if text := fmt.Sprintf("%+v", e); strings.Contains(text, "s3cret") {
			t.Errorf("the log has what was asked: %s", text)
		}
	}
	for _, row := range operation.All() {
		if want := map[bool]int{true: 2}[row.Changes]; counts[row.Name] != want {
			t.Errorf("%s is in the log %d times, want %d", row.Name, counts[row.Name], want)
		}
	}
}

// An entry names the thing, who asked, and what came of it; a page goes on where the one
// before has ended, whatever is selected.
func TestWhatAnEntrySays(t *testing.T) {
	t.Parallel()
	p := open(t)
	c, err := client.Open(jobstest.Context(t), p.nc, client.Config{By: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	before := time.Now().Add(-time.Minute)
	job := jobstest.Job()
	job.Isolation, job.Prompt = jobs.IsolationNone, "s3cret"
	made, err := c.Submit(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	web := c.As("http").OnBehalf("ci", jobs.RoleSubmitter, "http")
	if _, err := web.Cancel(ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	if err := web.Schedules().Remove(ctx, "nightly"); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	want := []string{
		"submit " + made.ID + " batch  bus ok",
		"cancel " + made.ID + " ci submitter http ok",
		"schedule-remove nightly ci submitter http not_found",
	}
	stored := p.audited(t, operation.AuditRequest{})
	if len(stored) != len(want) {
		t.Fatalf("the log has %+v", stored)
	}
	for _, c := range []struct {
		request operation.AuditRequest
		want    []string
	}{
		{operation.AuditRequest{Since: &stored[0].At}, want},
		{operation.AuditRequest{Since: &stored[1].At, Limit: 1}, want[1:]},
		{operation.AuditRequest{Since: &stored[2].At}, want[2:]},
		{operation.AuditRequest{}, want},
		{operation.AuditRequest{Limit: 1}, want},
		{operation.AuditRequest{Since: &before}, want},
		{operation.AuditRequest{Since: new(time.Now().Add(time.Hour))}, nil},
		{operation.AuditRequest{Who: "ci"}, want[1:]},
		{operation.AuditRequest{Operation: "cancel"}, want[1:2]},
		{operation.AuditRequest{About: made.ID, Limit: 1}, want[:2]},
		{operation.AuditRequest{Who: "nobody"}, nil},
	} {
		var got []string
		for _, e := range p.audited(t, c.request) {
			got = append(got, fmt.Sprint(e.Operation, " ", e.About, " ", e.Who, " ", e.Role, " ", e.Via, " ", e.Outcome))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%+v selects %q, want %q", c.request, got, c.want)
		}
	}
	msg, err := p.nc.Request("$JS.API.STREAM.MSG.GET.PS_AUDIT", []byte(`{"seq":1}`), jobstest.Patience)
	if err != nil || strings.Contains(string(msg.Data), "s3cret") {
		t.Errorf("the stream has %s, %v", msg.Data, err)
	}
}

// A reader that waits hears of the next entry, and of nothing in between.
func TestFollowingTheAudit(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.submitted(t) // by the dispatcher itself, which is no request
	var page operation.AuditPage
	var g errgroup.Group
	g.Go(func() (err error) {
		page, err = request(t, p, operation.Audit, operation.AuditRequest{For: jobs.Duration(operation.MaxWait), Operation: "cancel"})
		return err
	})
	p.raw(t, "retry", `{"id":"nothing"}`)
	p.raw(t, "cancel", `{"id":"nothing"}`)
	if err := g.Wait(); err != nil || len(page.Entries) != 1 || page.Entries[0].Outcome != "not_found" {
		t.Errorf("got %+v, %v", page, err)
	}
}

// No client can remove an entry, the operator's credential or not.
func TestEntriesStay(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.raw(t, "cancel", `{"id":"nothing"}`)
	for verb, body := range map[string]string{"MSG.DELETE": `{"seq":1}`, "PURGE": `{}`} {
		msg, err := p.nc.Request("$JS.API.STREAM."+verb+".PS_AUDIT", []byte(body), jobstest.Patience)
		if err != nil || !strings.Contains(string(msg.Data), `"error"`) {
			t.Errorf("%s: %s, %v", verb, msg.Data, err)
		}
	}
	var info struct {
		Config map[string]any `json:"config"`
	}
	msg, err := p.nc.Request("$JS.API.STREAM.INFO.PS_AUDIT", nil, jobstest.Patience)
	if err := errors.Join(err, json.Unmarshal(msg.Data, &info)); err != nil {
		t.Fatal(err)
	}
	info.Config["deny_delete"], info.Config["deny_purge"] = false, false
	body, err := json.Marshal(info.Config)
	if err != nil {
		t.Fatal(err)
	}
	if msg, err = p.nc.Request("$JS.API.STREAM.UPDATE.PS_AUDIT", body, jobstest.Patience); err != nil || !strings.Contains(string(msg.Data), `"error"`) {
		t.Errorf("take the protection back: %s, %v", msg.Data, err)
	}
	// Nor does a message with a rollup replace what is there.
	rollup := nats.NewMsg("penstock.v1.audit.cancel")
	rollup.Header.Set("Nats-Rollup", "all")
	if msg, err = p.nc.RequestMsg(rollup, jobstest.Patience); err != nil || !strings.Contains(string(msg.Data), `"error"`) {
		t.Errorf("roll up: %s, %v", msg.Data, err)
	}
	if got := p.audited(t, operation.AuditRequest{}); len(got) != 1 {
		t.Errorf("%d entries are left", len(got))
	}
}

// Where the log takes no entry the pool works, and the dispatcher's log has the entry.
func TestALogThatTakesNothing(t *testing.T) {
	t.Parallel()
	p := open(t)
	if msg, err := p.nc.Request("$JS.API.STREAM.DELETE.PS_AUDIT", nil, jobstest.Patience); err != nil || strings.Contains(string(msg.Data), `"error"`) {
		t.Fatal(string(msg.Data), err)
	}
	if _, err := request(t, p, operation.Cancel, operation.Ref{ID: p.submitted(t)}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	select {
	case e := <-p.unrecorded:
		if e.Operation != "cancel" || e.Outcome != "ok" {
			t.Errorf("the log was told %+v", e)
		}
	case <-time.After(jobstest.Patience):
		t.Error("the log was told nothing")
	}
}
