package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/penstock/cleancmd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// unharmed looks at what all jobs share, and at the locks and the trash.
func (f *fixture) unharmed() {
	f.Helper()
	for _, sub := range []string{"jobs", "locks", "trash"} {
		if left, err := os.ReadDir(filepath.Join(f.data, "work", sub)); err != nil || len(left) > 0 {
			f.Errorf("%s: %v are left, err %v", sub, left, err)
		}
	}
	for _, pattern := range []string{"mirrors/*/mirror.git", "mirrors/*/bases/*/git"} {
		found, err := filepath.Glob(filepath.Join(f.data, "work", pattern))
		if err != nil || len(found) == 0 {
			f.Errorf("%s: %v, %v", pattern, found, err)
		}
		for _, dir := range found {
			f.git("--git-dir="+dir, "fsck", "--full", "--strict")
		}
	}
}

// What a killed worker's agent did is listed, shown, applied and written out.
func TestSalvageIsRestored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	w := f.worker("--slots", "1")
	id := f.submit(`echo one > one; git add one; git commit -qm one; echo two > two; echo begun; sleep 60`, "--max-attempts", "1")
	f.runs(id)
	w.kill()
	f.worker("--slots", "1")
	var list []jobs.Salvage
	f.eventually(20*time.Second, "the work is salvaged", func() bool {
		f.must(json.Unmarshal([]byte(f.run("job", "salvage", id, "-o", "json")), &list))
		return len(list) > 0
	})
	if s := list[0]; s.Why != jobs.WorkerLost || s.Files != 2 || s.Commits != 2 || s.Bundle == nil {
		t.Errorf("salvaged %+v", s)
	}
	events := f.events(id)
	f.gapless(events)
	if got := count(events, jobs.SalvageStored); got != 1 {
		t.Errorf("the session was told %d times", got)
	}
	f.eventually(20*time.Second, "the job goes on", func() bool {
		return count(f.events(id), jobs.JobClaimed) == 2 && count(f.events(id), jobs.OutputLine) == 2
	})
	var view operation.Shown
	f.must(json.Unmarshal([]byte(f.run("job", "get", id, "-o", "json")), &view))
	if len(view.Salvages) != 1 || view.Salvages[0].Epoch != list[0].Epoch {
		t.Errorf("job get shows %+v", view.Salvages)
	}
	f.run("job", "salvage", id, "--epoch", strconv.FormatUint(list[0].Epoch, 10), "--apply", f.repo)
	if two, err := os.ReadFile(filepath.Join(f.repo, "two")); err != nil || string(two) != "two\n" {
		t.Errorf("applied: %q, %v", two, err)
	}
	out := filepath.Join(t.TempDir(), "out")
	f.run("job", "salvage", id, "--restore", out)
	f.git("-C", f.repo, "fetch", "-q", filepath.Join(out, "commits.bundle"), "agent")
	if log := f.git("-C", f.repo, "log", "--format=%s", "-3", "FETCH_HEAD"); !strings.HasPrefix(log, "Uncommitted changes\none\n") {
		t.Errorf("the bundle has %q", log)
	}
	if _, code, told := f.try("job", "salvage", id, "--restore", out); code != 2 || !strings.Contains(told, "already exists") {
		t.Errorf("a second restore ended with %d: %s", code, told)
	}
	if _, code, _ := f.try("job", "salvage", id, "--epoch", "1", "--show"); code != 5 {
		t.Errorf("an unknown epoch ended with %d, want 5", code)
	}
	f.run("job", "cancel", id)
}

// A retry that asks for it begins where the last attempt was stopped.
func TestRetryFromSalvage(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"overlay", "clone"} {
		f := newFixture(t)
		f.serve()
		f.worker("--slots", "1", "--workspace", strategy)
		id := f.submit(`if [ -e two ]; then git log -1 --format=%s; git status --short; echo three > three; exit; fi
echo one > one; git add one; git commit -qm one; echo two > two; echo begun; sleep 60`)
		f.runs(id)
		f.run("job", "cancel", id)
		f.try("wait", id)
		f.git("-C", f.repo, "commit", "-q", "--allow-empty", "-m", "moved on")
		f.run("job", "retry", "--from-salvage", id)
		f.run("wait", id)
		if patch := f.run("job", "diff", id); !strings.Contains(patch, "+one") || !strings.Contains(patch, "+two") || !strings.Contains(patch, "+three") {
			t.Errorf("%s: the retry has the patch\n%s", strategy, patch)
		}
		if rec := f.record(id); rec.Outcome != jobs.Success {
			t.Errorf("%s: %s %s %s", strategy, rec.Outcome, rec.Reason, rec.Message)
		}
		own := f.submit("echo four > four; exit 1", "--isolation", "none", "--max-attempts", "1")
		f.try("wait", own)
		f.run("job", "retry", "--from-salvage", own)
		f.try("wait", own)
		if rec := f.record(own); rec.Reason != jobs.InvalidJob || !strings.Contains(rec.Message, "isolation none") {
			t.Errorf("in the user's own directory: %s %s %s", rec.Outcome, rec.Reason, rec.Message)
		}
	}
}

