package pullrequest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/receipt"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// How much of a pull request's text comes from where; forges take 65,536 characters.
const (
	maxTitle   = 200      // in characters
	maxDraft   = 16 << 10 // in bytes
	maxCommand = 1 << 10  // of one check
	maxOutput  = 4 << 10  // of one check
	maxTests   = 1 << 10  // of what the reports of one say
	maxChecks  = 6        // that are shown
	lastOf     = 1000     // events in which the checks are looked for
)

// A text is what a pull request says.
type text struct {
	title, body string
	checks      string // the part of the body about the checks
}

// compose writes the text for what an attempt has made. All that the agent, the submitter
// or the programs of the repository wrote stands in blocks of code, where a forge
// interprets nothing: no mention, no link, no word that closes an issue.
func (l *line) compose(ctx context.Context, rec jobs.Record, res jobs.Result, job jobs.Job) (text, error) {
	o := l.of
	draft, err := o.artifact(ctx, rec, jobs.DraftArtifact)
	if err != nil {
		return text{}, err
	}
	title, words, _ := strings.Cut(draft, "\n")
	if title == "" {
		title, words = rec.Title, ""
	}
	if title == "" {
		title = "Changes by job " + rec.ID
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nMade by a coding agent, and not yet reviewed by a person.\n", mark.Job(rec.ID))
	if words = strings.TrimSpace(words); words != "" {
		fmt.Fprintf(&b, "\nThe agent's description, which no person has checked:\n\n%s", fenced(words, maxDraft))
	}
	if job.Issue != nil && (isPage(job.Issue.URL) || o.has(rec, job.Issue.URL)) {
		fmt.Fprintf(&b, "\nIssue: %s\n", job.Issue.URL)
	}
	var checks strings.Builder
	if err := o.writeChecks(ctx, &checks, rec, res); err != nil {
		return text{}, err
	}
	b.WriteString(checks.String())
	if err := l.writeOverlaps(ctx, &b, rec, res); err != nil {
		return text{}, err
	}
	if err := o.writeFacts(ctx, &b, rec, res); err != nil {
		return text{}, err
	}
	b.WriteString("\n" + mark.End)
	return text{shorten(title, maxTitle), b.String(), checks.String()}, nil
}

// writeChecks writes the checks with the ends of their outputs, as the worker saw them.
func (o *Outbox) writeChecks(ctx context.Context, b *strings.Builder, rec jobs.Record, res jobs.Result) error {
	if len(res.Checks) == 0 {
		b.WriteString("\nNo checks ran.\n")
		return nil
	}
	outputs := map[string]string{}
	events, err := o.cfg.Log.Before(ctx, rec.Session, 0, lastOf)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == jobs.CheckEnded && e.Job == rec.ID {
			ended := event.As[event.CheckEnded](e)
			outputs[ended.Command] = ended.Output // of the last round
		}
	}
	b.WriteString("\n### Checks\n")
	for _, check := range res.Checks[:min(len(res.Checks), maxChecks)] {
		fmt.Fprintf(b, "\nExit code %d after %.1f s:\n\n%s", check.Exit, check.Seconds, fenced("$ "+check.Command, maxCommand))
		if tests := summary.Tests(check.Tests); tests != "" {
			lines := append([]string{"The reports of its tests say: " + tests}, summary.TestLines(check.Tests)...)
			b.WriteString("\n" + fenced(strings.Join(lines, "\n"), maxTests))
		}
		if out := strings.TrimSpace(outputs[check.Command]); out != "" {
			b.WriteString("\n" + fenced(out[max(0, len(out)-maxOutput):], maxOutput))
		}
	}
	if more := res.Checks[min(len(res.Checks), maxChecks):]; len(more) > 0 {
		bad := slices.DeleteFunc(slices.Clone(more), func(c jobs.Check) bool { return c.Exit == 0 })
		fmt.Fprintf(b, "\n%d more checks ran; %d of them ended with another exit code than 0.\n", len(more), len(bad))
	}
	return nil
}

// writeFacts writes what the pool knows itself.
func (o *Outbox) writeFacts(ctx context.Context, b *strings.Builder, rec jobs.Record, res jobs.Result) error {
	signed, err := o.artifact(ctx, rec, receipt.Name)
	if err != nil {
		return err
	}
	b.WriteString("\n### How it was made\n\n| | |\n|---|---|\n")
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, cell(value))
		}
	}
	row("job", rec.ID)
	row("attempts", fmt.Sprint(rec.Attempt))
	row("agent", rec.Agent)
	row("model", res.Model)
	row("base commit", res.BaseCommit)
	row("files changed", fmt.Sprint(res.FilesChanged))
	if res.Usage.Total() > 0 || res.CostUSD > 0 {
		row("cost", fmt.Sprintf("%.4f US dollars, %d tokens", res.CostUSD, res.Usage.Total()))
	}
	row("patch (SHA-256)", res.PatchSHA256)
	if signed != "" {
		row("receipt (SHA-256)", fmt.Sprintf("%x", sha256.Sum256([]byte(signed))))
	}
	b.WriteString(o.sessionLink(rec.ID))
	return nil
}

// artifact reads one of an attempt; empty: there is none.
func (o *Outbox) artifact(ctx context.Context, rec jobs.Record, name string) (string, error) {
	r, err := o.cfg.Store.Get(ctx, rec.ID, rec.Epoch, name)
	if errors.Is(err, jobs.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(r, 1<<20)); err != nil {
		return "", fmt.Errorf("artifact %s of job %s: %w", name, rec.ID, err)
	}
	return b.String(), nil
}

// fenced puts a text into a block of code that it cannot end.
func fenced(s string, most int) string {
	if len(s) > most {
		s = s[:most]
		for !utf8.ValidString(s) && len(s) > most-utf8.UTFMax {
			s = s[:len(s)-1]
		}
		s += "\n…"
	}
	s = strings.ReplaceAll(visible.Document(s), "<!--", "<! --") // where its own part ends
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "text\n" + s + "\n" + fence + "\n"
}

// cell makes code of a value in a table.
func cell(s string) string {
	return "`" + strings.NewReplacer("`", "'", "|", "¦", "<!--", "<! --").Replace(shorten(s, 200)) + "`"
}

// isPage reports whether a text is nothing but the address of a page.
func isPage(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && len(s) < 500 && !strings.ContainsAny(s, " \t\r\n<>()[]`\"'|\\@") && visible.Plain(s, "")
}

// replace puts a new part into the text of a pull request, and reports whether it is one of
// the job.
func replace(old, job, part string) (body string, ours bool) {
	before, rest, found := strings.Cut(old, mark.Job(job))
	if !found {
		return old, false
	}
	after := ""
	if at := strings.LastIndex(rest, mark.End); at >= 0 {
		after = rest[at+len(mark.End):]
	}
	return before + part + after, true
}
