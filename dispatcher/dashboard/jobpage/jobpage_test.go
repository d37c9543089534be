package jobpage_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/dashboard/jobpage"
	"github.com/penstock-run/penstock/dispatcher/dashboard/poolpages"
	"github.com/penstock-run/penstock/dispatcher/dashboard/transcript"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is a dispatcher on a real broker, with pages.
type pool struct {
	t      *testing.T
	queue  *queue.Queue
	log    *session.Log
	store  *artifact.Store
	client *client.Client
	config httpapi.Config
	url    string
	stop   func()
	opens  func(jobs.Job) error // of pull requests; nil: the pool opens none
}

func open(t *testing.T, with ...func(*pool)) *pool {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	p := &pool{t: t, queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc)}
	for _, change := range with {
		change(p)
	}
	p.dispatch(nc)
	var err error
	if p.client, err = client.Open(jobstest.Context(t), nc, client.Config{}); err != nil {
		t.Fatal(err)
	}
	pages := dashboard.New(dashboard.Config{Client: p.client, Authenticate: identities, PullRequests: p.opens, Sections: []dashboard.Section{jobpage.Section(), poolpages.Section()}})
	changes, err := feed.New(nc, feed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.config = httpapi.Config{Changes: changes.Follow, Client: p.client, Authenticate: identities, Pages: pages.Serve}
	p.listen("127.0.0.1:0")
	return p
}

func (p *pool) dispatch(nc *nats.Conn) {
	d := dispatcher.New(dispatcher.Config{Queue: p.queue, Log: p.log, Store: p.store, PullRequests: p.opens})
	server := api.New(api.Config{Dispatcher: d, Queue: p.queue, Log: p.log, Store: p.store, Tokens: jobstest.Tokens(p.t, nc), Audit: jobstest.Audit(p.t, nc), PullRequests: p.opens})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			p.t.Errorf("serve: %v", err)
		}
	})
}

// listen serves on an address until stop, or the end of the test.
func (p *pool) listen(address string) {
	p.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := httpapi.New(p.config)
	go func() { done <- server.Serve(ctx, l, nil) }()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("serve HTTP: %v", err)
		}
	}
	p.t.Cleanup(p.stop)
	p.url = "http://" + l.Addr().String()
}

