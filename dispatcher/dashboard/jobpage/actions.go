package jobpage

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

// An action is what can be done with a job as it is now.
type action struct {
	row     operation.Row
	Name    string // the last part of its address
	Label   string
	Confirm string // what it does, told before it is done; empty: it is done at once
	Prompt  string // the label of a text that it takes, if it takes one
	Button  string // what the button says behind that; empty: the label, and that it is about the job
	Danger  bool
	Epoch   uint64 // of the attempt whose result the reader sees; 0: it does not matter
}

// actionsOf lists the actions that make sense for a job in its state.
func actionsOf(rec jobs.Record) []action {
	if rec.State == jobs.Finished {
		actions := []action{
			{row: operation.Review.Row, Name: "accept", Label: "Accept", Epoch: rec.Epoch},
			{row: operation.Review.Row, Name: "reject", Label: "Reject", Epoch: rec.Epoch, Confirm: "The result is rejected. With a text the agent goes on with the conversation.", Prompt: "What it is to change (optional)", Danger: true},
		}
		if rec.Outcome != jobs.Success {
			actions = append(actions, action{row: operation.Retry.Row, Name: "retry", Label: "Retry"})
		}
		return append(actions,
			action{row: operation.Resume.Row, Name: "resume", Label: "Resume", Confirm: "The job comes back, and its agent goes on with the conversation.", Prompt: "What it is to do now (optional)"},
			action{row: operation.Fork.Row, Name: "fork", Label: "Fork", Confirm: "Another job begins with a copy of the conversation.", Prompt: "What that one is to do"})
	}
	cancel := action{row: operation.Cancel.Row, Name: "cancel", Label: "Cancel", Confirm: "The job ends as cancelled, with what it has done so far. That is final.", Danger: true}
	if rec.State != jobs.Executing {
		return []action{cancel}
	}
	return []action{
		{row: operation.Send.Row, Name: "interrupt", Label: "Interrupt"},
		{row: operation.Send.Row, Name: "stop", Label: "Stop", Confirm: "The agent ends, and what it has done so far is the result.", Danger: true},
		cancel,
	}
}

// pullAction delivers the result of an attempt as a pull request.
func pullAction(epoch uint64) action {
	return action{
		row: operation.PullRequest.Row, Name: openPull, Label: "Open a draft pull request", Button: "Accept the result, and open it", Epoch: epoch,
		Confirm: "The result is accepted, and the pool opens a draft pull request of its branch.",
	}
}

// An act does what a form asks for, and returns the address to go to; empty is the job.
type act func(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error)

func actionRoutes() []dashboard.Route {
	var routes []dashboard.Route
	for name, action := range map[string]struct {
		row operation.Row
		act act
	}{
		"answer":    {operation.Send.Row, answer},
		"send":      {operation.Send.Row, tell(control.Prompt)},
		"interrupt": {operation.Send.Row, tell(control.Interrupt)},
		"stop":      {operation.Send.Row, tell(control.Stop)},
		"cancel":    {operation.Cancel.Row, cancelJob},
		"retry":     {operation.Retry.Row, retry},
		"resume":    {operation.Resume.Row, resume},
		"fork":      {operation.Fork.Row, fork},
		"accept":    {operation.Review.Row, accept},
		"reject":    {operation.Review.Row, reject},
		openPull:    {operation.PullRequest.Row, pullRequest},
	} {
		routes = append(routes, dashboard.Route{Pattern: "POST /ui/jobs/{id}/" + name, Row: action.row, Serve: serveAction(action.row, action.act)})
	}
	return routes
}

// serveAction does something, and shows the job again. A script that asks gets no page.
func serveAction(row operation.Row, do act) func(*dashboard.Visit) error {
	return func(v *dashboard.Visit) error {
		asking, err := v.Client(row)
		if err != nil {
			return err
		}
		to, err := do(v.Context(), asking, v.R.PathValue("id"), v.R)
		if err != nil {
			return err
		}
		if v.R.Header.Get("X-Requested-With") == "fetch" && to == "" {
			v.WriteHeader(http.StatusNoContent)
			return nil
		}
		return v.Redirect(cmp.Or(to, base(v)))
	}
}

// text is what a form has in a field. A browser ends lines in its own way.
func text(r *http.Request, name string) string {
	return strings.TrimSpace(strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n"))
}

func needsText(name string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: name, Reason: "is missing: write what the agent is to do"}}}
}

// tell sends a message to the agent.
func tell(verb control.Verb) act {
	return func(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
		m := control.Message{Verb: verb, Text: text(r, "text")}
		if verb == control.Prompt && m.Text == "" {
			return "", needsText("text")
		}
		_, err := c.Send(ctx, id, m)
		return "", err
	}
}

// answer answers a question by the options that were clicked, or by words.
func answer(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	m := control.Message{Ask: r.PostFormValue("ask"), Deny: r.PostFormValue("deny") != "", Text: text(r, "text"), Options: r.PostForm["option"]}
	for name, values := range r.PostForm {
		number, ok := strings.CutPrefix(name, "answer.")
		if own := text(r, "text."+number); ok && own == "" {
			m.Answers = with(m.Answers, number, values)
		}
		if number, ok = strings.CutPrefix(name, "text."); ok && text(r, name) != "" {
			m.Answers = with(m.Answers, number, []string{text(r, name)})
		}
	}
	_, err := c.Answer(ctx, id, m)
	return "", err
}

func with(answers map[string]control.Words, number string, words []string) map[string]control.Words {
	if answers == nil {
		answers = map[string]control.Words{}
	}
	answers[number] = words
	return answers
}

func cancelJob(ctx context.Context, c *client.Client, id string, _ *http.Request) (string, error) {
	_, err := c.Cancel(ctx, id)
	return "", err
}

func retry(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	salvage, _ := strconv.ParseBool(r.PostFormValue("from_salvage"))
	_, err := c.Retry(ctx, id, salvage)
	return "", err
}

func resume(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	var prompt *control.Message
	if said := text(r, "text"); said != "" {
		prompt = &control.Message{Verb: control.Prompt, Text: said}
	}
	_, err := c.Resume(ctx, operation.ResumeRequest{ID: id, Prompt: prompt})
	return "", err
}

// review notes what was decided about the result that the reader has seen.
func review(ctx context.Context, c *client.Client, id string, r *http.Request, state jobs.ReviewState) error {
	epoch, err := epochOf(r)
	if err != nil {
		return err
	}
	_, err = c.Review(ctx, operation.ReviewRequest{ID: id, State: state, Comment: text(r, "text"), Epoch: epoch})
	return err
}

// epochOf is the attempt whose result the reader has seen.
func epochOf(r *http.Request) (uint64, error) {
	epoch, err := strconv.ParseUint(r.PostFormValue("epoch"), 10, 64)
	if err != nil {
		return 0, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "epoch", Reason: "is not a number"}}}
	}
	return epoch, nil
}

func accept(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	return onward(r), review(ctx, c, id, r, jobs.Accepted)
}

// reject rejects the result; what is to change is a prompt to the agent, which goes on.
func reject(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	err := review(ctx, c, id, r, jobs.Rejected)
	if err == nil && text(r, "text") != "" {
		_, err = resume(ctx, c, id, r)
	}
	return onward(r), err
}

// fork submits a job that goes on with a copy of the conversation, and leads there.
func fork(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	said := text(r, "text")
	if said == "" {
		return "", needsText("text")
	}
	made, err := c.Fork(ctx, id, said, 1)
	if err != nil || len(made) == 0 {
		return "", err
	}
	return "/ui/jobs/" + made[0].ID, nil
}
