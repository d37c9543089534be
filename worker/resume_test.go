package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// follow does what a dispatcher does with prompts for a job that has finished,
// and waits for the end of what comes of it.
func (f *field) follow(id string, texts ...string) (jobs.Record, []jobs.Event) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*jobstest.Patience)
	defer cancel()
	rec, err := f.eye.queue.Get(ctx, id)
	f.must(err)
	for _, text := range texts {
		c := prompt(text)
		c.ID = jobs.NewID()
		_, _, err := f.eye.log.Accept(ctx, rec, c)
		f.must(err)
	}
	c, err := f.eye.store.LastCapsule(ctx, rec)
	f.must(err)
	_, err = f.eye.queue.Resume(ctx, rec, c.Epoch)
	f.must(err)
	f.must(f.eye.log.Reopen(ctx, rec, "ann"))
	f.until("it is claimed", func() bool {
		now, err := f.eye.queue.Get(ctx, id)
		f.must(err)
		if now.State == jobs.Pending {
			// Again and again, as repair does: the message of the attempt that has
			// ended may still be there now, and gone then.
			f.must(f.eye.queue.Enqueue(ctx, now))
		}
		return now.Attempt > rec.Attempt
	})
	var events []jobs.Event
	for e, err := range f.eye.log.Follow(ctx, id, 1, session.FollowOptions{Job: id}) {
		f.must(err)
		events = append(events, e)
	}
	rec, err = f.eye.queue.Get(ctx, id)
	f.must(err)
	return rec, events
}

