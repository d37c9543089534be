package jobs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
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
		{"a second death is suspicious", with(func(r *jobs.Record) { r.Lost, r.Deaths = 1, 1 }), ended(jobs.WorkerLost), jobs.Delayed, 0, 2},
		{"and the last is the end", with(func(r *jobs.Record) { r.Lost, r.Deaths = 9, jobs.MaxDeaths-1 }), ended(jobs.WorkerLost), jobs.Finished, 0, 10},
		{"shutdowns go on for long", with(func(r *jobs.Record) { r.Lost = jobs.MaxLost - 2 }), ended(jobs.WorkerDrained), jobs.Pending, 0, jobs.MaxLost - 1},
		{"but not for ever", with(func(r *jobs.Record) { r.Lost = jobs.MaxLost - 1 }), ended(jobs.WorkerDrained), jobs.Finished, 0, jobs.MaxLost},
		{"a host's failure costs no attempt", with(func(r *jobs.Record) { r.Counted = 2 }), ended(jobs.WorkspaceFailed), jobs.Delayed, 2, 1},
		{"hosts fail a job so often only", with(func(r *jobs.Record) { r.Lost, r.HostFailures = 7, jobs.MaxHostFailures-1 }), ended(jobs.DiskFull), jobs.Finished, 0, 8},
		{"deaths use up no attempts", with(func(r *jobs.Record) { r.Counted, r.Lost, r.Deaths = 2, 3, 3 }), ended(jobs.AgentCrashed), jobs.Finished, 3, 3},
		{"a throttled model does not count", running, ended(jobs.RateLimited), jobs.Delayed, 0, 1},
		{"a bad key is final", running, ended(jobs.Unauthorized), jobs.Finished, 0, 1},
		{"nothing is tried again that shall end", with(func(r *jobs.Record) { r.Cancel = &jobs.Cancel{} }), ended(jobs.AgentCrashed), jobs.Finished, 0, 0},
		{"what never began lost nothing: it was cancelled", with(func(r *jobs.Record) { r.State, r.Attempt = jobs.Pending, 0 }), ended(jobs.Cancelled), jobs.Finished, 0, 0},
		{"what never began lost nothing: it cannot be run", with(func(r *jobs.Record) { r.State, r.Attempt = jobs.Pending, 0 }), ended(jobs.InvalidJob), jobs.Finished, 0, 0},
		{"what never began lost nothing: another job failed", with(func(r *jobs.Record) { r.State, r.Attempt = jobs.Waiting, 0 }), ended(jobs.DependencyFailed), jobs.Finished, 0, 0},
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

// How often a job was handed on says nothing of what kills its workers.
func TestAHandOverWaitsNoLongerThanADeath(t *testing.T) {
	r := jobs.Record{ID: jobs.NewID(), MaxAttempts: jobs.MaxAttempts, Deaths: 2, Lost: 20}
	for _, reason := range []jobs.Reason{jobs.LeaseLost, jobs.WorkerDrained} {
		now := time.Now()
		next, _ := r.After(ended(reason), now)
		if next.NotBefore == nil || next.NotBefore.Sub(now) != next.Backoff() || next.Backoff() > 2500*time.Millisecond {
			t.Errorf("%s: waits until %v, %v; want 2 s and up to a quarter more", reason, next.NotBefore, next.Backoff())
		}
	}
}

// A time that was named is waited for, up to a day, and a back-off is as long as it is, whatever time the record has.
func TestPutOff(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		reason jobs.Reason
		wait   time.Duration
		want   time.Duration
	}{
		{jobs.QuotaWaiting, 2 * time.Hour, 2 * time.Hour}, {jobs.KeyRefused, time.Minute, time.Minute}, {jobs.BudgetWaiting, 48 * time.Hour, jobs.MaxRetryAfter},
		{jobs.RateLimited, time.Hour, time.Hour}, {jobs.ModelUnavailable, time.Hour, 0}, {jobs.QuotaWaiting, -time.Hour, 0},
	} {
		at := now.Add(c.wait)
		rec := jobs.Record{ID: "j", Attempt: 1, State: jobs.Delayed, Reason: c.reason, NotBefore: &at}
		if c.want == 0 {
			c.want = rec.Backoff()
		}
		if got := rec.PutOff(now); got != c.want {
			t.Errorf("%s, %v: %v, want %v", c.reason, c.wait, got, c.want)
		}
	}
}

// Jobs that failed together come back apart, each no later than a quarter of
// its wait.
func TestBackoffSpreads(t *testing.T) {
	now := time.Now()
	seen := map[time.Duration]bool{}
	for range 1000 {
		r := jobs.Record{ID: jobs.NewID(), Attempt: 1, MaxAttempts: 3}
		next, _ := r.After(ended(jobs.AgentCrashed), now)
		wait := next.NotBefore.Sub(now)
		if wait < 2*time.Second || wait > 2500*time.Millisecond {
			t.Fatalf("waits %v, want 2 s and up to a quarter more", wait)
		}
		seen[wait] = true
	}
	if len(seen) < 400 {
		t.Errorf("1000 jobs come back at %d moments, want hundreds", len(seen))
	}
}

func ended(reason jobs.Reason) jobs.Ended {
	return reason.Ended("because")
}

