package dashboard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
)

// evil would be an element, an attribute, a script or a template action wherever a page took
// it for more than text.
const evil = `"'><img src=x onerror=alert(1)></textarea></title><script>alert(1)</script><a href="javascript:alert(1)" style="position:fixed" hx-get="/ui/logout">{{.}} --><svg/onload=alert(1)>`

// expected are the elements and attributes that pages have.
var expected = map[string][]string{
	"html": {"lang"}, "head": nil, "body": {"data-refresh", "data-stream"}, "meta": {"charset", "name", "content"}, "title": nil, "link": {"rel", "href", "type"}, "script": {"src", "defer"},
	"a": {"class", "href", "aria-current"}, "header": {"class"}, "img": {"src", "width", "height", "alt"}, "nav": {"class", "aria-label"}, "ul": {"class"}, "li": nil, "div": {"class"},
	"button": {"type", "class", "id", "hidden", "aria-pressed", "aria-label", "name", "value", "formaction"}, "span": {"class", "title", "data-checked", "role"}, "p": {"class", "id", "role"},
	"form":  {"method", "action", "class", "aria-label", "role", "hx-post", "hx-target", "hx-select", "hx-swap", "hx-confirm"},
	"input": {"type", "name", "value", "placeholder", "size", "data-all", "hidden", "aria-label", "id", "required", "autocomplete", "autocapitalize", "spellcheck", "aria-describedby"}, "label": {"for"}, "select": {"name"}, "option": {"selected", "value"}, "main": {"id", "tabindex", "data-age", "data-next"},
	"h1": nil, "h2": {"id"}, "section": {"class", "aria-labelledby"}, "table": {"class", "aria-labelledby"}, "caption": {"class"}, "thead": nil, "tbody": nil, "tr": nil, "th": {"scope", "class"},
	"td": {"class", "data-label"}, "time": {"datetime", "title"}, "code": nil, "pre": {"tabindex"}, "details": nil, "summary": nil, "footer": nil, "dl": {"class"}, "dt": nil, "dd": nil,
	"svg": {"class", "viewBox", "preserveAspectRatio", "role", "aria-label"}, "rect": {"class", "width", "height", "x"},
}

// fillEvil puts hostile text into every field that agents, senders and issues control.
func (p *pool) fillEvil() {
	t, ctx := p.t, jobstest.Context(p.t)
	t.Helper()
	hostile := func(job *jobs.Job) {
		job.Prompt, job.Key = evil, evil+jobs.NewID()
		job.Labels = map[string]string{"a": evil, "b": evil}
		job.Batch, job.Item = "evil", evil[:60]
	}
	p.ended(jobs.Ended{Outcome: jobs.Error, Reason: jobs.InvalidJob, Message: evil}, hostile)
	p.ended(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: evil}, hostile)
	for range 2 { // their patches meet in a file of a hostile name
		p.endedWith(strings.ReplaceAll(patch, "go.sum", "<img src=x onerror=alert(1)>"), jobs.Ended{Outcome: jobs.Success}, hostile)
	}
	runs := p.submit(hostile)
	must(t, overlap.Of(p.queue.Workers()).Note(ctx, runs.ID, jobs.Overlap{Job: jobs.NewID(), Files: []string{evil}, Lines: []string{evil}}))
	p.asks(jobstest.Claim(t, p.queue, "w"), jobs.OpenAsk{Ask: evil, Type: "question", Question: evil, Since: time.Now(), Open: 1})
	p.submit(hostile)
	_, err := jobstest.Claim(t, p.queue, "w").Park(ctx, evil, time.Now().Add(time.Hour))
	must(t, err)
	p.submit(hostile)
	must(t, p.queue.Workers().Present(ctx, why.Worker{Name: "w", Queues: []string{evil}, Labels: []string{evil}, Slots: 1, Closed: evil, Started: time.Now()}))
	must(t, p.queue.Reject(ctx, queue.Submission{ID: jobs.NewID(), Tenant: "default", At: time.Now(), Data: []byte(evil)}, errors.New(evil)))
	p.delivers("evil", operation.Delivery{State: operation.DeliveryRetried, Status: 500, Error: evil, Response: evil, Attempt: 1})
}

// Whatever text a stranger puts into a pool is text on every page: no element, attribute or
// address comes of it.
func TestHostileText(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fillEvil()
	seen := 0
	for _, path := range []string{
		"/ui/", "/ui/jobs", "/ui/jobs?q=" + "%22%27%3E%3Cimg+src%3Dx", "/ui/jobs?label=%3Cscript%3E&reason=%22%3E%3Cb%3E&queue=%22onfocus%3D1", "/ui/batches", "/ui/batches/evil", "/ui/batches/evil/report", "/ui/bulk/jobs/retry?batch=evil", "/ui/bulk/jobs/cancel?q=onerror&label=%22%3E%3Cb%3E", "/ui/bulk/dead/drop?reason=%22%3E%3Cb%3E", "/ui/bulk/dead/drop", "/ui/batches?after=%22%3E%3Cb%3E", "/ui/queues",
		"/ui/workers", "/ui/schedules", "/ui/dead", "/ui/dead?reason=%22%3E%3Cb%3E&after=%22%3E", "/ui/tokens", "/ui/webhooks", "/ui/webhooks/evil", "/ui/%3Cscript%3E", "/ui/batches/%3Cscript%3E", "/ui/jobs?done=%3Cscript%3E&n=%3Cb%3E",
		"/ui/login?next=%22%3E%3Cb%3E", "/ui/queues?done=batch-cancelled&n=%3Cb%3E",
	} {
		got := p.ask("operator", "GET "+path, nil)
		if policy := got.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %s", path, policy)
		}
		root, err := html.Parse(strings.NewReader(got.body))
		must(t, err)
		for node := range root.Descendants() {
			if node.Type == html.TextNode && strings.Contains(node.Data, "onerror=alert(1)") {
				seen++
			}
			if node.Type == html.ElementNode {
				checkElement(t, path, node)
			}
		}
	}
	if seen < 15 {
		t.Errorf("the hostile text is shown %d times: the test looks at nothing", seen)
	}
}

// checkElement refuses an element that a page of ours does not have.
func checkElement(t *testing.T, path string, node *html.Node) {
	t.Helper()
	allowed, known := expected[node.Data]
	if !known {
		t.Errorf("%s has an element %s", path, node.Data)
	}
	for _, attribute := range node.Attr {
		if !slices.Contains(allowed, attribute.Key) {
			t.Errorf("%s: <%s> has an attribute %s=%q", path, node.Data, attribute.Key, attribute.Val)
		}
		switch attribute.Key {
		case "href", "src", "action", "formaction", "hx-post", "data-stream":
			if !strings.HasPrefix(attribute.Val, "/ui/") && attribute.Val != "#main" && attribute.Val != "/v1/stream" && !strings.HasPrefix(attribute.Val, "/v1/batches/evil/report") || strings.Contains(attribute.Val, "..") {
				t.Errorf("%s: <%s> leads to %q", path, node.Data, attribute.Val)
			}
		}
	}
}
