package ledger_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/ledger"
)

func TestParse(t *testing.T) {
	for _, s := range []string{"queue:slow=50/day", "pool=2000000tokens/hour", "key:anthropic=0.5/month", "queue:a=b=1/day"} {
		b, err := ledger.Parse(s)
		if err != nil || b.String() != s {
			t.Errorf("%q: %v, err %v", s, b, err)
		}
	}
	for _, s := range []string{"", "pool", "pool=5", "pool=5/week", "pool=/day", "pool=0/day", "pool=-1/day", "pool=NaN/day", "pool=1.5tokens/day", "queue:=5/day", "batch:x=5/day", "moon=1/day", "queue:" + strings.Repeat("x", 300) + "=1/day"} {
		if b, err := ledger.Parse(s); err == nil {
			t.Errorf("%q was taken for %v", s, b)
		}
	}
	both, err := ledger.ParseAll([]string{"pool=5/day", "pool=100tokens/day", "queue:q=1/hour"})
	if err != nil || len(both) != 2 || both[0].USD != 5 || both[0].Tokens != 100 {
		t.Errorf("%v, err %v", both, err)
	}
	for _, twice := range [][]string{{"pool=5/day", "pool=6/day"}, {"pool=5/day", "pool=6tokens/hour"}} {
		if _, err := ledger.ParseAll(twice); err == nil {
			t.Errorf("%v was taken", twice)
		}
	}
}

func TestPeriods(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.FixedZone("", 3600)) // 22:59:59 UTC
	for per, want := range map[string]string{"hour": "2026-12-31T23:00:00Z", "day": "2027-01-01T00:00:00Z", "month": "2027-01-01T00:00:00Z"} {
		if got := (ledger.Budget{Per: per}).Next(at).Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", per, got, want)
		}
	}
	if got := (ledger.Budget{}).Next(at); !got.IsZero() {
		t.Errorf("for ever: %v", got)
	}
}

func TestOfAJob(t *testing.T) {
	all, err := ledger.ParseAll([]string{"pool=1/day", "queue:a=2/day", "queue:b=3/day", "key:openai=4/day"})
	if err != nil {
		t.Fatal(err)
	}
	job := jobs.Job{Budget: jobs.Budget{BatchUSD: 9}}
	var keys []string
	for _, b := range all.Of(jobs.Record{Queue: "a", Batch: "x"}, job, "openai") {
		keys = append(keys, b.String())
	}
	if got := strings.Join(keys, " "); got != "pool=1/day queue:a=2/day key:openai=4/day batch:x=9" {
		t.Errorf("got %s", got)
	}
	if got := all.Of(jobs.Record{Queue: "c"}, job, "anthropic"); len(got) != 1 {
		t.Errorf("a job of no batch: %v", got)
	}
}

// What many workers add at once is all there, in its period, also after the broker has
// restarted.
func TestWhatIsSpentIsKept(t *testing.T) {
	s := jobstest.Start(t)
	l := open(t, s)
	b, noon := ledger.Budget{Key: "queue:q", Amount: ledger.Amount{USD: 5}, Per: "day"}, time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	if err := l.SetBudgets(t.Context(), ledger.Budgets{b}); err != nil {
		t.Fatal(err)
	}
	var adding sync.WaitGroup
	for range 8 {
		adding.Go(func() {
			for range 10 {
				if err := l.Add(t.Context(), b, noon, ledger.Amount{USD: 0.25, Tokens: 10}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	adding.Wait()
	s.Restart()
	l = open(t, s)
	if got, err := l.Spent(t.Context(), b, noon); err != nil || got != (ledger.Amount{USD: 20, Tokens: 800}) {
		t.Errorf("spent %+v, err %v", got, err)
	}
	if got, err := l.Spent(t.Context(), b, noon.Add(12*time.Hour)); err != nil || got != (ledger.Amount{}) {
		t.Errorf("the next day: %+v, err %v", got, err)
	}
	all := ledger.Budgets{{Key: "pool", Per: "day"}, b}
	if got, err := l.SpentOfAll(t.Context(), all, noon); err != nil || len(got) != 2 || got[0] != (ledger.Amount{}) || got[1].USD != 20 {
		t.Errorf("of all budgets: %+v, err %v", got, err)
	}
	if got, err := l.Budgets(t.Context()); err != nil || len(got) != 1 || got[0] != b {
		t.Errorf("budgets %v, err %v", got, err)
	}
}
