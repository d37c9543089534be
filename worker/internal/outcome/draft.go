package outcome

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// MaxDraft is how many bytes of an agent's message are read for a draft.
const MaxDraft = 2 * draftText

const (
	draftText  = 16 << 10
	draftTitle = 120 // characters
)

// A Draft is the text for a change. The zero value is none.
type Draft struct{ Title, text string }

func (d Draft) String() string { return strings.TrimSpace(d.Title + "\n\n" + d.text) }

// KeepDraft stores the agent's description of its change, which [Outcome.Deliver] uses.
func (o *Outcome) KeepDraft(ctx context.Context, d Draft) error {
	file, err := o.destination().put(ctx, jobs.DraftArtifact, strings.NewReader(d.String()+"\n"))
	if err != nil {
		return err
	}
	o.Result.list(*file)
	o.cfg.Tell(event.Make(event.ArtifactStored(*file)))
	o.draft = d
	return nil
}

var (
	draftFence = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("(?s)^```[a-z]*\n(.*)\n```$") })
	// draftMark is what people put before a title.
	draftMark = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(#+\s+|[Tt]itle:\s*)`) })
	// draftClaim is a line that names reviewers of a change, or the job that made it:
	// the agent must not claim either.
	draftClaim = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^\s*([a-z]+-)*(by|job|session):`) })
)

// ReadDraft finds title and text in an agent's message, as far as they may stand in a
// commit.
func ReadDraft(said string) Draft {
	said = strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		if r == '\t' {
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(said, ""))
	said = strings.TrimSpace(said)
	if inner := draftFence().FindStringSubmatch(said); inner != nil {
		said = strings.TrimSpace(inner[1])
	}
	title, text, _ := strings.Cut(said, "\n")
	var d Draft
	d.Title = strings.Join(strings.Fields(draftMark().ReplaceAllString(title, "")), " ")
	if r := []rune(d.Title); len(r) > draftTitle {
		d.Title = string(r[:draftTitle-1]) + "…"
	}
	var kept []string
	size := 0
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if size += len(line) + 1; size > draftText {
			break
		}
		if !draftClaim().MatchString(line) {
			kept = append(kept, strings.TrimRight(line, " "))
		}
	}
	d.text = strings.TrimSpace(strings.Join(kept, "\n"))
	return d
}