// A job that has finished goes on with what it is told then, with its
// conversation and its files, and hears each of it once. What an attempt of that
// fails is not begun anew: the next one goes on from where the job had finished.
func TestAFinishedJobGoesOn(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	job := f.speaks(strings.Replace(remembers, "read -r l; do case $l in", `[ $PENSTOCK_ATTEMPT = 4 ] && exit 1
read -r l; do case $l in`, 1))
	job.Retry.MaxAttempts = 2
	defer f.work()()
	id := f.submit(job).ID
	if rec, _ := f.ended(id); rec.Outcome != jobs.Success {
		t.Fatalf("ended with %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
	rec, events := f.follow(id, "two", "three")
	said := heard(events)
	if rec.Outcome != jobs.Success || rec.Attempt != 2 || rec.Counted != 0 {
		t.Errorf("%s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
	if len(said) != 3 || !strings.HasPrefix(said[1], "This conversation goes on") || !strings.HasSuffix(said[1], "two") || said[2] != "three" {
		t.Errorf("the agents heard %q", said)
	}
	rec, events = f.follow(id, "four")
	if said = heard(events); rec.Attempt != 3 || len(said) != 4 || !strings.HasSuffix(said[3], "four") {
		t.Errorf("attempt %d, and the agents heard %q", rec.Attempt, said)
	}
	how := dataOf[event.SessionContinued](t, events, jobs.SessionContinued)
	if len(how) != 2 || how[1].How != "resumed" || how[1].Turn != 3 {
		t.Errorf("went on with %+v", how)
	}
	rec, events = f.follow(id, "five")
	if said = heard(events); rec.Attempt != 5 || rec.Outcome != jobs.Success || len(said) != 5 || !strings.HasSuffix(said[4], "five") {
		t.Errorf("%s %s (%s) in attempt %d, and the agents heard %q", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, said)
	}
	for _, d := range dataOf[event.SessionContinued](t, events, jobs.SessionContinued) {
		if d.How != "resumed" {
			t.Errorf("it went on with %+v", d)
		}
	}
	if c := f.capsules(id)[2]; c.Turn != 4 || len(c.Heard) != 3 {
		t.Errorf("in the end %+v", c)
	}
}

// With isolation none the conversation goes on in the directory as it is now.
func TestAFinishedJobGoesOnInItsDirectory(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(remembers)
	job.Isolation = jobs.IsolationNone
	defer f.work()()
	id := f.submit(job).ID
	f.ended(id)
	f.must(os.WriteFile(filepath.Join(f.repo, "mine.txt"), []byte("since\n"), 0o644))
	rec, events := f.follow(id, "two")
	said := heard(events)
	if rec.Outcome != jobs.Success || len(said) != 2 || !strings.HasSuffix(said[1], "two") || f.capsules(id)[1].Work != nil {
		t.Errorf("%s %s (%s), heard %q", rec.Outcome, rec.Reason, rec.Message, said)
	}
	turns, err := os.ReadFile(filepath.Join(f.repo, "turns.txt"))
	mine, lost := os.ReadFile(filepath.Join(f.repo, "mine.txt"))
	if err != nil || lost != nil || string(turns) != "1\n2\n" || string(mine) != "since\n" {
		t.Errorf("the directory has %q and %q, %v, %v", turns, mine, err, lost)
	}
}

// What the job is to go on with is gone when the attempt begins: it ends, and
// does not do all of it again.
func TestWhatIsToGoOnDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	job := f.speaks(remembers)
	stop := f.work()
	id := f.submit(job).ID
	f.ended(id)
	stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rec, events := f.follow(id, "two")
		if rec.Reason != jobs.NotResumed || rec.Attempt != 2 || len(heard(events)) != 1 || !strings.Contains(rec.Message, "capsule") {
			t.Errorf("ended with %s %s (%s), heard %q", rec.Outcome, rec.Reason, rec.Message, heard(events))
		}
	}()
	f.until("the job is back", func() bool {
		rec, err := f.eye.queue.Get(context.Background(), id)
		return err == nil && rec.State == jobs.Pending
	})
	last := f.capsules(id)[0]
	broken := last
	broken.Home.Name = "part." + strings.Repeat("0", 64)
	f.must(f.eye.store.PutCapsule(t.Context(), broken, last))
	stop = f.work()
	<-done
	stop()
}

// A fork begins with the conversation and the files of another job, and neither
// of them sees what the other does then. What is kept of its origin does not
// matter to it.
func TestAForkBeginsWhereAnotherJobIs(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	job := f.speaks(remembers)
	defer f.work()()
	id := f.submit(job).ID
	f.ended(id)
	rec, err := f.eye.queue.Get(t.Context(), id)
	f.must(err)
	c, err := f.eye.store.LastCapsule(t.Context(), rec)
	f.must(err)
	fork := jobs.NewID()
	f.must(f.eye.store.CopyCapsule(t.Context(), c, fork))
	f.must(f.eye.store.CopyCapsule(t.Context(), c, fork))
	broken := c
	broken.Home.Name = "part." + strings.Repeat("0", 64)
	f.must(f.eye.store.PutCapsule(t.Context(), broken, jobs.Capsule{}))

	job.Prompt, job.Fork = "another way", id
	forked, _, err := f.eye.queue.AcceptAs(t.Context(), fork, job.WithDefaults(), "", nil)
	f.must(err)
	f.must(f.eye.queue.Enqueue(t.Context(), forked))
	rec, events := f.ended(fork)
	said := heard(events)
	if rec.Outcome != jobs.Success || len(said) != 1 || !strings.HasPrefix(said[0], "This conversation was copied") || !strings.Contains(said[0], "\n\nanother way\n\n") || !strings.Contains(said[0], "the changes of an earlier job, "+id+", were restored") {
		t.Errorf("%s %s (%s), heard %q", rec.Outcome, rec.Reason, rec.Message, said)
	}
	if how := dataOf[event.SessionContinued](t, events, jobs.SessionContinued); len(how) != 1 || how[0].How != "forked" || how[0].From != id || how[0].Turn != 1 {
		t.Errorf("it went on with %+v", how)
	}
	if list := f.capsules(fork); len(list) != 2 || !strings.Contains(f.unpacked(list[1]), "another way") {
		t.Errorf("it has %+v", list)
	}
	rec, events = f.follow(fork, "and more")
	if said = heard(events); rec.Attempt != 2 || len(said) != 2 || !strings.HasSuffix(said[1], "and more") {
		t.Errorf("attempt %d, heard %q", rec.Attempt, said)
	}
}