// identities are the tokens of the tests: each role's name is its token.
func identities(r *http.Request) (httpapi.Identity, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if role := jobs.Role(token); slices.Contains(jobs.Roles, role) {
		return httpapi.Identity{Name: "token-" + token, Role: role}, nil
	}
	return httpapi.Identity{}, httpapi.ErrUnauthenticated
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (p *pool) ask(role jobs.Role, request string, form url.Values) answer {
	p.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(jobstest.Context(p.t), method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	r.AddCookie(&http.Cookie{Name: "penstock", Value: string(role)})
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

// page is a page that must be there.
func (p *pool) page(role jobs.Role, path string) string {
	p.t.Helper()
	got := p.ask(role, "GET "+path, nil)
	if got.status != http.StatusOK {
		p.t.Fatalf("%s as %s: %d %.600s", path, role, got.status, got.body)
	}
	return got.body
}

// A running job has a writer of its session.
type running struct {
	*session.Writer
	p     *pool
	claim *queue.Claim
	id    string
}

func (p *pool) run() running {
	p.t.Helper()
	job := jobstest.Job()
	job.Prompt, job.Isolation = "Paint <b>it</b>", jobs.IsolationNone
	if _, err := p.client.Submit(jobstest.Context(p.t), job); err != nil {
		p.t.Fatal(err)
	}
	claim := jobstest.Claim(p.t, p.queue, "w<1>")
	rec := claim.Record()
	writer, err := p.log.Writer(jobstest.Context(p.t), session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()}, event.New(event.JobClaimed{Worker: rec.Worker, Epoch: claim.Epoch()}))
	if err != nil {
		p.t.Fatal(err)
	}
	return running{writer, p, claim, rec.ID}
}

func (r running) say(payloads ...event.Payload) {
	r.p.t.Helper()
	for _, payload := range payloads {
		if err := r.Append(jobstest.Context(r.p.t), event.New(payload)); err != nil {
			r.p.t.Fatal(err)
		}
	}
}

func (r running) finish(end jobs.Ended) {
	r.p.t.Helper()
	if _, err := r.claim.Settle(jobstest.Context(r.p.t), end, r.p.log.Finisher(r.p.store.Result)); err != nil {
		r.p.t.Fatal(err)
	}
}

// shown are the numbers of the stored events that a page shows, in their order.
func (r running) shown() []string {
	r.p.t.Helper()
	var numbers []string
	for e, err := range r.p.client.Events(jobstest.Context(r.p.t), r.id, 0) {
		if err != nil {
			r.p.t.Fatal(err)
		}
		if transcript.Shown(e.Kind) && e.Kind != jobs.InputState {
			numbers = append(numbers, fmt.Sprint(e.Seq))
		}
	}
	return numbers
}

// A follower is a browser that follows a session, as far as it counts here.
type follower struct {
	p    *pool
	url  string
	last string
	got  []string // numbers of the fragments
}

// read reads the stream until n fragments have come, or it is cut or over.
func (f *follower) read(n int) (over bool) {
	f.p.t.Helper()
	ctx, cancel := context.WithCancel(jobstest.Context(f.p.t))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.p.url+f.url, nil)
	if err != nil {
		f.p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer viewer")
	r.Header.Set("Accept", "text/event-stream")
	if f.last != "" {
		r.Header.Set("Last-Event-ID", f.last)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	lines, name, id := bufio.NewScanner(res.Body), "", ""
	lines.Buffer(nil, 1<<20)
	for n > 0 && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "":
			switch {
			case name == "end":
				return true
			case name == "fragment":
				f.got = append(f.got, id)
				n--
			}
			f.last, name = id, ""
		}
	}
	return false
}

// A page that follows a session has each event once and in order, over cuts of the
// connection and restarts of the server, beginning behind those that it was made with.
func TestFollowing(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	job.say(event.Message{Role: "assistant", Text: "first"})
	made := p.page(jobs.RoleViewer, "/ui/jobs/"+job.id)
	_, rest, _ := strings.Cut(made, `data-last="`)
	last, _, _ := strings.Cut(rest, `"`)
	f := &follower{p: p, url: "/ui/jobs/" + job.id + "/live?after=" + last}
	said := make(chan struct{})
	go func() {
		defer close(said)
		for n := range 60 {
			job.say(event.MessageDelta{Text: "not shown"}, event.Message{Role: "assistant", Text: fmt.Sprint("line\r\n\n", n)})
		}
		job.finish(jobs.Ended{Outcome: jobs.Success})
	}()
	address := strings.TrimPrefix(p.url, "http://")
	for cut := range 4 {
		if f.read(5 + cut) {
			t.Fatal("the stream has ended before the job")
		}
		if cut%2 == 1 {
			p.stop()
			p.listen(address)
		}
	}
	over := false
	for end := time.Now().Add(jobstest.Patience); !over && time.Now().Before(end); {
		over = f.read(1000)
	}
	<-said
	all := job.shown()
	at := slices.IndexFunc(all, func(n string) bool { return len(n) > len(last) || len(n) == len(last) && n > last })
	if want := all[at:]; !over || !slices.Equal(f.got, want) {
		t.Errorf("the stream (over: %v) had\n%v\nwant\n%v", over, f.got, want)
	}
	finished := p.page(jobs.RoleViewer, "/ui/jobs/"+job.id)
	for _, n := range all {
		if strings.Count(finished, `data-seq="`+n+`"`) != 1 {
			t.Errorf("event %s is %d times on the page", n, strings.Count(finished, `data-seq="`+n+`"`))
		}
	}
}

// Each tab is there, as a page of its own.
func TestTabs(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	job.say(event.CheckEnded{Check: jobs.Check{Command: "make <b>test</b>", Exit: 2, Seconds: 3, Tests: &jobs.Tests{Passed: 2, Failed: 1, FailedCases: []string{"pkg: <i>\x1b"}}}, Output: "\x1b[31mFAIL\x1b[0m"}, event.Message{Role: "assistant", Text: "hello"})
	patch := "diff --git a/x<b>.go b/x<b>.go\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new <script>\n"
	ctx := jobstest.Context(t)
	put := func(ctx context.Context, job string, epoch uint64, name string, r io.Reader) (jobs.Artifact, error) {
		if name == jobs.PatchName {
			return p.store.Put(ctx, job, epoch, name, r)
		}
		return p.store.PutSent(ctx, job, epoch, name, r)
	}
	for name, content := range map[string]string{jobs.PatchName: patch, "evil.html": "<script>"} {
		if _, err := put(ctx, job.id, job.claim.Epoch(), name, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	base := "/ui/jobs/" + job.id
	if got := p.page(jobs.RoleViewer, base+"/diff"); !strings.Contains(got, "when the job has finished") {
		t.Errorf("the diff of a running job: %s", got)
	}
	job.finish(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: "no <i>"})
	for path, wanted := range map[string][]string{
		"":               {"hello", "Paint &lt;b&gt;it&lt;/b&gt;", "check_failed", "w&lt;1&gt;"},
		"/diff":          {"<del>-old\n</del>", "new &lt;script&gt;", "+1 −1", "x&lt;b&gt;.go", "/v1/jobs/" + job.id + "/patch"},
		"/checks":        {"make &lt;b&gt;test&lt;/b&gt;", "exit code 2", "FAIL", "2 tests passed, 1 failed", "failed: pkg: &lt;i&gt;\\u001b"},
		"/attempts":      {"w&lt;1&gt;", "job.finished", "check_failed"},
		"/artifacts":     {"artifacts/agent/evil.html?epoch=", "download"},
		"/events":        {"message", "&#34;text&#34;: &#34;hello&#34;"},
		"/job":           {"penstock submit --job -", "curl ", "Paint"},
		"/head":          {"check_failed"},
		"/older":         {"hello"},
		"?before=4":      {"make", "To the newest events"},
		"/events?from=3": {`id="e3"`},
	} {
		got := p.page(jobs.RoleViewer, base+path)
		for _, text := range wanted {
			if !strings.Contains(got, text) {
				t.Errorf("%s lacks %q: %s", path, text, got)
			}
		}
		if strings.Contains(got, "<script>") || strings.Contains(got, "<img src=x") || strings.Contains(got, "\x1b") {
			t.Errorf("%s has an agent's text as it is", path)
		}
	}
	for request, status := range map[string]int{
		"GET " + base + "?before=x": 400, "GET " + base + "/live?after=-1": 400, "GET " + base + "/nothing": 404, "GET /ui/jobs/01a00000-0000-7000-8000-000000000000": 404,
	} {
		if got := p.ask(jobs.RoleViewer, request, nil); got.status != status {
			t.Errorf("%s: %d, want %d", request, got.status, status)
		}
	}
}

// Actions are for those who may, and for jobs in their state; what they do is done by the
// pool, in the name of who asks.
func TestActions(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	base := "/ui/jobs/" + job.id
	if got := p.page(jobs.RoleViewer, base); strings.Contains(got, "<form method=\"post\" action=\""+base) {
		t.Errorf("a viewer has actions: %s", got)
	}
	got := p.page(jobs.RoleSubmitter, base)
	for _, name := range []string{"interrupt", "stop", "cancel", "send"} {
		if !strings.Contains(got, `action="`+base+"/"+name+`"`) {
			t.Errorf("no action %s: %s", name, got)
		}
	}
	for _, name := range []string{"answer", "send", "interrupt", "stop", "cancel", "retry", "resume", "fork", "accept", "reject", "pull-request"} {
		if got := p.ask(jobs.RoleViewer, "POST "+base+"/"+name, url.Values{"text": {"x"}}); got.status != http.StatusForbidden {
			t.Errorf("%s by a viewer: %d", name, got.status)
		}
	}
	if got := p.ask(jobs.RoleSubmitter, "POST "+base+"/send", nil); got.status != http.StatusBadRequest || !strings.Contains(got.body, "text") {
		t.Errorf("a message without text: %d %s", got.status, got.body)
	}
	if got := p.ask(jobs.RoleSubmitter, "POST "+base+"/cancel", nil); got.status != http.StatusSeeOther || got.header.Get("Location") != base {
		t.Errorf("cancel: %d %s", got.status, got.body)
	}
	rec, err := p.client.Get(jobstest.Context(t), job.id)
	if err != nil || rec.Cancel == nil || rec.Cancel.By == "" {
		t.Errorf("after the cancel: %+v, %v", rec.Cancel, err)
	}
	job.finish(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed})
	if got := p.page(jobs.RoleSubmitter, base); !strings.Contains(got, `action="`+base+`/retry"`) || strings.Contains(got, `/interrupt"`) {
		t.Errorf("actions of a finished job: %s", got)
	}
	if got := p.ask(jobs.RoleSubmitter, "POST "+base+"/retry", nil); got.status != http.StatusSeeOther {
		t.Errorf("retry: %d %s", got.status, got.body)
	}
	if rec, err = p.client.Get(jobstest.Context(t), job.id); err != nil || rec.State == jobs.Finished {
		t.Errorf("after the retry: %s, %v", rec.State, err)
	}
}

// The page of a job names those that change the same files, whose names agents have chosen.
func TestJobsOfTheSameFiles(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := jobstest.Job()
	job.Repo.URL = "https://example.org/r.git"
	rec := jobstest.Submit(t, p.queue, job)
	jobstest.Claim(t, p.queue, "w")
	other := jobstest.Submit(t, p.queue, jobstest.Job()).ID
	found := jobs.Overlap{Job: other, Files: []string{"a\u202e<b>.go"}, Lines: []string{"a\u202e<b>.go"}}
	if err := overlap.Of(p.queue.Workers()).Note(t.Context(), rec.ID, found); err != nil {
		t.Fatal(err)
	}
	page := p.page(jobs.RoleViewer, "/ui/jobs/"+rec.ID)
	if !strings.Contains(page, `<a href="/ui/jobs/`+other+`">Beside it</a>: <span class="dim">job `+other+` changes the same files: a`) || strings.Contains(page, "<b>.go") || strings.Contains(page, "\u202e") {
		t.Errorf("the page says %s", page)
	}
}

// A result is accepted or rejected as the page showed it: a form for an older one is refused.
func TestReview(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	base := "/ui/jobs/" + job.id
	if got := p.page(jobs.RoleSubmitter, base); strings.Contains(got, `/accept"`) {
		t.Errorf("a job that runs can be accepted: %s", got)
	}
	job.finish(jobs.Ended{Outcome: jobs.Success})
	shown := p.page(jobs.RoleSubmitter, base)
	epoch := fmt.Sprint(job.claim.Epoch())
	if strings.Count(shown, `name="epoch" value="`+epoch+`"`) != 2 || !strings.Contains(shown, "<dd>unreviewed</dd>") {
		t.Errorf("the forms are not of epoch %s: %s", epoch, shown)
	}
	for _, step := range []struct {
		name, epoch string
		status      int
		want        jobs.ReviewState
	}{
		{"accept", "", http.StatusBadRequest, jobs.Unreviewed}, {"accept", "1" + epoch, http.StatusConflict, jobs.Unreviewed},
		{"accept", epoch, http.StatusSeeOther, jobs.Accepted}, {"reject", epoch, http.StatusSeeOther, jobs.Rejected},
	} {
		got := p.ask(jobs.RoleSubmitter, "POST "+base+"/"+step.name, url.Values{"epoch": {step.epoch}})
		rec, err := p.client.Get(jobstest.Context(t), job.id)
		if got.status != step.status || err != nil || rec.Reviewed() != step.want {
			t.Errorf("%+v: %d, %s, %v: %s", step, got.status, rec.Reviewed(), err, got.body)
		}
	}
	if got := p.page(jobs.RoleViewer, base); !strings.Contains(got, "<dd>rejected</dd>") {
		t.Errorf("the page does not say so: %s", got)
	}
	if got := p.page(jobs.RoleViewer, "/ui/jobs?review=rejected"); !strings.Contains(got, job.id) {
		t.Errorf("the list of what is rejected lacks it: %s", got)
	}
	if got := p.page(jobs.RoleViewer, "/ui/jobs?review=unreviewed"); strings.Contains(got, base+`"`) {
		t.Errorf("the list of what is not reviewed has it: %s", got)
	}
}

// The review leads from one unreviewed result to the next.
func TestInbox(t *testing.T) {
	t.Parallel()
	p := open(t)
	var list []running
	for range 3 {
		job := p.run()
		job.say(event.CheckEnded{Check: jobs.Check{Command: "make <test>", Seconds: 1}, Output: "all <b>good</b>"})
		job.finish(jobs.Ended{Outcome: jobs.Success})
		list = append(list, job)
	}
	leads := func(path, want string) {
		t.Helper()
		if got := p.ask(jobs.RoleOperator, "GET "+path, nil); got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), want) {
			t.Errorf("%s leads to %q (%d), want %q", path, got.header.Get("Location"), got.status, want)
		}
	}
	leads("/ui/review", "/ui/jobs/"+list[0].id+"/review")
	leads("/ui/review?after="+list[0].id, "/ui/jobs/"+list[1].id+"/review")
	leads("/ui/review?batch=none", "/ui/jobs?batch=none")
	for i, name := range []string{"accept", "reject"} {
		base := "/ui/jobs/" + list[i].id
		shown := p.page(jobs.RoleOperator, base+"/review?batch=")
		for _, want := range []string{"make &lt;test&gt;", "all &lt;b&gt;good&lt;/b&gt;", `action="` + base + "/" + name + `"`, "The job changed no files."} {
			if !strings.Contains(shown, want) {
				t.Errorf("the review has no %q: %s", want, shown)
			}
		}
		form := url.Values{"epoch": {fmt.Sprint(list[i].claim.Epoch())}, "inbox": {"1"}, "batch": {"//evil.example"}}
		if got := p.ask(jobs.RoleSubmitter, "POST "+base+"/"+name, form); got.status != http.StatusSeeOther || got.header.Get("Location") != "/ui/review?batch=%2F%2Fevil.example" {
			t.Errorf("%s leads to %q (%d)", name, got.header.Get("Location"), got.status)
		}
	}
	leads("/ui/review", "/ui/jobs/"+list[2].id+"/review")
	if viewed := p.page(jobs.RoleViewer, "/ui/jobs/"+list[2].id+"/review"); strings.Contains(viewed, `/accept"`) || strings.Contains(viewed, `/reject"`) {
		t.Errorf("a viewer may decide: %s", viewed)
	}
}

