package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/workspace"
)

// DraftName is the artifact with what the agent has written about its change:
// the title of a pull request in the first line, and its text.
const DraftName = "draft.md"

const (
	draftLimit = 5 * time.Minute // of the agent that writes it
	draftDiff  = 256 << 10       // of the patch, that the agent is shown
	draftText  = 16 << 10
	draftTitle = 120 // characters
)

// A draft is the text for a change. The zero value is none.
type draft struct{ title, text string }

func (d draft) String() string { return strings.TrimSpace(d.title + "\n\n" + d.text) }

// draft has the agent write about its change, where the job wants that. Nothing
// depends on it: where it fails, the job's title stands for it. Only what ends
// the attempt is an error.
func (a *attempt) draft(ctx context.Context, in confine.Jail, adapter agent.Adapter, change workspace.Change) error {
	if !a.job.Deliver.DraftText || change.PatchSize == 0 {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, draftLimit, fmt.Errorf("it took longer than %v", draftLimit))
	defer cancel()
	said, err := a.describe(limited, in, adapter, change)
	a.count()
	found := readDraft(a.clean(said))
	if err == nil && found.title == "" {
		err = errors.New("the agent wrote nothing")
	}
	if err == nil {
		err = a.keepDraft(limited, found)
	}
	if over := context.Cause(ctx); over != nil {
		return over
	}
	if err != nil {
		a.events.put(event.Make(event.Notice{Text: a.clean("no text was drafted, so the job's title stands for it: " + err.Error())}))
		return nil
	}
	a.drafted = found
	return nil
}

func (a *attempt) keepDraft(ctx context.Context, d draft) error {
	at := place{store: a.cfg.Store, job: a.rec.ID, epoch: a.claim.Epoch()}
	file, err := at.put(ctx, DraftName, strings.NewReader(d.String()+"\n"))
	if err != nil {
		return err
	}
	a.result.Artifacts = append(a.result.Artifacts, *file)
	a.events.put(event.Make(event.ArtifactStored(*file)))
	return nil
}

// describe runs the agent once more, in a jail with nothing in it but the
// change, and returns what it said. The budget is that of the job.
func (a *attempt) describe(ctx context.Context, in confine.Jail, adapter agent.Adapter, change workspace.Change) (string, error) {
	if in.Unjailed {
		return "", errors.New("without a jail it could change the files")
	}
	began := time.Now()
	defer func() { a.result.Durations.Agent += a.stage("agent", began) }()
	model, err := in.Model(false)
	if err != nil {
		return "", err
	}
	launch, err := a.launch(in, model, adapter)
	if err != nil {
		return "", err
	}
	diff, err := beginning(change.Patch, draftDiff)
	if err != nil {
		return "", err
	}
	launch = launch.Describing(a.job.Title(), diff, int64(len(diff)) < change.PatchSize)
	plan, err := adapter.Launch(launch)
	if err != nil {
		return "", err
	}
	way := a.gateTo(in, adapter.About().API)
	if adapter.About().API != "" && way == nil {
		return "", errors.New("the worker has no key for its model API")
	}
	start, err := in.Draft(plan, wayTo(model, way))
	if err != nil {
		return "", err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ear := &listener{Decoder: adapter.Decoder(launch)}
	run := &agentRun{
		attempt: a, decoder: ear, end: end, keepStdin: plan.KeepStdin, way: way, greets: adapter.About().Protocol != "command",
		news: make(chan struct{}, 1), rested: make(chan position, 1),
	}
	err = run.wait(ctx, in, start, plan)
	used := ear.Total()
	a.talk.total.Usage, a.talk.total.CostUSD = a.talk.total.Usage.Add(used.Usage), jobs.AddUSD(a.talk.total.CostUSD, used.CostUSD)
	return ear.said(), err
}

// beginning reads up to limit bytes of a file.
func beginning(file string, limit int64) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}

// A listener keeps what the agent says in the end: the result of its last turn,
// or all that a program prints which has no turns.
type listener struct {
	agent.Decoder
	result string
	lines  []byte
}

func (l *listener) Line(line agent.Line) agent.Read {
	read := l.Decoder.Line(line)
	for _, e := range read.Events {
		switch d := e.Payload.(type) {
		case event.TurnEnded:
			l.result = d.Result
		case event.OutputLine:
			if d.Stream == agent.Stdout {
				room := max(0, 2*draftText-len(l.lines))
				l.lines = append(append(l.lines, line.Bytes[:min(len(line.Bytes), room)]...), '\n')
			}
		}
	}
	return read
}

func (l *listener) said() string {
	if l.result != "" {
		return l.result
	}
	return string(l.lines)
}

var (
	draftFence = regexp.MustCompile("(?s)^```[a-z]*\n(.*)\n```$")
	// draftMark is what people put before a title.
	draftMark = regexp.MustCompile(`^(#+\s+|[Tt]itle:\s*)`)
	// draftClaim is a line that says who has looked at a change, or which job
	// made it: not the agent's to say.
	draftClaim = regexp.MustCompile(`(?i)^\s*([a-z]+-)*(by|job|session):`)
)

// readDraft finds title and text in what an agent has said, as far as they can
// stand in a commit.
func readDraft(said string) draft {
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
	if inner := draftFence.FindStringSubmatch(said); inner != nil {
		said = strings.TrimSpace(inner[1])
	}
	title, text, _ := strings.Cut(said, "\n")
	var d draft
	d.title = strings.Join(strings.Fields(draftMark.ReplaceAllString(title, "")), " ")
	if r := []rune(d.title); len(r) > draftTitle {
		d.title = string(r[:draftTitle-1]) + "…"
	}
	var kept []string
	size := 0
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if size += len(line) + 1; size > draftText {
			break
		}
		if !draftClaim.MatchString(line) {
			kept = append(kept, strings.TrimRight(line, " "))
		}
	}
	d.text = strings.TrimSpace(strings.Join(kept, "\n"))
	return d
}
