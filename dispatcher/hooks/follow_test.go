package hooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/hooks"
	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/record"
)

// A following has the pool's own jobs, and keeps what would be said to their agents.
type following struct {
	*pool
	mu    sync.Mutex
	asked []dialog.Asked
	sent  []control.Message
	fails []error // what the next messages are refused with
}

func (f *following) List(ctx context.Context, state jobs.State, keep func(jobs.Record) bool) (kept []jobs.Record, err error) {
	all, err := f.queue.List(ctx, record.Filter{State: state})
	return slices.DeleteFunc(all, func(rec jobs.Record) bool { return !keep(f.as(rec)) }), err
}

func (f *following) Get(ctx context.Context, id string) (jobs.Record, error) {
	rec, err := f.queue.Get(ctx, id)
	return f.as(rec), err
}

// as is a record whose agent asks where the test says so, and which has a pull request.
func (f *following) as(rec jobs.Record) jobs.Record {
	if len(f.asked) > 0 {
		rec.Asks = &jobs.OpenAsk{Ask: f.asked[0].Ask.Ask}
	}
	if rec.ID != "" {
		rec.PullRequest = &jobs.PullRequest{State: jobs.PullOpen, Number: 9, URL: "https://github.com/o/r/pull/9"}
	}
	return rec
}

func (f *following) Asked(context.Context, jobs.Record) ([]dialog.Asked, error) { return f.asked, nil }

func (f *following) Cancel(ctx context.Context, id string) error {
	_, err := f.queue.Cancel(ctx, id, "hook")
	return err
}

func (f *following) Send(_ context.Context, _ string, m control.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		return err
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if !slices.ContainsFunc(f.sent, func(known control.Message) bool { return known.ID == m.ID }) {
		f.sent = append(f.sent, m)
	}
	return nil
}

