package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	workers "github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// wrong records a violation. Thousands of violations say no more than the first ones.
func (r *run) wrong(format string, args ...any) {
	if len(r.report.Violations) < 100 {
		r.report.Violations = append(r.report.Violations, fmt.Sprintf(format, args...))
	}
}

// finish waits until every job has ended, and retries those that were given up because
// of the faults.
func (r *run) finish(ctx context.Context) error {
	ended, last := 0, time.Now()
	for ended < len(r.jobs) {
		list, err := r.finished(ctx)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(rec jobs.Record) bool { return r.again(ctx, rec) })
		if len(list) != ended {
			ended, last = len(list), time.Now()
		}
		if time.Since(last) > stall {
			r.wrong("after %v nothing has happened to %d jobs that are not finished", stall, len(r.jobs)-ended)
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// again retries a job whose workers died too often.
func (r *run) again(ctx context.Context, rec jobs.Record) bool {
	if rec.Outcome == jobs.Success || jobs.Reasons[rec.Reason].Fault != jobs.FaultPool {
		return false
	}
	if _, err := r.pool.Queue.Retry(ctx, rec.ID, false, nil); err != nil {
		return false // the next call tries again
	}
	r.retried[rec.ID]++
	r.report.Retried++
	return true
}

// check compares the stored state with the expected one.
func (r *run) check(ctx context.Context) error {
	for _, j := range r.jobs {
		if err := r.checkJob(ctx, j); err != nil {
			return fmt.Errorf("check job %s: %w", j.id, err)
		}
	}
	left, err := r.left(ctx)
	if err != nil {
		return err
	}
	r.report.Left = len(left)
	for _, what := range left {
		r.wrong("left behind: %s", what)
	}
	return nil
}

func (r *run) checkJob(ctx context.Context, j *job) error {
	rec, err := r.pool.Queue.Get(ctx, j.id)
	if err != nil {
		return err
	}
	r.report.Attempts += rec.Attempt
	if rec.State != jobs.Finished || rec.Outcome != jobs.Success {
		r.report.Lost++
		r.wrong("job %s is %s, %s %s: %s", j.id, rec.State, rec.Outcome, rec.Reason, rec.Message)
		return r.checkEvents(ctx, j, rec)
	}
	patch, err := r.patch(ctx, rec)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("+job %d\n", j.n); strings.Count(patch, "\n+") != 2 || !strings.HasSuffix(patch, want) { // the other is "+++"
		r.report.Lost++
		r.wrong("job %s has another patch than its agent wrote: %q", j.id, patch)
	} else {
		r.report.Results++
	}
	return r.checkEvents(ctx, j, rec)
}

func (r *run) patch(ctx context.Context, rec jobs.Record) (string, error) {
	content, err := r.pool.Store.Get(ctx, rec.ID, rec.Epoch, workers.PatchName)
	if err != nil {
		return "", err
	}
	defer content.Close()
	b, err := io.ReadAll(content)
	return string(b), err
}

// A story is the content of one job's events.
type story struct {
	next     uint64 // expected number of the next event
	attempt  int    // the last claimed attempt
	ends     int
	ticks    int // of the successful attempt
	succeeds int // the successful attempt
}

// checkEvents looks for gaps and duplicates: in the session's numbers, in the lines of
// the successful agent, and in the job's end. An attempt that has lost its lease must
// not write.
func (r *run) checkEvents(ctx context.Context, j *job, rec jobs.Record) error {
	s := story{next: 1, succeeds: rec.Attempt}
	for e, err := range r.pool.Log.Read(ctx, j.session, 1) {
		if err != nil {
			return err
		}
		r.report.Events++
		r.number(j, &s, e)
		if err := r.follow(j, &s, e); err != nil {
			return err
		}
	}
	if want := 1 + r.retried[j.id]; s.ends > want {
		r.report.Duplicates += s.ends - want
		r.wrong("job %s ended %d times", j.id, s.ends)
	} else if s.ends < want {
		r.report.EventsMissing += want - s.ends
		r.wrong("job %s has %d of %d last events", j.id, s.ends, want)
	}
	if s.attempt > rec.Attempt {
		r.report.Stale++
		r.wrong("job %s counts %d attempts, and had %d", j.id, rec.Attempt, s.attempt)
	}
	if missing := j.ticks - s.ticks; rec.Outcome == jobs.Success && missing > 0 {
		r.report.EventsMissing += missing
		r.wrong("session %s: %d lines of the agent are missing", j.session, missing)
	}
	return nil
}

func (r *run) number(j *job, s *story, e jobs.Event) {
	switch {
	case e.Seq > s.next:
		r.report.EventsMissing += int(e.Seq - s.next)
		r.wrong("session %s: events %d to %d are missing", j.session, s.next, e.Seq-1)
	case e.Seq < s.next:
		r.report.EventsDouble++
		r.wrong("session %s: event %d comes twice", j.session, e.Seq)
	}
	s.next = e.Seq + 1
}

func (r *run) follow(j *job, s *story, e jobs.Event) error {
	switch e.Kind {
	case jobs.JobClaimed: // not by a worker that died between the claim and this event
		if e.Attempt <= s.attempt {
			r.report.Duplicates++
			r.wrong("session %s: attempt %d began after attempt %d", j.session, e.Attempt, s.attempt)
		}
		s.attempt = e.Attempt
	case jobs.JobFinished:
		s.ends++
	case jobs.OutputLine:
		if e.Attempt != s.attempt {
			r.report.Stale++
			r.wrong("session %s: event %d is of attempt %d, whose lease attempt %d had taken", j.session, e.Seq, e.Attempt, s.attempt)
		}
		var line event.OutputLine
		if err := json.Unmarshal(e.Data, &line); err != nil {
			return err
		}
		if e.Attempt != s.succeeds || !strings.HasPrefix(line.Text, "tick ") {
			return nil
		}
		if s.ticks++; line.Text != fmt.Sprintf("tick %d", s.ticks) {
			r.wrong("session %s: %q where tick %d was due", j.session, line.Text, s.ticks)
		}
	}
	return nil
}

// left lists leftovers of the jobs: jails of killed workers, mounts, and workspaces.
func (r *run) left(ctx context.Context) (found []string, err error) {
	jails, err := sandbox.Leftovers(ctx, "")
	if err != nil {
		return nil, err
	}
	mark := workerparts.PoolMark(&cli.Config{Data: r.target.data})
	for _, l := range jails {
		// Those of this pool, and those of its jobs that should have had its mark; another
		// release does not mark all.
		id, _, _ := strings.Cut(l.Label, ".")
		if poolmark.On(l.Label, mark) || r.Previous == "" && slices.ContainsFunc(r.jobs, func(j *job) bool { return j.id == id }) {
			found = append(found, "jail "+l.Label)
		}
	}
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		if b, err := os.ReadFile(table); err == nil && jailed(string(b), r.target.data) {
			found = append(found, "process "+filepath.Base(filepath.Dir(table))+" of a jail")
		}
	}
	if r.report.Faults[fullDisk] > 0 {
		// Objects that a full broker could not store stay until the next sweep: a
		// worker makes one every few minutes, and so does this.
		cmd := exec.CommandContext(ctx, r.Program, "clean")
		cmd.Env, cmd.Stdout, cmd.Stderr = r.target.broker.env, r.target.broker.said, r.target.broker.said
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("penstock clean: %w", err)
		}
	}
	spaces, err := os.ReadDir(filepath.Join(r.target.data, "work", "jobs"))
	for _, s := range spaces {
		found = append(found, "workspace "+s.Name())
	}
	return found, err
}
