package transcript

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
)

// lay shows what a terminal does with bytes, as far as a batch uses it.
func lay(told string) []string {
	rows, row, col := [][]rune{nil}, 0, 0
	told = colors.ReplaceAllString(told, "")
	for told != "" {
		var up int
		r, n := utf8.DecodeRuneInString(told)
		switch {
		case r == '\n':
			if row, col = row+1, 0; row == len(rows) {
				rows = append(rows, nil)
			}
		case r == '\r':
			col = 0
		case strings.HasPrefix(told, "\x1b[K"), strings.HasPrefix(told, "\x1b[J"):
			rows[row] = rows[row][:min(col, len(rows[row]))]
			if told[2] == 'J' {
				rows = rows[:row+1]
			}
			n = 3
		case strings.HasPrefix(told, "\x1b[A"):
			row, n = row-1, 3
		case strings.HasPrefix(told, "\x1b[B"):
			row, n = row+1, 3
		case strings.HasPrefix(told, "\x1b[?7"): // no row is too long
			n = len("\x1b[?7l")
		case r == '\x1b':
			if c, err := fmt.Sscanf(told, "\x1b[%dA", &up); c == 1 && err == nil {
				row, n = row-up, strings.IndexByte(told, 'A')+1
			}
		default:
			if col < len(rows[row]) {
				rows[row][col] = r
			} else {
				rows[row] = append(rows[row], r)
			}
			col++
		}
		told = told[n:]
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, string(r))
	}
	return lines
}

// A batch of which three items ended and ten run, at several widths.
func TestBatch(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	var items []string
	for i := range 24 {
		items = append(items, fmt.Sprintf("astropy__astropy-%05d", i))
	}
	var golden strings.Builder
	for _, columns := range []string{"20", "40", "60", "100", "200"} {
		var out bytes.Buffer
		w := console.New(&out, func(name string) string { return map[string]string{"COLUMNS": columns, "FORCE_COLOR": "1"}[name] })
		b := NewBatch(w, items, now)
		for i := range 10 {
			rec := jobs.Record{ID: fmt.Sprint("job-", i), Item: items[i], State: jobs.Executing, Attempt: 1 + i/9}
			if i == 2 {
				rec.Asks = &jobs.OpenAsk{Question: "Which\nfile?\x1b[2J"}
			}
			b.Note(rec, now.Add(time.Duration(i)*time.Second))
			b.Doing(rec.ID, "▸ Bash go test ./...\x1b]0;x\a\nFORGED and so on with very many words of an agent")
		}
		check(t, b.Draw(now.Add(10*time.Second)))
		if shown := strings.Join(lay(out.String()), "\n"); strings.Contains(shown, "left") {
			t.Errorf("nothing has ended, and it is told how long the batch takes:\n%s", shown)
		}
		check(t, b.Ended(result(items[20], 61, jobs.Success, "")))
		check(t, b.Ended(result(items[21], 3, jobs.Failure, jobs.AgentFailed)))
		check(t, b.Ended(result(items[22], 4, jobs.Success, "")))
		check(t, b.Draw(now.Add(75*time.Second)))
		fmt.Fprintf(&golden, "%s columns\n%s\n", columns, strings.Join(lay(out.String()), "\n"))
		check(t, b.Close())
		check(t, b.Finished(BatchEnd{State: "completed", Dir: "out", Complete: true, Done: 3, Items: 3, CostUSD: 0.12,
			Outcomes: map[jobs.Outcome]int{jobs.Success: 2, jobs.Failure: 1}}, now.Add(80*time.Second)))
		shown := lay(out.String())
		fmt.Fprintf(&golden, "and then\n%s\n", strings.Join(shown, "\n"))
		for _, line := range shown {
			if strings.ContainsAny(line, "\x1b\a") || strings.HasPrefix(line, "FORGED") || strings.Contains(line, "running") {
				t.Errorf("%s columns: %q stays", columns, line)
			}
		}
	}
	file := filepath.Join("testdata", "batch.txt")
	if *update {
		check(t, os.WriteFile(file, []byte(golden.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	check(t, err)
	if golden.String() != string(want) {
		t.Errorf("it shows\n%s\nwant\n%s", golden.String(), want)
	}
}

func result(item string, seconds float64, outcome jobs.Outcome, reason jobs.Reason) jobs.Result {
	r := jobs.Result{ID: item, Job: "01a205f6-dbaa-771f-ac99-41d2010d55db", Outcome: outcome, Reason: reason, FilesChanged: 2, CostUSD: 0.04}
	r.Durations.Total = seconds
	if reason != "" {
		r.Message, r.FilesChanged = "it failed\x1b[2J\nFORGED", 0
	}
	return r
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// It is told how long a batch takes from what has ended, and from how many run at
// once.
func TestTimeLeft(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		items, ended, running int
		ran, want             time.Duration
	}{
		{10, 0, 2, 5 * time.Second, 0},
		{10, 1, 2, 5 * time.Second, 0},                // one says nothing of the others
		{10, 2, 0, 0, 0},                              // paused: unknown
		{10, 2, 2, 0, 40 * time.Second},               // eight of ten seconds, two at once
		{10, 2, 2, 5 * time.Second, 35 * time.Second}, // which are half done
		{10, 2, 8, 0, 10 * time.Second},
		{3, 2, 1, 100 * time.Second, 25 * time.Second}, // longer than any other
	} {
		b := NewBatch(console.New(&bytes.Buffer{}, func(string) string { return "" }), make([]string, tt.items), now)
		for range tt.ended {
			check(t, b.Ended(result("x", 10, jobs.Success, "")))
		}
		for i := range tt.running {
			b.Note(jobs.Record{ID: fmt.Sprint(i), State: jobs.Executing, Attempt: 1}, now)
		}
		if got := b.left(now.Add(tt.ran)); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

// What a batch has cost is a part of its budget, where it has one: also what was spent
// before this run of it.
func TestSpendingOfABatch(t *testing.T) {
	var out bytes.Buffer
	w := console.New(&out, func(name string) string { return map[string]string{"COLUMNS": "120", "FORCE_COLOR": "1"}[name] })
	b := NewBatch(w, []string{"a", "b"}, time.Now())
	b.Bound(jobs.Budget{BatchUSD: 40, BatchTokens: 5000}, jobs.Spent{CostUSD: 1.5, Usage: jobs.Usage{Input: 1000}})
	check(t, b.Ended(jobs.Result{ID: "a", Outcome: jobs.Success, CostUSD: 0.25, Usage: jobs.Usage{Output: 234}}))
	check(t, b.Draw(time.Now()))
	if shown := strings.Join(lay(out.String()), "\n"); !strings.Contains(shown, "$1.75 of $40.00 · 1,234 of 5,000 tokens") {
		t.Errorf("the bar says nothing of the budget:\n%s", shown)
	}
	if got := Spending(jobs.Spent{CostUSD: 1.5}, jobs.Budget{}); got != "$1.50" {
		t.Errorf("without a budget: %s", got)
	}
}