// A reason that is declared but not in the table would silently mean "final,
// free of charge, without a fault".
func TestEveryReasonIsInTheTable(t *testing.T) {
	declared := 0
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
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
		if !ok || cause.Outcome == "" || cause.Advice == "" || cause.Fault == "" || cause.Retry == "" || cause.Charge == "" {
			t.Errorf("%s: got %+v, want every column but the scope", name, cause)
		}
		// What every job would meet is not tried again, and what is the pool's
		// doing is not charged to the job for being final.
		if cause.Hopeless() && cause.Retry != jobs.Never || cause.Retry == jobs.AtOnce && cause.Charge == jobs.ChargeAttempt {
			t.Errorf("%s contradicts itself: %+v", name, cause)
		}
		return true
	})
	if declared != len(jobs.Reasons) {
		t.Errorf("%d reasons are declared, %d are in the table", declared, len(jobs.Reasons))
	}
}

// A batch stops for what all that is left of it would meet, and for no less.
func TestACauseMeetsThoseWhoShareIt(t *testing.T) {
	base := jobs.Job{Agent: jobs.Agent{Name: "claude", Model: "a"}, Image: "i", Secrets: []string{"S"}}.WithDefaults()
	tests := []struct {
		reason jobs.Reason
		other  func(*jobs.Job)
	}{
		{jobs.Unauthorized, func(j *jobs.Job) { j.Agent.Name = "codex" }},
		{jobs.AgentMissing, func(j *jobs.Job) { j.Agent.Command = []string{"x"} }},
		{jobs.ModelNotFound, func(j *jobs.Job) { j.Agent.Model = "b" }},
		{jobs.ImageMissing, func(j *jobs.Job) { j.Image = "j" }},
		{jobs.SecretMissing, func(j *jobs.Job) { j.Secrets = nil }},
		{jobs.PolicyDenied, func(j *jobs.Job) { j.Sandbox.Network = jobs.NetworkFull }},
		{jobs.SandboxMissing, func(j *jobs.Job) { j.Isolation = jobs.IsolationContainer }},
	}
	for _, tt := range tests {
		cause := jobs.Reasons[tt.reason]
		other := base
		other.Prompt, other.Item = "another", "2"
		if !cause.Hopeless() || !cause.Meets(base, other) {
			t.Errorf("%s: a job with another prompt does not meet it", tt.reason)
		}
		if tt.other(&other); cause.Meets(base, other) {
			t.Errorf("%s: a job that differs in what it is about meets it, too", tt.reason)
		}
	}
	for reason, cause := range jobs.Reasons {
		if !cause.Hopeless() && cause.Meets(base, base) {
			t.Errorf("%s: other jobs may do better", reason)
		}
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

// What a provider refuses is bounded for each reason alone, and a shutdown is not
// the provider's.
func TestRefusalsAreBoundedForEachReason(t *testing.T) {
	within := jobs.Bounds{Refusals: 3}
	r, now := jobs.Record{ID: jobs.NewID(), MaxAttempts: 1}, time.Now()
	for i, reason := range []jobs.Reason{
		jobs.RateLimited, jobs.WorkerDrained, jobs.ModelUnavailable, jobs.RateLimited, jobs.ModelUnavailable, jobs.WorkerDrained, jobs.WorkerDrained,
	} {
		var finished bool
		r.State = jobs.Executing
		if r, finished = within.After(r, ended(reason), now); finished {
			t.Fatalf("given up at %d, %s: %s", i, reason, r.Message)
		}
	}
	r.State = jobs.Executing
	last, finished := within.After(r, ended(jobs.RateLimited), now)
	if !finished || last.Reason != jobs.RateLimited || r.Refusals[jobs.RateLimited] != 2 {
		t.Errorf("after the third: %+v", last)
	}
	if again := last.Afresh(); len(again.Refusals) > 0 {
		t.Errorf("a retry begins with %v", again.Refusals)
	}
	for asked, want := range map[time.Duration]time.Duration{90 * time.Second: 90 * time.Second, 100 * time.Hour: jobs.MaxRetryAfter} {
		end := ended(jobs.RateLimited)
		end.Wait = asked
		if got, _ := (jobs.Bounds{}).After(r, end, now); got.NotBefore == nil || !got.NotBefore.Equal(now.Add(want)) {
			t.Errorf("asked for %v, waits until %v, want %v", asked, got.NotBefore, want)
		}
	}
}

func TestAmountsStayFinite(t *testing.T) {
	for _, tt := range []struct{ a, b, want float64 }{
		{0.25, 0.5, 0.75}, {1.7e308, 1.7e308, jobs.MostUSD}, {-1.7e308, -1.7e308, 0}, {math.Inf(1), 1, jobs.MostUSD}, {math.Inf(-1), 1, 1},
	} {
		if got := jobs.AddUSD(tt.a, tt.b); got != tt.want {
			t.Errorf("%v + %v = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// A budget that was raised holds instead of the job's own, unless the job is signed.
func TestRaisedBudgets(t *testing.T) {
	both := jobs.Job{Budget: jobs.Budget{USD: 1.5, Tokens: 1000, BatchUSD: 9}}
	raised := jobs.Record{Raised: jobs.Allowance{USD: 4}}
	if got := raised.Allowed(both).Budget; got != (jobs.Budget{USD: 4, Tokens: 1000, BatchUSD: 9}) {
		t.Errorf("it may spend %+v", got)
	}
	if got := raised.Allowed(jobs.Job{Budget: both.Budget, Signature: &jobs.Signature{}}).Budget; got != both.Budget {
		t.Errorf("a signed job may spend %+v", got)
	}
}
