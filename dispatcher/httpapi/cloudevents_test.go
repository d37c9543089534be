package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// CloudEvents come in the three modes of HTTP. The same event again is the same job, and
// in a batch one that is no job does not keep the others out.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := plain(t)
	event := func(id, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/ci","type":"x","data":%s}`, id, data)
	}
	post := func(body string, headers ...string) answer {
		return p.ask(jobs.RoleSubmitter, "POST /v1/events", body, headers...)
	}
	binary := func(id string) []string {
		return []string{"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", id, "ce-source", "/ci", "ce-type", "x"}
	}
	single := []string{"Content-Type", "application/cloudevents+json; charset=utf-8"}
	first := want[httpapi.Taken](t, post(job, binary("1")...), http.StatusOK).Jobs
	again := want[httpapi.Taken](t, post(event("1", job), single...), http.StatusOK).Jobs
	if len(first) != 1 || len(again) != 1 || first[0].Duplicate || !again[0].Duplicate || first[0].ID != again[0].ID || again[0].Event != "1" {
		t.Errorf("an event in two modes: %+v, %+v", first, again)
	}
	batch := want[httpapi.Taken](t, post("["+event("1", job)+","+event("2", `{"promt":"x"}`)+","+event("3", job)+"]", "Content-Type", "application/cloudevents-batch+json"), http.StatusOK).Jobs
	if len(batch) != 3 || batch[0].ID != first[0].ID || batch[1].Submitted != nil || batch[1].Code != jobs.CodeInvalid || !strings.Contains(batch[1].Error, "promt") || batch[2].ID == "" || batch[2].Duplicate {
		t.Errorf("a batch: %+v", batch)
	}
	if none := want[httpapi.Taken](t, post("[]", "Content-Type", "application/cloudevents-batch+json"), http.StatusOK); len(none.Jobs) != 0 {
		t.Errorf("an empty batch: %+v", none)
	}
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		field   string
	}{
		"no event":        {job, []string{"Content-Type", "application/json"}, 400, "(body)"},
		"no id":           {event("", job), single, 400, "id"},
		"no job":          {event("4", `{"promt":"x"}`), single, 400, "promt"},
		"text":            {event("4", `"x"`), single, 400, "(job)"},
		"another version": {job, []string{"Content-Type", "application/json", "ce-specversion", "0.3"}, 400, "specversion"},
		"a form":          {"a=b", []string{"Content-Type", "application/x-www-form-urlencoded", "ce-specversion", "1.0"}, 415, ""},
		"nothing":         {"", single, 400, "(event)"},
	} {
		got := post(c.body, c.headers...)
		field := ""
		if fields := got.problem(t).Fields; len(fields) > 0 {
			field = fields[0].Field
		}
		if got.status != c.status || field != c.field {
			t.Errorf("%s: %d %s, want %d about %q", name, got.status, got.body, c.status, c.field)
		}
	}
	if got := p.ask(jobs.RoleSubmitter, "POST /v1/jobs", event("5", job), single...); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("an event where a job is expected: %d %s", got.status, got.body)
	}
	if listed := want[operation.Listed](t, p.ask(jobs.RoleViewer, "GET /v1/jobs", ""), http.StatusOK); len(listed.Jobs) != 2 {
		t.Errorf("the pool has %d jobs, want those of events 1 and 3", len(listed.Jobs))
	}
}
