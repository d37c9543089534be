package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/workspace"
)

// What an agent leaves that is too large, or too deep, to be collected is its own
// failure, once: no other attempt is made of it. What can be stored is, and the
// whole stays where the message says, until it is given up.
func TestATooLargeWorkspaceIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"deep":  `d=$(seq -s/ 1 130); mkdir -p $d; echo deep > $d/f; mkdir ignored; echo ignored > .gitignore; head -c 3000000 /dev/zero > ignored/big; echo one > new.txt`,
		"large": `echo one > new.txt; echo two > old.txt; truncate -s 2G sparse`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			stop := f.work()
			rec, events := f.ended(f.submit(f.job(script)).ID)
			if rec.Outcome != jobs.Failure || rec.Reason != jobs.TooLarge || rec.Attempt != 1 || count(events, jobs.Notice) == 0 {
				t.Fatalf("%s %s (%s) after %d attempts: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
			}
			_, patch := f.salvaged(rec.ID)
			if !strings.Contains(patch, "+one") {
				t.Errorf("the patch has not what could be stored: %.300s", patch)
			}
			result, err := f.eye.store.Result(t.Context(), rec)
			f.must(err)
			if len(result.Artifacts) != 1 || result.Artifacts[0].Name != PatchName {
				t.Errorf("stored are %v, want the patch", result.Artifacts)
			}
			// The whole is where the message says, also after a sweep.
			_, place, _ := strings.Cut(rec.Message, " MiB, is in ")
			dir, _, _ := strings.Cut(place, " until ")
			swept, err := f.spaces.Sweep(t.Context())
			f.must(err)
			if left, err := os.ReadDir(dir); err != nil || len(left) == 0 || len(swept.Kept) != 1 {
				t.Errorf("in %q of %q there is %v, %v; the sweep kept %v", dir, rec.Message, left, err, swept.Kept)
			}
			f.spent()
			stop()
		})
	}
}

// spent has a sweep remove the workspaces that were kept whole.
func (f *field) spent() {
	f.Helper()
	s, err := workspace.Open(f.Context(), workspace.Config{Dir: f.dir, Limits: workspace.Limits{WholeAge: -1}})
	f.must(err)
	_, err = s.Sweep(f.Context())
	f.must(err)
	if left, err := filepath.Glob(filepath.Join(f.dir, "jobs", "*")); err != nil || len(left) > 0 {
		f.Errorf("left behind: %v, %v", left, err)
	}
}

// A job that names no limit of its own is ended by the worker's.
func TestAJobHasADiskLimit(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.DiskLimit = 8 << 20
	rec, _ := f.run(f.job("echo .gitignore > .gitignore; head -c 64000000 /dev/zero > big; sleep 5"))
	if rec.Outcome != jobs.Failure || rec.Reason != jobs.DiskLimit || rec.Attempt != 1 || !strings.Contains(rec.Message, "8MiB") {
		t.Errorf("%s %s (%s) after %d attempts", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
}