// A new job begins where an earlier one was stopped, if it says so, each time;
// what it cannot begin from is refused at the door.
func TestSubmitFromSalvage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	f.worker("--slots", "1")
	id := f.submit("echo one > one; git add one; git commit -qm one; echo two > two; echo begun; sleep 60")
	f.runs(id)
	f.run("job", "cancel", id)
	f.try("wait", id)
	f.git("-C", f.repo, "commit", "-q", "--allow-empty", "-m", "moved on")
	next := f.submit("git log -1 --format=%s; cat one two; echo three > three; [ $PENSTOCK_ATTEMPT = 2 ]", "--from-salvage", id)
	f.try("wait", next)
	f.run("job", "retry", next)
	f.run("wait", next)
	if patch := f.run("job", "diff", next); strings.Count(patch, "+one") != 1 || !strings.Contains(patch, "+two") || !strings.Contains(patch, "+three") {
		t.Errorf("the next job has the patch\n%s", patch)
	}
	if rec := f.record(next); rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Errorf("%s %s %s after %d attempts", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
	if log := f.run("logs", next); strings.Count(log, "the changes of an earlier job, "+id) != 2 {
		t.Errorf("the agent was not told at each attempt:\n%s", log)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown":            {[]string{"--from-salvage", "01a1fab7-22c3-751e-ab93-8778e647f6f1"}, "from_salvage: there is no job 01a1fab7"},
		"no id":              {[]string{"--from-salvage", "../x"}, "from_salvage: \"../x\" is not a job's id"},
		"another repository": {[]string{"--from-salvage", id, "--repo", filepath.Dir(f.repo)}, "belongs to another repository"},
		"nothing saved":      {[]string{"--from-salvage", f.submit("exit 3")}, "has no saved changes"},
		"isolation none":     {[]string{"--from-salvage", id, "--isolation", "none"}, "has no meaning with isolation"},
	} {
		_, code, said := f.try(append(append([]string{"submit", "--repo", f.repo}, c.args...), "--", "true")...)
		if code != 2 || !strings.Contains(said, c.want) {
			t.Errorf("%s: ended with %d, want 2 and %q:\n%s", name, code, c.want, said)
		}
	}
}

// Clean keeps what it cannot salvage, and says so; with a pool it salvages and
// removes it. It leaves alone what is in use, and does nothing on a dry run.
func TestClean(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	w := f.worker("--slots", "1")
	dead := f.submit("echo one > one; echo begun; sleep 60", "--max-attempts", "1")
	f.runs(dead)
	w.kill()
	f.run("job", "cancel", dead)
	left := filepath.Join(f.data, "work/trash/left")
	f.must(os.MkdirAll(filepath.Join(left, "d"), 0o700))
	f.must(os.Chmod(left, 0))
	if out := f.run("clean", "--dry-run"); !strings.Contains(out, "would remove  workspace "+dead) || !strings.Contains(out, "1 entries of the trash") {
		t.Errorf("a dry run says\n%s", out)
	}
	if out := f.run("clean", "--dry-run", "--server", "nats://127.0.0.1:1"); strings.Contains(out, "would remove  workspace") || !strings.Contains(out, "no pool") {
		t.Errorf("a dry run without a pool says\n%s", out)
	}
	if out := f.run("clean", "--server", "nats://127.0.0.1:1"); !strings.Contains(out, "kept") || !strings.Contains(out, "no pool") || len(f.workspaces()) != 1 {
		t.Errorf("without a pool: %v stay, and it says\n%s", f.workspaces(), out)
	}
	// Now a worker has a job of its own, and salvages the dead one's itself;
	// so another one is killed.
	second := f.worker("--slots", "1", "--name", "second")
	live := f.submit("echo begun; " + untilGoOn + "; echo two > two")
	f.runs(live)
	var list []cleancmd.Cleaned
	f.must(json.Unmarshal([]byte(f.run("clean", "-o", "json")), &list))
	workspaces := func(c cleancmd.Cleaned) bool { return strings.HasPrefix(c.What, "workspace ") }
	if slices.ContainsFunc(list, workspaces) || len(f.workspaces()) != 1 {
		t.Errorf("beside a worker: %+v; workspaces %v, want the one in use", list, f.workspaces())
	}
	f.goOn(live)
	f.run("wait", live)
	if patch := f.run("job", "diff", live); !strings.Contains(patch, "+two") {
		t.Errorf("the job that ran while all was cleaned has the patch\n%s", patch)
	}
	last := f.submit("echo three > three; echo begun; sleep 60", "--max-attempts", "1")
	f.runs(last)
	second.kill()
	f.must(json.Unmarshal([]byte(f.run("clean", "-o", "json")), &list))
	if left := f.workspaces(); len(left) > 0 || !slices.ContainsFunc(list, func(c cleancmd.Cleaned) bool { return c.Action == "removed" && strings.Contains(c.What, last) }) {
		t.Errorf("after a kill: %+v; workspaces %v", list, left)
	}
	for id, line := range map[string]string{dead: "+one", last: "+three"} {
		if patch := f.run("job", "salvage", id, "--show"); !strings.Contains(patch, line) {
			t.Errorf("job %s: %q is not in the salvage\n%s", id, line, patch)
		}
	}
	f.unharmed()
	f.run("job", "cancel", last)
}

