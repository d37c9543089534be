package transcript

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

const (
	// runningRows is how many of the items that run are shown.
	runningRows = 8
	// nameWidth bounds an item's name where others stand behind it.
	nameWidth = 32
	// enoughEnded is how many items must have ended before it is told how long the
	// others will take.
	enoughEnded = 2
)

// A Batch shows a batch that runs: a line for each item that has ended, and below
// them the items that run and how far the batch is. Its methods may be called by
// several goroutines.
type Batch struct {
	screen *Screen
	total  int // items
	name   int // columns of the longest name
	began  time.Time

	mu       sync.Mutex
	running  map[string]*item // by job
	outcomes map[jobs.Outcome]int
	ended    int
	seconds  float64 // that those took
	spent    jobs.Spent
	limit    jobs.Budget
	changed  string // the first job with a change
	failed   string // the first that did not succeed
}

// An item is one whose job runs.
type item struct {
	jobs.Record
	began time.Time
	doing string
}

// NewBatch shows the items of a batch on w.
func NewBatch(w *console.Writer, items []string, now time.Time) *Batch {
	b := &Batch{screen: New(w, nil), total: len(items), began: now, running: map[string]*item{}, outcomes: map[jobs.Outcome]int{}}
	for _, id := range items {
		b.name = max(b.name, min(console.Columns(visible.Line(id)), nameWidth))
	}
	return b
}

// Bound says what the jobs of the batch may spend together, and what they have spent before.
func (b *Batch) Bound(limit jobs.Budget, before jobs.Spent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.spent = limit, before
}

// Note takes what has become of a job.
func (b *Batch) Note(rec jobs.Record, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.running[rec.ID]
	switch {
	case rec.State != jobs.Executing:
		delete(b.running, rec.ID)
	case was == nil || was.Attempt != rec.Attempt:
		if rec.Claimed != nil && rec.Claimed.Before(now) {
			now = *rec.Claimed
		}
		b.running[rec.ID] = &item{Record: rec, began: now}
	default:
		was.Record = rec
	}
}

// Doing takes what the agent of a job does.
func (b *Batch) Doing(job, words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.running[job]; i != nil && words != "" {
		i.doing = words
	}
}

// Shown returns the jobs that have a row of their own.
func (b *Batch) Shown() []jobs.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var shown []jobs.Record
	for _, i := range b.longest()[:min(len(b.running), runningRows)] {
		shown = append(shown, i.Record)
	}
	return shown
}

// longest returns the items that run, first those that have run longest.
func (b *Batch) longest() []*item {
	var all []*item
	for _, i := range b.running {
		all = append(all, i)
	}
	slices.SortFunc(all, func(x, y *item) int { return cmp.Or(x.began.Compare(y.began), cmp.Compare(x.ID, y.ID)) })
	return all
}

// Ended writes how an item ended.
func (b *Batch) Ended(r jobs.Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, r.Job)
	b.outcomes[r.Outcome]++
	b.ended++
	seconds := max(r.Durations.Total-r.Durations.Queue, 0)
	b.seconds += seconds
	b.spent = b.spent.Add(jobs.Spent{Usage: r.Usage, CostUSD: r.CostUSD})
	if r.FilesChanged > 0 {
		b.changed = cmp.Or(b.changed, Short(r.Job))
	}
	name := console.Pad(visible.Line(r.ID), b.name)
	facts := summary.Join("in "+summary.Took(seconds), summary.Count(int64(r.FilesChanged), "file"), summary.Dollars(r.CostUSD))
	if r.Outcome == jobs.Success || r.Outcome == jobs.Skip {
		return b.screen.marked(console.Green, "✓", name+fmt.Sprintf("  %s %s", r.Outcome, facts))
	}
	b.failed = cmp.Or(b.failed, Short(r.Job))
	err := b.screen.marked(console.Red, "✗", name+fmt.Sprintf("  %s (%s) %s", r.Outcome, r.Reason, facts))
	if said := visible.Block(r.Message); len(said) > 0 && err == nil {
		err = b.screen.block(look{indent: 4, style: console.Red, most: 1}, said[0])
	}
	return err
}

// label is the name of an item that runs, as wide as those of all. Of a name that
// does not fit the end is shown: there it differs from the others.
func (b *Batch) label(id string) string {
	columns, _ := b.screen.w.Size()
	width := min(b.name, max(columns/3, 8))
	name := []rune(visible.Line(id))
	for cut := false; console.Columns(string(name)) > width; cut = true {
		name = name[1:]
		if cut {
			name = name[1:]
		}
		name = append([]rune{'…'}, name...)
	}
	return console.Pad(string(name), width)
}