// The first page of a long session has its newest events, and no more than a phone takes
// in a second; the others follow, without a gap.
func TestALongSession(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	var batch []jobs.Event
	for n := range 10_000 {
		call := fmt.Sprint("toolu_", n/3)
		batch = append(batch, event.New([]event.Payload{
			event.Message{Role: "assistant", Text: strings.Repeat("I will look at this file. ", 8)},
			event.ToolStarted{Call: call, Name: "Bash", Kind: "execute", Input: []byte(`{"command":"go test ./...","description":"Run the tests"}`)},
			event.ToolEnded{Call: call, Name: "Bash", Output: strings.Repeat("ok\tgithub.com/penstock-run/penstock/jobs\t0.1s\n", 10)},
		}[n%3]))
		if len(batch) == 500 {
			if err := job.Append(jobstest.Context(t), batch...); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	began := time.Now()
	first := p.page(jobs.RoleViewer, "/ui/jobs/"+job.id)
	t.Logf("the first page of 10,000 events: %d bytes in %v", len(first), time.Since(began))
	if len(first) > 300<<10 {
		t.Errorf("it has %d bytes", len(first))
	}
	got, address := 0, "/ui/jobs/"+job.id+"/older"
	for pages := 0; address != ""; pages++ {
		part := p.page(jobs.RoleViewer, address)
		if len(part) > 300<<10 {
			t.Errorf("%s has %d bytes", address, len(part))
		}
		got += strings.Count(part, "data-seq=")
		_, rest, more := strings.Cut(part, `data-older="`)
		address, _, _ = strings.Cut(rest, `"`)
		if !more || strings.Contains(part, `class="older" hidden`) || pages > 200 {
			address = ""
		}
	}
	if want := len(job.shown()); got != want {
		t.Errorf("the pages have %d events, want %d", got, want)
	}
}