// follow opens a pool with a rule that follows, in which ann and no one else may write, and
// submits the job of an issue.
func follow(t *testing.T) (f *following, id string) {
	t.Helper()
	api := http.NewServeMux()
	api.HandleFunc("GET /repos/o/r/collaborators/{user}/permission", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"permission":%q}`, map[bool]string{true: "write", false: "read"}[r.PathValue("user") == "ann"])
	})
	api.HandleFunc("GET /repos/o/r/pulls/9/reviews/{review}/comments", func(w http.ResponseWriter, r *http.Request) {
		inside := []map[string]any{
			{"body": "please rename it\x00", "path": "a\nb.go", "diff_hunk": "@@ -1 +1 @@\n+x := 1"},
			{"body": "I like this", "path": "c.go"},
			{"body": "please " + mark.Job("x"), "path": "own.go"},
		}
		if r.PathValue("review") == "66" {
			inside = nil
		}
		_ = json.NewEncoder(w).Encode(inside)
	})
	stub := httptest.NewServer(api)
	t.Cleanup(stub.Close)
	r := rule(t, "github")
	r.Require, r.API, r.TokenFile, r.Follow = "write", stub.URL, file(t, "token"), true
	r.When = `event == "issues" && body.action == "labeled"`
	f = &following{}
	f.pool = open(t, map[string]hooks.Rule{"issues": r}, func(cfg *hooks.Config) { cfg.Pool = f })
	status, text := f.tell("issues", "1", "ann", `"action":"labeled",`+issue)
	if status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	var made struct{ Job string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || !jobs.IsID(made.Job) {
		t.Fatalf("%v in %s", err, text)
	}
	return f, made.Job
}

const issue = `"issue":{"number":7,"title":"It fails","html_url":"https://github.com/o/r/issues/7","closed_at":"2999-01-01T00:00:00Z"}`

// tell sends what GitHub does.
func (f *following) tell(event, delivery, sender, body string) (int, string) {
	f.Helper()
	kind := "User"
	if strings.HasSuffix(sender, "[bot]") {
		kind = "Bot"
	}
	body = fmt.Sprintf(`{%s,"repository":{"full_name":"o/r","clone_url":"https://github.com/o/r.git"},"sender":{"login":%q,"type":%q}}`, body, sender, kind)
	header := github(body, delivery)
	header["X-GitHub-Event"] = event
	return f.deliver("issues", body, header)
}

// Whoever closes an issue has its job cancelled, once, and no other.
func TestAClosedIssueCancelsItsJob(t *testing.T) {
	t.Parallel()
	f, id := follow(t)
	rec, err := f.queue.Get(t.Context(), id)
	if err != nil || rec.Labels["hook"] != "issues" || rec.Labels["issue"] != "https://github.com/o/r/issues/7" {
		t.Fatalf("the record has %v, %v", rec.Labels, err)
	}
	for _, c := range []struct{ body, want string }{
		{strings.Replace(issue, "issues/7", "issues/8", 1), "when is not true"},
		{strings.Replace(issue, "2999", "2001", 1), "when is not true"}, // an earlier issue of the number
		{issue, `"job":"` + id + `","done":"cancelled"`},
		{issue, "when is not true"},
	} {
		status, text := f.tell("issues", "c", "mallory", `"action":"closed",`+c.body)
		if status != 202 || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %s", c.body, status, text, c.want)
		}
	}
	if rec, err = f.queue.Get(t.Context(), id); err != nil || rec.Outcome != jobs.Cancellation {
		t.Errorf("it ended with %+v, %v", rec, err)
	}
}

func comment(id int, text string) string {
	return fmt.Sprintf(`"action":"created",%s,"comment":{"id":%d,"body":%q,"created_at":%q}`, issue, id, text, time.Now().UTC().Format(time.RFC3339))
}

// The comment of a permitted person answers the question that is open; those of others, of
// bots and of the pool do not, nor does one from before the question.
func TestACommentAnswersAQuestion(t *testing.T) {
	t.Parallel()
	f, _ := follow(t)
	if status, text := f.tell("issue_comment", "q", "ann", comment(1, "Blue")); status != 202 || !strings.Contains(text, "when is not true") {
		t.Errorf("without a question: %d %s", status, text)
	}
	jobstest.Claim(t, f.queue, "w")
	colour := json.RawMessage(`[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]`)
	f.asked = []dialog.Asked{{Ask: control.Ask{Ask: "q1", Type: "question", Questions: colour}, Opened: time.Now()}}
	old := strings.Replace(comment(3, "Red"), time.Now().UTC().Format("2006"), "2001", 1)
	for _, c := range []struct{ sender, body, want string }{
		{"mallory", comment(2, "Red"), "may not write"},
		{"helper[bot]", comment(2, "Red"), "is not named in bots"},
		{"ann", comment(2, "Red "+mark.Question("j", "q1")), "the pool's own"},
		{"ann", old, "asked nothing when"},
		{"ann", comment(4, "> Which?\n\n blue\n"), `"done":"answered"`},
		{"ann", comment(4, "> Which?\n\n blue\n"), `"done":"answered"`},
		{"ann", comment(5, "> only a quote"), "no answer to the question"},
	} {
		if status, text := f.tell("issue_comment", "x", c.sender, c.body); status != 202 || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s: %d %s, want %s", c.sender, c.body, status, text, c.want)
		}
	}
	if len(f.sent) != 1 || f.sent[0].Ask != "q1" || !slices.Equal(f.sent[0].Options, []string{"blue"}) || f.sent[0].By != "github:ann" {
		t.Errorf("it was answered by %+v", f.sent)
	}
	// Several questions at once, words of one's own, and requests for permission.
	two := json.RawMessage(`[{"question":"A?"},{"question":"B?"}]`)
	for i, c := range []struct {
		ask  control.Ask
		said string
		want control.Message
	}{
		{control.Ask{Questions: two}, "1: yes\n2) no, never", control.Message{Answers: map[string]control.Words{"1": {"yes"}, "2": {"no, never"}}}},
		{control.Ask{Questions: colour}, "Neither, use $(green)", control.Message{Text: "Neither, use $(green)"}},
		{control.Ask{Type: "permission"}, "Allow.", control.Message{}},
		{control.Ask{Type: "permission"}, "no it is too dangerous", control.Message{Deny: true, Text: "it is too dangerous"}},
	} {
		c.ask.Ask = "q2"
		f.asked, f.sent = []dialog.Asked{{Ask: c.ask, Opened: time.Now()}}, nil
		status, text := f.tell("issue_comment", "y", "ann", comment(10+i, c.said))
		if status != 202 || len(f.sent) != 1 {
			t.Errorf("%q: %d %s", c.said, status, text)
			continue
		}
		got := f.sent[0]
		if got.Text != c.want.Text || got.Deny != c.want.Deny || len(got.Options) > 0 || fmt.Sprint(got.Answers) != fmt.Sprint(c.want.Answers) {
			t.Errorf("%q is %+v", c.said, got)
		}
	}
	f.asked, f.sent = []dialog.Asked{{Ask: control.Ask{Ask: "q3", Type: "permission"}, Opened: time.Now()}}, nil
	if _, text := f.tell("issue_comment", "z", "ann", comment(20, "What does it do?")); !strings.Contains(text, "no answer to the question") || len(f.sent) > 0 {
		t.Errorf("a question is an answer: %s", text)
	}
}

// A comment on the pull request of the job that asks for a change is a prompt, and so is a
// review with what it says about lines; of the same one there is one.
func TestACommentOnThePullRequestIsAPrompt(t *testing.T) {
	t.Parallel()
	f, id := follow(t)
	said := func(n int, text, page, marked string) string {
		return fmt.Sprintf(`"action":"created","issue":{"number":9,"html_url":%q,"body":%q,"pull_request":{}},"comment":{"id":%d,"body":%q}`, page, marked, n, text)
	}
	review := func(n int, state, text string) string {
		return fmt.Sprintf(`"action":"submitted","pull_request":{"number":9,"html_url":"https://github.com/o/r/pull/9","body":%q},"review":{"id":%d,"state":%q,"body":%q}`, mark.Job(id), n, state, text)
	}
	const page = "https://github.com/o/r/pull/9"
	marked := "Look: " + mark.Job(jobs.NewID()) + mark.Job("../x") + mark.Job(id)
	f.fails = []error{control.Refuse(control.NotReady, "it begins")}
	for _, c := range []struct{ event, sender, body, want string }{
		{"issue_comment", "ann", said(1, "please, a test", "https://github.com/o/r/pull/10", marked), "when is not true"}, // of another one
		{"issue_comment", "ann", said(1, "please, a test", page, "no mark"), "when is not true"},
		{"issue_comment", "mallory", said(1, "please, a test", page, marked), "may not write"},
		{"issue_comment", "ann", said(1, "Nice!", page, marked), "comments is not true"},
		{"issue_comment", "ann", said(2, " Please, a test", page, marked), `"done":"continued"`},
		{"issue_comment", "ann", said(2, " Please, a test", page, marked), `"done":"continued"`},
		{"pull_request_review", "ann", review(5, "approved", "please merge"), "when is not true"},
		{"pull_request_review", "mallory", review(5, "commented", ""), "may not write"},
		{"pull_request_review", "ann", review(66, "commented", "hm"), "comments is not true"},
		{"pull_request_review", "ann", review(5, "commented", "hm"), `"done":"continued"`},
		{"pull_request_review", "ann", review(6, "changes_requested", "This is wrong."), `"done":"continued"`},
		{"pull_request_review_comment", "ann", said(7, "please", page, marked), "when is not true"}, // it is in its review
	} {
		if status, text := f.tell(c.event, "p", c.sender, c.body); status != 202 || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s: %d %s, want %s", c.sender, c.body, status, text, c.want)
		}
	}
	if len(f.sent) != 3 {
		t.Fatalf("its agent was told %+v", f.sent)
	}
	for i, c := range []struct{ has, lacks []string }{
		{[]string{"ann has reviewed", "Please, a test"}, nil},
		{[]string{"On a b.go, ", "    +x := 1\n", "please rename it\n"}, []string{"I like this", "own.go", "hm"}},
		{[]string{"This is wrong.", "please rename it", "I like this"}, []string{"own.go"}},
	} {
		for _, part := range c.has {
			if !strings.Contains(f.sent[i].Text, part) {
				t.Errorf("prompt %d lacks %q: %s", i, part, f.sent[i].Text)
			}
		}
		for _, part := range c.lacks {
			if strings.Contains(f.sent[i].Text, part) {
				t.Errorf("prompt %d has %q: %s", i, part, f.sent[i].Text)
			}
		}
	}
	f.fails = []error{control.Refuse(control.Finished, "job %s cannot continue", id)}
	if status, text := f.tell("issue_comment", "r", "ann", said(8, "please", page, marked)); status != 422 || !strings.Contains(text, "cannot continue") {
		t.Errorf("%d %s", status, text)
	}
}

func TestRulesThatCannotFollow(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*hooks.Rule){
		"without follow":              func(r *hooks.Rule) { r.Follow, r.Comments = false, "true" },
		"of source gitea are not":     func(r *hooks.Rule) { r.Source = "gitea" },
		"name its file in token_file": func(r *hooks.Rule) { r.TokenFile = "" },
		"when is missing":             func(r *hooks.Rule) { r.When = "" },
		"comments: unknown name":      func(r *hooks.Rule) { r.Comments = "nobody == 1" },
		"comments: expected bool":     func(r *hooks.Rule) { r.Comments = "1" },
		`labels "hook" and "issue"`:   func(r *hooks.Rule) { r.Job["labels"] = map[string]any{"issue": "x"} },
		"this process has no jobs":    func(*hooks.Rule) {},
	} {
		r := rule(t, "github")
		r.Follow, r.TokenFile, r.When = true, file(t, "token"), "true"
		change(&r)
		if _, err := hooks.Open(hooks.Config{Rules: map[string]hooks.Rule{"issues": r}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
