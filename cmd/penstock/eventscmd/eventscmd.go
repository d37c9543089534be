// Package eventscmd is the command events: what changes in a pool, as it happens.
package eventscmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/feed"
)

// New returns the command events.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{Use: "events", Short: "Follow what changes in a pool"}
	cmd.AddCommand(tail(shell))
	return cmd
}

// A choice of changes. Empty fields choose all.
type choice struct{ queue, batch, kind, outcome string }

func tail(shell cli.Shell) *cobra.Command {
	t := &follower{shell: shell}
	cmd := &cobra.Command{
		Use: "tail", Short: "Print each change in a pool as it happens, until interrupted", Args: cobra.NoArgs,
		Long: `Tail prints one line for each change: of jobs, workers, queues, batches, schedules, dead
letters and caps. It is the stream that GET /v1/stream serves. It tells states and not steps:
of a job that changes several times in quick succession it tells the newest state. Where the
connection is lost it goes on behind the last change; if too much has changed since, a line
reset says that changes were missed. For the events of one job's agent use penstock watch.

On the bus it is for operators; over HTTP a token of role viewer will do.`,
		Example: `  penstock events tail --queue nightly
  penstock events tail --kind job --outcome error -o json
  penstock events tail --from PLACE -o json     # PLACE is the place of the last line`,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&t.only.queue, "queue", "", "only changes of this queue and of its jobs")
	flags.StringVar(&t.only.batch, "batch", "", "only changes of this batch and of its jobs")
	flags.Var(input.OneOf(&t.only.kind, kinds()...), "kind", "only changes of this kind: "+input.List(kinds()))
	flags.Var(input.OneOf(&t.only.outcome, outcomes()...), "outcome", "only jobs that end with this outcome: "+input.List(outcomes()))
	flags.StringVar(&t.from, "from", "", "begin behind this place, which a line of -o json has")
	flags.IntVar(&t.limit, "limit", 0, "end after so many changes (default: only when interrupted)")
	return cmd
}

func kinds() []string {
	var words []string
	for _, k := range feed.Kinds {
		if k.Kind != feed.Reset { // which is told in any case
			words = append(words, string(k.Kind))
		}
	}
	return words
}

func outcomes() []string {
	return input.Strings(jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip)
}

// chooses reports whether a change is one of those. What may have been missed concerns all.
func (c choice) chooses(kind feed.Kind, of feed.Change) bool {
	named := func(what feed.Kind, name, own string) bool {
		return name == "" || kind == feed.Job && own == name || kind == what && of.Name == name
	}
	return kind == feed.Reset || (c.kind == "" || c.kind == string(kind)) && (c.outcome == "" || string(of.Outcome) == c.outcome) &&
		named(feed.Queue, c.queue, of.Queue) && named(feed.Batch, c.batch, of.Batch)
}

// A follower prints changes.
type follower struct {
	shell cli.Shell
	only  choice
	from  string
	limit int

	away atomic.Bool // it was said that the pool does not answer
}

func (t *follower) run(ctx context.Context) error {
	return pool.With(ctx, t.shell, "read", func(p *pool.Pool) error { return t.follow(ctx, p) })
}

func (t *follower) follow(ctx context.Context, p *pool.Pool) error {
	told := 0
	begin := t.from == "" // the first reset says only that
	for item, err := range pool.Changes(ctx, t.shell, p, t.from, t.lost) {
		switch {
		case ctx.Err() != nil:
			return cli.Fail(cli.ExitInterrupted, "", "interrupted")
		case err != nil:
			return err
		}
		t.back()
		var of feed.Change
		if err := json.Unmarshal(item.Data, &of); err != nil {
			return fmt.Errorf("read a change: %w", err)
		}
		if !t.only.chooses(item.Kind, of) {
			continue
		}
		if err := t.print(line{item.Place, time.Now().UTC(), item.Kind, of}, begin); err != nil {
			return err
		}
		begin = false
		if item.Kind != feed.Reset {
			told++
		}
		if told == t.limit && t.limit > 0 {
			return nil
		}
	}
	return cli.Fail(cli.ExitInterrupted, "", "interrupted")
}

func (t *follower) lost(err error) {
	if t.away.CompareAndSwap(false, true) {
		t.shell.Err.Printf("penstock: the pool does not answer, waiting for it: %v\n", err)
	}
}

func (t *follower) back() {
	if t.away.CompareAndSwap(true, false) {
		t.shell.Err.Printf("penstock: the pool answers again\n")
	}
}

// A line is a change as it is printed.
type line struct {
	Place string    `json:"place"`
	At    time.Time `json:"at"` // when it came
	Kind  feed.Kind `json:"kind"`
	feed.Change
}

var view = cli.View[line]{ID: func(l line) string { return l.ID + l.Name }}

// print writes a line. Only programs need to know where the stream begins.
func (t *follower) print(l line, begin bool) error {
	switch *t.shell.Format {
	case cli.JSON, cli.JSONL:
		return view.One(t.shell.Out, cli.JSONL, l)
	case cli.YAML:
		if _, err := io.WriteString(t.shell.Out, "---\n"); err != nil {
			return err
		}
		return view.One(t.shell.Out, cli.YAML, l)
	case cli.IDs:
		if l.ID+l.Name == "" {
			return nil
		}
		return view.One(t.shell.Out, cli.IDs, l)
	}
	if l.Kind == feed.Reset && begin {
		return nil
	}
	return t.shell.Out.Row(l.spans()...)
}

// spans are what people read.
func (l line) spans() []console.Span {
	at := console.Span{Style: console.Dim, Text: l.At.Local().Format(time.TimeOnly) + "  "}
	if l.Kind == feed.Reset {
		return []console.Span{at, {Style: console.Alert, Text: "reset     changes were missed: look at the lists again"}}
	}
	words := []string{l.ID + l.Name, string(l.State), string(l.Outcome), string(l.Reason), l.Operation}
	pairs := [][2]string{{"queue", l.Queue}, {"batch", l.Batch}, {"worker", l.Worker}, {"hold", l.Hold}}
	for _, pair := range pairs {
		if pair[1] != "" {
			words = append(words, pair[0]+"="+pair[1])
		}
	}
	if l.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt=%d", l.Attempt))
	}
	for _, said := range []struct {
		is   bool
		word string
	}{{l.Asks, "asks"}, {l.Cancel, "is being cancelled"}, {l.Gone, "gone"}} {
		if said.is {
			words = append(words, said.word)
		}
	}
	return []console.Span{at, {Text: console.Pad(string(l.Kind), 8) + "  " + strings.Join(there(words), "  ")}}
}

func there(words []string) []string {
	var all []string
	for _, w := range words {
		if w != "" {
			all = append(all, w)
		}
	}
	return all
}
