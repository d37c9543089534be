package topcmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// busy is a model of a pool with many jobs, whose texts are long, wide and hostile.
func busy(width, height int) *model {
	now := time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	m := newModel(nil, time.Hour, time.Second)
	m.width, m.height = width, height
	s := snapshot{Stats: operation.PoolStats{At: now, Window: jobs.Duration(time.Hour), Executing: 40}}
	for i := range 40 {
		began := now.Add(-time.Duration(i) * time.Minute)
		s.Running = append(s.Running, jobs.Record{
			ID: fmt.Sprintf("job-%02d", i), Queue: "default", Worker: "w", Claimed: &began, Title: "\x1b[2J\r\nFORGED 漢字 " + strings.Repeat("long ", 40),
		})
	}
	s.Workers = []why.Worker{{Name: "w\x1b]0;t\x07", Closed: strings.Repeat("full ", 50)}}
	m.seen = &s
	return m
}

// However small the terminal, and whatever is in the pool, no line is wider than it, there
// are no more of them than it has, and none holds what a terminal acts on.
func TestTheScreenFits(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 50}, {20, 5}, {10, 3}, {1, 1}} {
		for at := range 4 {
			m := busy(size[0], size[1])
			m.at, m.line, m.failed, m.filter = at, 30, errors.New("\x1b[31mno\nservers"), ""
			for range 2 {
				lines := strings.Split(m.View().Content, "\n")
				if len(lines) > size[1] {
					t.Errorf("%v, table %d: %d lines", size, at, len(lines))
				}
				for _, line := range lines {
					if console.Columns(line) > size[0] || strings.ContainsAny(line, "\x1b\r\x07") {
						t.Errorf("%v, table %d: %q", size, at, line)
					}
				}
				m.standing = &why.Standing{Job: "j", Message: strings.Repeat("because ", 30) + "\x1b[2J", Change: "x"}
			}
		}
	}
}

// The chosen line is on the screen wherever it is in the list; the filter chooses lines, and
// numbers sort by their size.
func TestLinesAreChosenAndSorted(t *testing.T) {
	t.Parallel()
	m := busy(80, 24)
	for range 50 {
		m.key("down", "")
	}
	if r, _ := m.chosen(); r.job != "job-39" || !strings.Contains(m.View().Content, "▸ job-39") {
		t.Errorf("the last line: %s\n%s", r.job, m.View().Content)
	}
	m.column[0] = 4 // for how long
	m.key("home", "")
	if r, _ := m.chosen(); r.job != "job-39" {
		t.Errorf("the longest runs first: %s", r.job)
	}
	for _, r := range "/job-1q" {
		m.key(string(r), string(r))
	}
	if rows := m.rows(); len(rows) != 0 {
		t.Errorf("%d lines have the text", len(rows))
	}
	m.key("backspace", "")
	m.key("enter", "")
	if rows := m.rows(); len(rows) != 10 {
		t.Errorf("%d lines have the text job-1", len(rows))
	}
	m.key("esc", "")
	if rows := m.rows(); len(rows) != 40 {
		t.Errorf("%d lines", len(rows))
	}
}
