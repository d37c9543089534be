package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/visible"
)

const (
	// maxQuestion is how much of one question its comment has, in bytes, maxInput of what a
	// permission is for.
	maxQuestion = 8 << 10
	maxInput    = 2 << 10
	// clocks is how far the forge's clock and the pool's may be apart.
	clocks = time.Minute
)

// asks reports whether the agent of a job waits for an answer that comes by its issue.
func asks(rec jobs.Record) bool {
	return rec.Labels[mark.HookLabel] != "" && rec.Labels[mark.IssueLabel] != "" && (rec.Asking() || rec.State == jobs.Executing && rec.Asks != nil)
}

// asked reports whether the question that a record names was written to the issue.
func (l *line) asked(rec jobs.Record) bool { return rec.Asks != nil && l.wrote(rec.ID, rec.Asks.Ask) }

// wrote reports whether a question was written to the issue by this process.
func (l *line) wrote(id, ask string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[id] == ask
}

// tell keeps which question of a job was written to its issue; empty: none is open.
func (l *line) tell(id, ask string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ask == "" {
		delete(l.told, id)
	} else {
		l.told[id] = ask
	}
}

// tryAsk writes the question of a job's agent to its issue, and decides on what came of it.
func (l *line) tryAsk(ctx context.Context, rec jobs.Record) {
	ask, err := l.ask(ctx, rec)
	if err != nil {
		l.of.cfg.Logger.With(rec.LogFields()...).Warn("write a question to the issue", "forge", l.forge.Name(), "err", shorten(err.Error(), 500))
		if l.again(rec.ID, err) {
			return
		}
	}
	l.tell(rec.ID, ask)
	l.leave(rec.ID)
}

// ask writes the oldest question that is open to the issue, and returns its id.
func (l *line) ask(ctx context.Context, rec jobs.Record) (ask string, err error) {
	past, err := l.of.cfg.Log.Past(ctx, rec.Session, rec.ID)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(past.Asks, dialog.Asked.Open)
	if i < 0 {
		return "", nil // it was answered meanwhile
	}
	open := past.Asks[i]
	if l.wrote(rec.ID, open.Ask.Ask) {
		return open.Ask.Ask, nil
	}
	c, ok := l.comment(rec, rec.Labels[mark.IssueLabel], mark.Question(rec.ID, open.Ask.Ask))
	if !ok {
		return open.Ask.Ask, nil
	}
	c.Body = l.of.questionText(rec, open.Ask) + "\n" + c.Mark
	return open.Ask.Ask, l.forge.Comment(ctx, c)
}

// comment is one on an issue of the job's own repository; no pool writes to another one.
func (l *line) comment(rec jobs.Record, page, marked string) (forge.Comment, bool) {
	repo, number, ok := l.forge.Issue(page)
	own, _ := l.forge.Repository(rec.Repo)
	return forge.Comment{Repo: repo, Number: number, Mark: marked, Since: rec.Submitted.Add(-clocks)}, ok && repo == own
}

// has reports whether an issue is one of the job's own repository.
func (o *Outbox) has(rec jobs.Record, page string) bool {
	l := o.line(rec.Repo)
	if l == nil {
		return false
	}
	_, ok := l.comment(rec, page, "")
	return ok
}

// questionText is what a question's comment says. What the agent wrote stands in blocks of
// code.
func (o *Outbox) questionText(rec jobs.Record, ask control.Ask) string {
	var b strings.Builder
	how := "Answer with a comment here: words of your own"
	list := ask.List()
	if ask.Type == "permission" {
		fmt.Fprintf(&b, "The coding agent asks for the permission to use %s:\n\n%s", cell(ask.Tool), fenced(string(ask.Input), maxInput))
		how = "Answer with a comment here: `allow`, or `deny` and the reason"
	} else {
		b.WriteString("The coding agent asks:\n")
		for i, q := range list {
			b.WriteString("\n" + fenced(questionLines(q, i+1, len(list)), maxQuestion))
			if len(q.Options) > 0 && len(list) == 1 {
				how = "Answer with a comment here: an option or its number, or words of your own"
			}
		}
		if len(list) > 1 {
			how = "Answer with one comment here, with a line for each: `1: …`"
		}
	}
	fmt.Fprintf(&b, "\n%s. The answers of those count who may write to this repository.\n", how)
	b.WriteString(o.sessionLink(rec.ID))
	return b.String()
}

func questionLines(q control.Question, number, of int) string {
	text := q.Question
	if of > 1 {
		text = fmt.Sprintf("%d: %s", number, text)
	}
	for i, option := range q.Options {
		text += fmt.Sprintf("\n  %d. %s", i+1, visible.Line(option.Label))
		if option.Description != "" {
			text += " (" + visible.Line(option.Description) + ")"
		}
	}
	return text
}

// sessionLink leads to the session, where the pool is known by an address.
func (o *Outbox) sessionLink(id string) string {
	page := o.sessionPage(id)
	if page == "" {
		return ""
	}
	return fmt.Sprintf("\n[The session](%s)\n", page)
}

// sessionPage is where the session of a job is shown; empty: nowhere.
func (o *Outbox) sessionPage(id string) string {
	if o.cfg.PublicURL == "" {
		return ""
	}
	return strings.TrimRight(o.cfg.PublicURL, "/") + "/ui/jobs/" + id
}

// announce tells the issue of a job that its pull request is open. Where the forge does not
// take that, the message says so.
func (l *line) announce(ctx context.Context, rec jobs.Record, job jobs.Job, pull forge.Pull) (message string, err error) {
	if job.Issue == nil {
		return "", nil
	}
	c, ok := l.comment(rec, job.Issue.URL, mark.PullRequest(rec.ID, strconv.Itoa(pull.Number)))
	if !ok {
		return "", nil
	}
	c.Body = fmt.Sprintf("A coding agent has worked on this. What it changed is a draft, for review: #%d\n%s\n%s", pull.Number, l.of.sessionLink(rec.ID), c.Mark)
	return accepted("without a comment on its issue", l.forge.Comment(ctx, c))
}

// accepted makes a message of what a forge does not take, whenever it is asked.
func accepted(without string, err error) (message string, other error) {
	lasting := []forge.Kind{forge.Invalid, forge.Conflict, forge.Missing}
	if refused, ok := errors.AsType[*forge.Error](err); ok && slices.Contains(lasting, refused.Kind) {
		return without + ": " + shorten(refused.Message, 240), nil
	}
	return "", err
}
