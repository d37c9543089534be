package jobs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

func TestAfterDecidesAboutAnotherAttempt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	running := jobs.Record{ID: jobs.NewID(), State: jobs.Executing, Attempt: 1, MaxAttempts: 3, Worker: "w"}
	with := func(change func(*jobs.Record)) jobs.Record { r := running; change(&r); return r }
	tests := []struct {
		name   string
		before jobs.Record
		end    jobs.Ended
		state  jobs.State
		counts int
		lost   int
	}{
		{"success", running, jobs.Ended{Outcome: jobs.Success}, jobs.Finished, 0, 0},
		{"the agent's own failure is final", running, ended(jobs.AgentFailed), jobs.Finished, 1, 0},
		{"a crash is tried again later", running, ended(jobs.AgentCrashed), jobs.Delayed, 1, 0},
		{"until the attempts are used up", with(func(r *jobs.Record) { r.Counted = 2 }), ended(jobs.AgentCrashed), jobs.Finished, 3, 0},
		{"a drain costs nothing and waits for nothing", with(func(r *jobs.Record) { r.Counted = 2 }), ended(jobs.WorkerDrained), jobs.Pending, 2, 1},
		{"a lost worker likewise", running, ended(jobs.WorkerLost), jobs.Pending, 0, 1},
		{"but not for ever", with(func(r *jobs.Record) { r.Lost = jobs.MaxLost - 1 }), ended(jobs.WorkerLost), jobs.Finished, 0, jobs.MaxLost},
		{"a throttled model does not count", running, ended(jobs.RateLimited), jobs.Delayed, 0, 1},
		{"a bad key is final", running, ended(jobs.Unauthorized), jobs.Finished, 0, 1},
		{"nothing is tried again that shall end", with(func(r *jobs.Record) { r.Cancel = &jobs.Cancel{} }), ended(jobs.AgentCrashed), jobs.Finished, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, finished := tt.before.After(tt.end, now)
			if got.State != tt.state || got.Counted != tt.counts || got.Lost != tt.lost {
				t.Errorf("got %s counted %d lost %d, want %s %d %d", got.State, got.Counted, got.Lost, tt.state, tt.counts, tt.lost)
			}
			if finished != (tt.state == jobs.Finished) || (got.Finished != nil) != finished || (got.Outcome != "") != finished {
				t.Errorf("finished %v, at %v, outcome %q", finished, got.Finished, got.Outcome)
			}
			if (got.State == jobs.Delayed) != (got.NotBefore != nil && got.NotBefore.After(now)) {
				t.Errorf("%s until %v", got.State, got.NotBefore)
			}
			if got.Worker != "" || tt.before.Worker != "w" {
				t.Errorf("worker: got %q after, %q before", got.Worker, tt.before.Worker)
			}
		})
	}
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	now := time.Now()
	r := jobs.Record{ID: jobs.NewID(), MaxAttempts: jobs.MaxAttempts}
	last := time.Duration(0)
	for range 9 {
		next, _ := r.After(ended(jobs.ModelUnavailable), now)
		wait := next.NotBefore.Sub(now)
		if wait < last || wait > 7*time.Minute {
			t.Errorf("attempt %d waits %v after %v", next.Lost, wait, last)
		}
		r, last = next, wait
	}
}

func ended(reason jobs.Reason) jobs.Ended {
	return jobs.Ended{Outcome: jobs.Reasons[reason].Outcome, Reason: reason, Message: "because"}
}

// A reason that is declared but not in the table would silently mean "final,
// free of charge, nobody's fault".
func TestEveryReasonIsInTheTable(t *testing.T) {
	declared := 0
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typ, _ := spec.Type.(*ast.Ident)
		value, _ := spec.Values[0].(*ast.BasicLit)
		if typ == nil || typ.Name != "Reason" || value == nil {
			return true
		}
		name, _ := strconv.Unquote(value.Value)
		declared++
		cause, ok := jobs.Reasons[jobs.Reason(name)]
		if !ok || cause.Outcome == "" || cause.Advice == "" || cause.Fault == "" {
			t.Errorf("%s: got %+v, want an outcome, a fault and advice", name, cause)
		}
		return true
	})
	if declared != len(jobs.Reasons) {
		t.Errorf("%d reasons are declared, %d are in the table", declared, len(jobs.Reasons))
	}
}

func TestTitleIsOneCleanLine(t *testing.T) {
	job := jobs.Job{Prompt: "\n  Fix\x1b[2J the " + string(make([]byte, 0)) + "thing\nand more"}
	if got, want := job.Title(), "Fix[2J the thing"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestACancelledJobKeepsASuccess(t *testing.T) {
	r := jobs.Record{ID: jobs.NewID(), MaxAttempts: 3, Cancel: &jobs.Cancel{}}
	if got, _ := r.After(jobs.Ended{Outcome: jobs.Success}, time.Now()); got.Outcome != jobs.Success {
		t.Errorf("too late: got %s, want success", got.Outcome)
	}
	if got, _ := r.After(ended(jobs.AgentFailed), time.Now()); got.Outcome != jobs.Cancellation || got.Reason != jobs.Cancelled {
		t.Errorf("in time: got %s %s, want cancellation", got.Outcome, got.Reason)
	}
}