// Draw draws the items that run and how far the batch is, for the terminal as
// wide and as high as it is now.
func (b *Batch) Draw(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	columns, room := b.screen.w.LiveSize()
	most := min(runningRows, room-1)
	all := b.longest()
	if len(all) > most && most > 0 {
		most-- // for the row that says how many more there are
	}
	var rows [][]console.Span
	shown, span := all[:min(len(all), most)], 0
	for _, i := range shown {
		span = max(span, len(whole(now.Sub(i.began))))
	}
	for _, i := range shown {
		rows = append(rows, b.row(i, fmt.Sprintf("  %-*s  ", span, whole(now.Sub(i.began)))))
	}
	if more := len(all) - len(rows); more > 0 && most > 0 {
		rows = append(rows, []console.Span{{Style: console.Dim, Text: fmt.Sprintf("  … %d more running", more)}})
	}
	return b.screen.w.Live(append(rows, b.bar(now, columns)))
}

// row shows an item that runs.
func (b *Batch) row(i *item, ran string) []console.Span {
	style, words := console.Dim, i.doing
	switch {
	case i.Asks != nil:
		style, words = console.Alert, "waits for an answer: "+i.Asks.Question
	case words == "":
		words = "starts"
	}
	if i.Attempt > 1 {
		words = fmt.Sprintf("attempt %d: %s", i.Attempt, words)
	}
	return []console.Span{{Style: console.Cyan, Text: "● "}, {Text: b.label(i.Item)}, {Style: console.Dim, Text: ran}, {Style: style, Text: words}}
}

// bar shows how far the batch is. What there is no room for is left out, the
// least wanted first.
func (b *Batch) bar(now time.Time, columns int) []console.Span {
	const most, least = 30, 6
	left := ""
	if rest := b.left(now); rest > 0 {
		left = "about " + whole(rest) + " left"
	}
	head := fmt.Sprintf("%d/%d", b.ended, b.total)
	parts := []string{whole(now.Sub(b.began)), left, fmt.Sprintf("%d running", len(b.running)), Tally(b.outcomes), Spending(b.spent, b.limit)}
	room := columns - console.Columns(head)
	for _, part := range []int{0, 2, 3, 4} {
		if console.Columns(summary.Join(parts...))+3 > room {
			parts[part] = ""
		}
	}
	words := " · " + summary.Join(parts...)
	spans := []console.Span{{Style: console.Bold, Text: head}}
	if width := min(room-console.Columns(words)-1, most); width >= least && b.total > 0 {
		full := width * b.ended / b.total
		spans = append(spans, console.Span{Text: " "},
			console.Span{Style: console.Green, Text: strings.Repeat("━", full)}, console.Span{Style: console.Dim, Text: strings.Repeat("─", width-full)})
	}
	return append(spans, console.Span{Text: words})
}

// left is how long the batch will take yet, if the others take as long as those
// that have ended and as many run at once as now; 0: nothing is known.
func (b *Batch) left(now time.Time) time.Duration {
	if b.ended < enoughEnded || len(b.running) == 0 {
		return 0
	}
	mean := b.seconds / float64(b.ended)
	work, longest := mean*float64(b.total-b.ended-len(b.running)), 0.0
	for _, i := range b.running {
		ran := now.Sub(i.began).Seconds()
		rest := max(mean-ran, ran/4) // one that takes longer than others goes on for a while
		work += rest
		longest = max(longest, rest)
	}
	return time.Duration(max(work/float64(len(b.running)), longest, 1) * float64(time.Second))
}

// whole is a time span in whole seconds, as people say it.
func whole(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(max(d, 0).Seconds()))
	}
	return summary.Took(d.Truncate(time.Second).Seconds())
}

// Tally counts outcomes in words.
func Tally(outcomes map[jobs.Outcome]int) string {
	var words []string
	for _, o := range []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip} {
		if n := outcomes[o]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(words, ", ")
}

// Spending says what the jobs of a batch have cost, and of how much where they have a budget.
func Spending(spent jobs.Spent, limit jobs.Budget) string {
	cost := summary.Dollars(spent.CostUSD)
	if limit.BatchUSD > 0 {
		cost = fmt.Sprintf("$%.2f of $%.2f", spent.CostUSD, limit.BatchUSD)
	}
	tokens := ""
	if limit.BatchTokens > 0 {
		tokens = fmt.Sprintf("%s of %s tokens", summary.Thousands(spent.Usage.Total()), summary.Thousands(limit.BatchTokens))
	}
	return summary.Join(cost, tokens)
}

// Close takes away what Draw has drawn.
func (b *Batch) Close() error { return b.screen.w.Live(nil) }