// A workspace that cannot be stored stays until a user gives it up by its name. The
// command says what is lost, and still stores what it can.
func TestDiscard(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	w := f.worker("--slots", "1")
	deep := f.submit(`echo one > one; i=0; while [ $i -lt 140 ]; do i=$((i+1)); mkdir d; cd d; done; echo two > two`, "--max-attempts", "1")
	f.try("wait", "--timeout", patience(60), deep)
	kept := f.workspaces()
	if len(kept) != 1 || !strings.HasPrefix(kept[0], deep+".") {
		t.Fatalf("workspaces %v, want the one that is too deep; the job ended with %s", kept, f.record(deep).Message)
	}
	live := f.submit("echo begun; echo three > three; sleep 60", "--max-attempts", "1")
	f.runs(live)
	clean := func(args ...string) (c cleancmd.Cleaned) {
		t.Helper()
		var list []cleancmd.Cleaned
		f.must(json.Unmarshal([]byte(f.run(append([]string{"clean", "-o", "json"}, args...)...)), &list))
		// What tests beside this one have killed is cleaned up, too.
		list = slices.DeleteFunc(list, func(c cleancmd.Cleaned) bool {
			return !strings.Contains(c.What, deep) && !strings.Contains(c.What, live)
		})
		if len(list) != 1 {
			t.Fatalf("clean %v: %+v, want one line", args, list)
		}
		return list[0]
	}
	if dry, got := clean("--dry-run"), clean(); dry.Action != got.Action || dry.What != got.What || dry.Why != got.Why {
		t.Errorf("a dry run says %+v, and then it is %+v", dry, got)
	}
	if got := clean(); got.Action != "kept" || !strings.Contains(got.Why, "over the limit") {
		t.Errorf("a plain clean says %+v", got)
	}
	if got := clean("--discard", kept[0], "--dry-run"); got.Action != "would discard" || !slices.Equal(got.Lost, []string{"d: 1 files, 1 KiB", "one: 1 files, 1 KiB"}) {
		t.Errorf("a dry run says %+v", got)
	}
	for id, want := range map[string]int{f.workspaceOf(live): 1, "nobody.1": 5, "../jobs": 5} {
		if out, code, told := f.try("clean", "--discard", id); code != want {
			t.Errorf("--discard %s ended with %d, want %d: %s%s", id, code, want, out, told)
		}
	}
	if left := f.workspaces(); len(left) != 2 {
		t.Errorf("workspaces %v, want both", left)
	}
	if got := clean("--discard", kept[0]); got.Action != "discarded" || len(got.Lost) != 2 || !strings.Contains(got.Why, "over the limit") {
		t.Errorf("it says %+v", got)
	}
	w.kill()
	if got := clean("--discard", f.workspaceOf(live)); got.Action != "removed" || len(got.Lost) > 0 {
		t.Errorf("of work that can be stored it says %+v", got)
	}
	if patch := f.run("job", "salvage", live, "--show"); !strings.Contains(patch, "+three") {
		t.Errorf("the salvage is\n%s", patch)
	}
	f.unharmed()
	f.run("job", "cancel", live)
}

// workspaceOf is the one workspace of a job.
func (f *fixture) workspaceOf(job string) string {
	f.Helper()
	names := slices.DeleteFunc(f.workspaces(), func(name string) bool { return !strings.HasPrefix(name, job+".") })
	if len(names) != 1 {
		f.Fatalf("job %s has workspaces %v, want one", job, names)
	}
	return names[0]
}
