package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
)

const (
	sender = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	other  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// A job is part of the trace of the request that submits it, unless it names another one.
// What is no trace in a header does no harm, and in the job it is refused.
func TestTracesOverHTTP(t *testing.T) {
	t.Parallel()
	p := open(t)
	own := plain(t, func(job *jobs.Job) { job.Trace = jobs.Trace{Parent: other} })
	for name, c := range map[string]struct {
		body, traceparent, tracestate, want, state string
	}{
		"a header":               {plain(t), sender, "a=1", sender, "a=1"},
		"the job's own":          {own, sender, "a=1", other, ""},
		"none":                   {plain(t), "", "a=1", "", ""},
		"not hexadecimal":        {plain(t), strings.Replace(sender, "4bf9", "4bfg", 1), "", "", ""},
		"zeros":                  {plain(t), "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "", "", ""},
		"a long one":             {plain(t), strings.Repeat("0", 10_000), "", "", ""},
		"a tracestate of 10 kB":  {plain(t), sender, "a=" + strings.Repeat("x", 10_000), sender, ""},
		"a tracestate that lies": {plain(t), sender, "a=1,a=2", sender, ""},
	} {
		headers := []string{"Traceparent", c.traceparent, "Tracestate", c.tracestate}
		made := want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs", c.body, headers...), http.StatusCreated)
		rec := want[jobs.Record](t, p.ask(jobs.RoleViewer, "GET /v1/jobs/"+made.ID, ""), http.StatusOK)
		expected := jobs.Trace{Parent: c.want, State: c.state}
		if c.want == "" {
			expected = jobs.RootTrace(made.ID)
		}
		if rec.Trace != expected {
			t.Errorf("%s: the job is part of %+v, want %+v", name, rec.Trace, expected)
		}
	}
	for trace, field := range map[string]string{`{"traceparent":"x"}`: "trace.traceparent", `{"traceparent":"` + sender + `","tracestate":"a\nb"}`: "trace.tracestate"} {
		body := strings.Replace(plain(t), "{", `{"trace":`+trace+`,`, 1)
		got := p.ask(jobs.RoleSubmitter, "POST /v1/jobs", body, "Traceparent", sender)
		if fields := got.problem(t).Fields; got.status != http.StatusBadRequest || len(fields) != 1 || fields[0].Field != field {
			t.Errorf("a job with trace %s: %d %s", trace, got.status, got.body)
		}
	}
}

// Each event of a batch is part of its own trace, where it has one, and else of the
// request's. Of one event alone the request knows the nearer span.
func TestTracesOfCloudEvents(t *testing.T) {
	t.Parallel()
	p := open(t)
	event := func(id, more string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/ci","type":"x",%s"data":%s}`, id, more, plain(t))
	}
	traced := `"traceparent":"` + other + `",`
	for name, c := range map[string]struct {
		media, body, header string
		want                []string
	}{
		"a batch":     {"-batch", "[" + event("1", traced) + "," + event("2", "") + "]", sender, []string{other, sender}},
		"one event":   {"", event("3", traced), "", []string{other}},
		"both":        {"", event("4", traced), sender, []string{sender}},
		"a bad one":   {"", event("5", `"traceparent":"x",`), "", []string{""}},
		"of a number": {"", event("6", `"traceparent":1,`), "", []string{""}},
	} {
		got := p.ask(jobs.RoleSubmitter, "POST /v1/events", c.body, "Content-Type", "application/cloudevents"+c.media+"+json", "Traceparent", c.header)
		for i, taken := range want[httpapi.Taken](t, got, http.StatusOK).Jobs {
			rec := want[jobs.Record](t, p.ask(jobs.RoleViewer, "GET /v1/jobs/"+taken.ID, ""), http.StatusOK)
			expected := c.want[i]
			if expected == "" {
				expected = jobs.RootTrace(taken.ID).Parent
			}
			if rec.Trace.Parent != expected {
				t.Errorf("%s: job %d is part of %s, want %s", name, i, rec.Trace.Parent, expected)
			}
		}
	}
}
