package worker

import (
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// salvaged returns the one salvage of a job, and its patch.
func (f *field) salvaged(id string) (jobs.Salvage, string) {
	f.Helper()
	list, err := f.salvages(id)
	if err != nil || len(list) != 1 || list[0].Patch == nil {
		f.Fatalf("job %s has salvages %+v, err %v; want one", id, list, err)
	}
	s := list[0]
	content, err := f.eye.store.Get(f.Context(), id, s.Epoch, s.Patch.Name)
	f.must(err)
	defer content.Close()
	patch, err := io.ReadAll(content)
	f.must(err)
	if int64(len(patch)) != s.Patch.Bytes {
		f.Errorf("the salvage has %d bytes and says %d", len(patch), s.Patch.Bytes)
	}
	return s, string(patch)
}

func (f *field) salvages(id string) ([]jobs.Salvage, error) {
	f.Helper()
	rec, err := f.eye.queue.Get(f.Context(), id)
	f.must(err)
	return f.eye.store.Salvages(f.Context(), rec)
}

// told finds what the session was told of a salvage.
func told(tb testing.TB, events []jobs.Event) jobs.Salvage {
	tb.Helper()
	var s jobs.Salvage
	for _, e := range events {
		if e.Kind == jobs.SalvageStored {
			if err := json.Unmarshal(e.Data, &s); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return s
}

// What a drained attempt did is stored and told before its workspace goes, and
// is not taken for a result.
func TestADrainedAttemptIsSalvaged(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Drain = 100 * time.Millisecond
	stop := f.work()
	rec := f.submit(f.job("echo one > new.txt; echo begun; sleep 60"))
	f.runs(rec.ID)
	stop()
	s, patch := f.salvaged(rec.ID)
	if s.Why != jobs.WorkerDrained || s.Files != 1 || s.BaseCommit == "" || !strings.Contains(patch, "+one") {
		t.Errorf("salvaged %+v:\n%s", s, patch)
	}
	if got := told(t, f.events(rec.ID)); got.Epoch != s.Epoch || got.Why != s.Why || got.Bytes != s.Patch.Bytes {
		t.Errorf("the session was told of %+v, the store has %+v", got, s)
	}
	if _, err := f.eye.store.Get(t.Context(), rec.ID, s.Epoch, PatchName); err == nil {
		t.Error("the salvage is a result, too")
	}
}

// A cancelled attempt has a result, of which the salvage is a note only.
func TestACancelledAttemptsResultIsItsSalvage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	rec := f.submit(f.job("echo one > new.txt; echo begun; sleep 60"))
	f.runs(rec.ID)
	_, err := f.eye.queue.Cancel(t.Context(), rec.ID, "test")
	f.must(err)
	rec, events := f.ended(rec.ID)
	s, _ := f.salvaged(rec.ID)
	if s.Why != jobs.Cancelled || s.Patch.Name != PatchName || s.Epoch != rec.Epoch {
		t.Errorf("salvaged %+v, want the result's own patch", s)
	}
	list, err := f.eye.store.List(t.Context(), rec.ID, rec.Epoch)
	if err != nil || len(list) != 1 || told(t, events).Epoch != rec.Epoch {
		t.Errorf("artifacts %v, err %v; want the patch once", list, err)
	}
}

// Success and an attempt that changed nothing leave no salvage.
func TestNothingToSalvage(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"echo one > new.txt", "exit 3"} {
		f := newField(t)
		rec, events := f.run(f.job(script))
		list, err := f.salvages(rec.ID)
		if err != nil || len(list) > 0 || count(events, jobs.SalvageStored) > 0 {
			t.Errorf("%s: salvages %+v, err %v", script, list, err)
		}
	}
}

// A worker that is killed after the result's files are stored, and before the verdict,
// leaves an event that names them.
func TestStoredFilesAreNotedBeforeTheVerdict(t *testing.T) {
	t.Parallel()
	f := newField(t)
	var seen []jobs.Salvage
	var id string
	ids := make(chan string, 1)
	f.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
		if stage == "agent" {
			id = <-ids
		}
		if stage == "collect" {
			list, err := f.salvages(id)
			f.must(err)
			seen = list
		}
	}
	stop := f.work()
	rec := f.submit(f.job("echo one > new.txt"))
	ids <- rec.ID
	f.ended(rec.ID)
	stop()
	if len(seen) != 1 || seen[0].Why != jobs.WorkerLost || seen[0].Patch == nil || seen[0].Patch.Name != PatchName || seen[0].BaseCommit == "" {
		t.Errorf("before the verdict there was %+v", seen)
	}
	if list, err := f.salvages(rec.ID); err != nil || len(list) > 0 {
		t.Errorf("of a success there is %+v, %v", list, err)
	}
}

// An attempt that lost its lease saves its work under its own epoch. What the
// next one stores, and its result, are untouched.
func TestAFencedAttemptIsSalvaged(t *testing.T) {
	t.Parallel()
	f := newField(t)
	proxy := f.server.Proxy()
	f.use(f.connect(proxy.URL()))
	var fenced atomic.Int32
	f.cfg.Hooks.Fenced = func(jobs.Record) { fenced.Add(1) }
	stop := f.work()
	rec := f.submit(f.job(`echo from $PENSTOCK_ATTEMPT > new.txt; echo begun; [ $PENSTOCK_ATTEMPT = 2 ] || sleep 60`))
	f.runs(rec.ID)
	proxy.Cut()
	cut := time.Now()
	f.until("the agent ends", func() bool { return len(processesOf(rec.ID)) == 0 })
	time.Sleep(time.Until(cut.Add(testLease + time.Second)))
	proxy.Heal()
	got, events := f.ended(rec.ID)
	stop()
	s, patch := f.salvaged(rec.ID)
	if fenced.Load() != 1 || s.Why != jobs.LeaseLost || s.Epoch >= got.Epoch || !strings.Contains(patch, "+from 1") {
		t.Errorf("fenced %d times; salvaged %+v, the job's epoch is %d:\n%s", fenced.Load(), s, got.Epoch, patch)
	}
	if got.Outcome != jobs.Success || told(t, events).Epoch != 0 {
		t.Errorf("%s %s; a fenced attempt told of its salvage: %+v", got.Outcome, got.Reason, told(t, events))
	}
	content, err := f.eye.store.Get(t.Context(), rec.ID, got.Epoch, PatchName)
	f.must(err)
	defer content.Close()
	if result, err := io.ReadAll(content); err != nil || !strings.Contains(string(result), "+from 2") {
		t.Errorf("the result is not the second attempt's: %s, %v", result, err)
	}
}
