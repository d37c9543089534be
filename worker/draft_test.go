package worker

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// draftJob changes new.txt, and then does what write says with the text.
func (f *field) draftJob(write string) jobs.Job {
	job := f.branchJob(`if [ -n "$PENSTOCK_DRAFT" ]; then ` + write + `; exit; fi; echo mine > new.txt`)
	job.Deliver.DraftText = true
	return job
}

// artifact is what an artifact of a finished job has in it; "" if there is none.
func (f *field) artifact(rec jobs.Record, name string) string {
	f.Helper()
	result, err := f.eye.store.Result(f.Context(), rec)
	f.must(err)
	for _, a := range result.Artifacts {
		if a.Name != name {
			continue
		}
		content, err := f.eye.store.Get(f.Context(), rec.ID, rec.Epoch, name)
		f.must(err)
		defer content.Close()
		b, err := io.ReadAll(content)
		f.must(err)
		return string(b)
	}
	return ""
}

// The agent is shown its change, and nothing else, and what it writes is the
// commit's message and an artifact.
func TestATextIsDrafted(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Secret = func(string) (string, bool) { return "hush-hush-hush", true }
	job := f.draftJob(`
grep -q '^+mine$' "$PENSTOCK_PROMPT_FILE" || exit 9
[ -z "$(ls -A .)" ] && ! [ -e /penstock ] && [ -z "$TOKEN$PENSTOCK_INSIDE" ] || exit 8
printf '## Add  new.txt\033[2J\n\nIt was missing.\nSigned-off-by: You <you@example.org>\nPenstock-Job: other\n\nhush-hush-hush\n'`)
	job.Secrets = []string{"TOKEN"}
	rec, events := f.run(job)
	f.wellDelivered(rec, events, "mine")
	const text = "Add new.txt[2J\n\nIt was missing."
	message := f.git("log", "-1", "--format=%B", "penstock/"+rec.ID)
	if !strings.HasPrefix(message, text+"\n") || !strings.HasSuffix(message, "\n\nPenstock-Job: "+rec.ID+"\nPenstock-Session: "+rec.Session) {
		t.Errorf("the commit says\n%s", message)
	}
	kept := f.artifact(rec, DraftName)
	if !strings.HasPrefix(kept, text+"\n") {
		t.Errorf("kept was\n%s", kept)
	}
	for _, said := range []string{message, kept} {
		if strings.Contains(said, "other") || strings.Contains(said, "you@") || strings.Contains(said, "hush-hush") {
			t.Errorf("it says\n%s", said)
		}
	}
}

// A text that cannot be had costs nothing but itself.
func TestNoTextIsDrafted(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	for name, c := range map[string]struct {
		write, why string
		idle       time.Duration // long enough for the run before it
	}{
		"it fails":          {"echo Title; exit 3", "status 3", 0},
		"it writes nothing": {"true", "wrote nothing", 0},
		"it hangs":          {"echo Title; sleep 1000", "silent", 5 * time.Second},
	} {
		job := f.draftJob(c.write)
		job.IdleTimeout = jobs.Duration(c.idle)
		rec, events := f.ended(f.submit(job).ID)
		why := ""
		for _, e := range events {
			var told event.Notice
			if e.Kind == jobs.Notice && json.Unmarshal(e.Data, &told) == nil && strings.Contains(told.Text, "no text was drafted") {
				why = told.Text
			}
		}
		if rec.Outcome != jobs.Success || rec.Attempt != 1 || !strings.Contains(why, c.why) || count(events, jobs.BranchDone) != 1 || f.artifact(rec, DraftName) != "" {
			t.Errorf("%s: %s %s (%s), told %q: %s", name, rec.Outcome, rec.Reason, rec.Message, why, kinds(events))
			continue
		}
		if got := f.git("log", "-1", "--format=%s", "penstock/"+rec.ID); got != "test" {
			t.Errorf("%s: the commit is called %q", name, got)
		}
	}
}

// A job that is cancelled while its text is drafted has no branch.
func TestACancelledDraft(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	rec := f.submit(f.draftJob("sleep 1000"))
	f.until("the text is being drafted", func() bool { return count(f.events(rec.ID), jobs.JailStarted) == 2 })
	_, err := f.eye.queue.Cancel(t.Context(), rec.ID, "enough")
	f.must(err)
	rec, events := f.ended(rec.ID)
	if rec.Outcome != jobs.Cancellation || f.branches() != "" || count(events, jobs.BranchDone) > 0 {
		t.Errorf("%s %s, branches %q: %s", rec.Outcome, rec.Reason, f.branches(), kinds(events))
	}
}
