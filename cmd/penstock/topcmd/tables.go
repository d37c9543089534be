package topcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/summary"
)

// A table is one of those between which the tab key switches.
type table struct {
	name   string
	header []string
	rows   []row
}

// A row is a line of a table. By keeps what its cells are sorted by, where that is not their
// text.
type row struct {
	cells []string
	by    map[int]float64
	job   string // its id, if it is about a job
	queue string // its name, if it is about a queue or a job of one
	held  bool   // the queue is paused
}

// ids are those of the running jobs.
func (s snapshot) ids() (all []string) {
	for _, r := range s.Running {
		all = append(all, r.ID)
	}
	return all
}

// head sums the pool up.
func (s snapshot) head() []string {
	slots, busy := 0, 0
	for _, w := range s.Workers {
		slots, busy = slots+w.Slots, busy+w.Busy
	}
	now := fmt.Sprintf("%d running, %d pending, %d delayed, %d waiting · %d of %d slots on %s", s.Stats.Executing, s.Stats.Pending, s.Stats.Delayed,
		s.Stats.Waiting, busy, slots, summary.Count(int64(len(s.Workers)), "worker"))
	if s.Stats.Oldest != nil {
		now += " · oldest pending " + age(s.Stats.At, s.Stats.Oldest)
	}
	l := s.Stats.Lately
	lately := fmt.Sprintf("last %s: %d ended, %.2f a minute", short(time.Duration(s.Stats.Window)), l.Ended, l.PerMinute)
	for _, part := range []string{outcomes(l.Outcomes), summary.Dollars(l.CostUSD), times("wait", l.Wait), times("run", l.Run)} {
		if part != "" {
			lately += " · " + part
		}
	}
	return []string{now, lately}
}

// times are the median and the 95th percentile.
func times(what string, s operation.Spread) string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s, 95 %% %s", what, summary.Took(s.P50), summary.Took(s.P95))
}

func outcomes(counts map[jobs.Outcome]int) string {
	var parts []string
	for _, o := range []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip} {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// short is a time span without the parts that are zero.
func short(d time.Duration) string {
	text := d.Truncate(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func age(now time.Time, since *time.Time) string {
	if since == nil {
		return ""
	}
	return short(max(now.Sub(*since), 0))
}

// tables are those of the snapshot, in their order.
func (s snapshot) tables() []table {
	return []table{s.jobs(), s.queues(), s.workers(), s.stuck()}
}

func (s snapshot) jobs() table {
	t := table{name: "Jobs", header: []string{"JOB", "QUEUE", "AGENT", "ATTEMPT", "FOR", "COST", "WORKER", "TITLE"}}
	for _, r := range s.Running {
		cost, title, ran := r.SpentBefore.Add(r.LastAttempt).CostUSD, r.Title, 0.0
		if r.Asks != nil {
			title = "asks: " + r.Asks.Question
		}
		if r.Claimed != nil {
			ran = s.Stats.At.Sub(*r.Claimed).Seconds()
		}
		t.rows = append(t.rows, row{
			cells: []string{r.ID, r.Queue, r.Agent, strconv.Itoa(r.Attempt), age(s.Stats.At, r.Claimed), summary.Dollars(cost), r.Worker, title},
			by:    map[int]float64{3: float64(r.Attempt), 4: ran, 5: cost}, job: r.ID, queue: r.Queue, held: s.paused(r.Queue),
		})
	}
	return t
}

func (s snapshot) queues() table {
	t := table{name: "Queues", header: []string{"QUEUE", "PENDING", "RUNNING", "OLDEST", "PER MINUTE", "COST", "PAUSED", "OUTCOMES"}}
	for _, q := range s.Stats.ByQueue {
		waited := 0.0
		if q.Oldest != nil {
			waited = s.Stats.At.Sub(*q.Oldest).Seconds()
		}
		t.rows = append(t.rows, row{
			cells: []string{
				q.Queue.Queue, strconv.Itoa(q.Pending), strconv.Itoa(q.Executing), age(s.Stats.At, q.Oldest), fmt.Sprintf("%.2f", q.Lately.PerMinute),
				summary.Dollars(q.Lately.CostUSD), holds.Words(q.Paused), outcomes(q.Lately.Outcomes),
			},
			by: map[int]float64{1: float64(q.Pending), 2: float64(q.Executing), 3: waited, 4: q.Lately.PerMinute, 5: q.Lately.CostUSD}, queue: q.Queue.Queue, held: q.Paused != nil,
		})
	}
	return t
}

func (s snapshot) workers() table {
	t := table{name: "Workers", header: []string{"WORKER", "STATE", "BUSY", "SLOTS", "QUEUES", "LABELS", "WHY"}}
	for _, w := range s.Workers {
		closed := w.Closed
		if w.Drain != nil {
			closed = w.Drain.String()
		}
		t.rows = append(t.rows, row{
			cells: []string{w.Name, string(w.State), strconv.Itoa(w.Busy), strconv.Itoa(w.Slots), strings.Join(w.Queues, ","), strings.Join(w.Labels, ","), closed},
			by:    map[int]float64{2: float64(w.Busy), 3: float64(w.Slots)},
		})
	}
	return t
}

func (s snapshot) stuck() table {
	t := table{name: "Stuck", header: []string{"JOB", "QUEUE", "FOR", "WHY", "TO CHANGE IT"}}
	for _, k := range s.Stuck {
		t.rows = append(t.rows, row{
			cells: []string{k.Job.ID, k.Job.Queue, age(s.Stats.At, &k.Job.Submitted), k.Why.Message, k.Why.Change},
			by:    map[int]float64{2: s.Stats.At.Sub(k.Job.Submitted).Seconds()}, job: k.Job.ID, queue: k.Job.Queue, held: s.paused(k.Job.Queue),
		})
	}
	return t
}

func (s snapshot) paused(queue string) bool {
	return slices.ContainsFunc(s.Stats.ByQueue, func(q operation.QueueStats) bool { return q.Queue.Queue == queue && q.Paused != nil })
}

// chosen are the rows that have a text, sorted by a column: numbers with the greatest first.
func (t table) chosen(filter string, column int) []row {
	filter = strings.ToLower(filter)
	rows := slices.DeleteFunc(slices.Clone(t.rows), func(r row) bool {
		return !strings.Contains(strings.ToLower(strings.Join(r.cells, " ")), filter)
	})
	slices.SortStableFunc(rows, func(a, b row) int {
		if _, number := a.by[column]; number {
			return cmp.Compare(b.by[column], a.by[column])
		}
		return cmp.Compare(a.cells[column], b.cells[column])
	})
	return rows
}
