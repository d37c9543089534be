package hooks

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs/control"
)

// A newsKind is what has happened to an issue or a pull request.
type newsKind int

const (
	closed   newsKind = iota + 1 // the issue was closed
	replied                      // there is a comment on the issue
	reviewed                     // there is a comment on a pull request, or a review of it
)

// A news is what a delivery of GitHub says about an issue or a pull request that there may be
// a job of.
type news struct {
	kind   newsKind
	page   string // of the issue or the pull request
	number int
	text   string    // of the pull request
	at     time.Time // when it happened
	// comment is what was written, and source its name on GitHub: comment/7 or review/7.
	comment, source string
	review          int64 // 0: it is no review
	insists         bool  // the review asks for changes
}

// maxComment bounds one comment, in bytes, and maxHunk the lines that it is about.
const (
	maxComment = 64 << 10
	maxHunk    = 2 << 10
)

type spoken struct {
	ID          int64     `json:"id"`
	Body        string    `json:"body"`
	State       string    `json:"state"` // of a review
	CreatedAt   time.Time `json:"created_at"`
	SubmittedAt time.Time `json:"submitted_at"`
}

// readNews reads a delivery of GitHub; ok is false if nobody follows what it tells.
func readNews(d delivery) (n news, ok bool) {
	var p struct {
		Action string `json:"action"`
		Issue  struct {
			Page     string    `json:"html_url"`
			Number   int       `json:"number"`
			Body     string    `json:"body"`
			ClosedAt time.Time `json:"closed_at"`
			Pull     *struct{} `json:"pull_request"`
		} `json:"issue"`
		Pull struct {
			Page   string `json:"html_url"`
			Number int    `json:"number"`
			Body   string `json:"body"`
		} `json:"pull_request"`
		Comment spoken `json:"comment"`
		Review  spoken `json:"review"`
	}
	if json.Unmarshal(d.raw, &p) != nil {
		return n, false
	}
	switch {
	case d.event == "issues" && p.Action == "closed":
		n = news{kind: closed, page: p.Issue.Page, number: p.Issue.Number, at: p.Issue.ClosedAt}
	case d.event == "issue_comment" && p.Action == "created":
		n = news{kind: replied, page: p.Issue.Page, number: p.Issue.Number, at: p.Comment.CreatedAt, comment: p.Comment.Body, source: fmt.Sprint("comment/", p.Comment.ID)}
		if p.Issue.Pull != nil {
			n.kind, n.text = reviewed, p.Issue.Body
		}
	case d.event == "pull_request_review" && p.Action == "submitted" && p.Review.State != "approved":
		n = news{
			kind: reviewed, page: p.Pull.Page, number: p.Pull.Number, text: p.Pull.Body, at: p.Review.SubmittedAt,
			comment: p.Review.Body, source: fmt.Sprint("review/", p.Review.ID), review: p.Review.ID, insists: p.Review.State == "changes_requested",
		}
	}
	return n, n.kind != 0 && n.page != ""
}

// messageID is the same for the same comment, so that one that is delivered again has no
// second effect.
func (n news) messageID(page string) string {
	sum := sha256.Sum256([]byte(page + "\n" + n.source))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// A remark is what a person wrote, and the lines of the change that it is about, if any.
type remark struct {
	Body string `json:"body"`
	Path string `json:"path"`
	Hunk string `json:"diff_hunk"`
}

// promptOf is what the agent is told.
func promptOf(sender string, remarks []remark) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has reviewed the pull request of your change, and asks for more. Make these changes, on top of what you have done.\n", oneLine(sender))
	for _, r := range remarks {
		b.WriteString("\n")
		if r.Path != "" {
			fmt.Fprintf(&b, "On %s, at the end of these lines of the change:\n\n", oneLine(r.Path))
			for line := range strings.Lines(cut(r.Hunk[max(0, len(r.Hunk)-maxHunk):], maxHunk)) {
				b.WriteString("    " + strings.TrimRight(line, "\r\n") + "\n")
			}
			b.WriteString("\n")
		}
		b.WriteString(strings.TrimSpace(cut(r.Body, maxComment)) + "\n")
	}
	return cut(b.String(), control.MaxText)
}

// cut is at most so many bytes of a text, in what a message may have.
func cut(s string, most int) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), most)], ""), "\x00", "")
}

// oneLine is a name without ends of lines.
func oneLine(s string) string { return strings.Join(strings.Fields(cut(s, 200)), " ") }

// answerTo reads the answer to a question out of a comment. It reports false for one that
// does not answer a request for permission.
func answerTo(asked control.Ask, comment string) (control.Message, bool) {
	m := control.Message{Verb: control.Answer, Ask: asked.Ask}
	text := withoutQuotes(cut(comment, maxComment))
	if text == "" {
		return m, false
	}
	questions := asked.List()
	switch {
	case asked.Type == "permission":
		word, rest, _ := strings.Cut(text, " ")
		switch strings.ToLower(strings.Trim(word, ".,:;!\n")) {
		case "allow", "yes":
			return m, true
		case "deny", "no":
			m.Deny, m.Text = true, strings.TrimSpace(rest)
			return m, true
		}
		return m, false
	case len(questions) > 1:
		m.Answers = numbered(text)
		return m, true
	}
	m.Options = strings.Split(text, ",")
	for i := range m.Options {
		m.Options[i] = strings.TrimSpace(m.Options[i])
	}
	if _, err := m.Fit(questions); err != nil { // words of one's own
		m.Options, m.Text = nil, text
	}
	return m, true
}

// withoutQuotes leaves out the lines of a comment that quote another one.
func withoutQuotes(comment string) string {
	var kept []string
	for line := range strings.Lines(comment) {
		if !strings.HasPrefix(strings.TrimSpace(line), ">") {
			kept = append(kept, strings.TrimRight(line, "\r\n"))
		}
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}

// numbered reads lines such as "1: Red".
func numbered(text string) map[string]control.Words {
	answers := map[string]control.Words{}
	for line := range strings.Lines(text) {
		at := strings.IndexAny(line, ":.)")
		if at < 0 {
			continue
		}
		name, words := strings.TrimSpace(line[:at]), strings.TrimSpace(line[at+1:])
		if name != "" && words != "" {
			answers[name] = append(answers[name], words)
		}
	}
	return answers
}
