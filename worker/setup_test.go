package worker

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/worker/policy"
	"github.com/penstock-run/penstock/worker/workspace"
)

// sharing is a field whose workers share what setup wrote.
func sharing(t *testing.T) *field {
	t.Helper()
	f := newField(t)
	jail, err := backends.New(t.Context(), backends.Auto)
	f.must(err)
	f.spaces, err = workspace.Open(t.Context(), workspace.Config{Dir: f.dir, Jail: jail, Salvage: Salvage(f.cfg)})
	f.must(err)
	if why := f.spaces.Try(t.Context(), workspace.Overlay); why != nil {
		t.Skip(why)
	}
	f.cfg.Spaces, f.cfg.SetupCache = f.spaces, 24*time.Hour
	return f
}

// setUp is a job whose setup writes what no other run of it would write.
func (f *field) setUp(script string) jobs.Job {
	job := f.job(script)
	job.Setup = []string{"echo gen >> .gitignore; cat /proc/sys/kernel/random/uuid | tee made > gen", "test -s gen"}
	return job
}

// patch returns a job's result.
func (f *field) patch(rec jobs.Record) string {
	f.Helper()
	content, err := f.eye.store.Get(f.Context(), rec.ID, rec.Epoch, PatchName)
	f.must(err)
	defer content.Close()
	patch, err := io.ReadAll(content)
	f.must(err)
	return string(patch)
}

func (f *field) layers() []string {
	f.Helper()
	found, err := filepath.Glob(filepath.Join(f.dir, "mirrors/*/bases/*/layers/*/layer.json"))
	f.must(err)
	return found
}

// Jobs at once, on two workers, run the same setup once. Each has what it wrote,
// ignored or not, and a result as if it had run it itself.
func TestManyJobsRunTheSameSetupOnce(t *testing.T) {
	t.Parallel()
	f := sharing(t)
	f.cfg.Slots = 2
	defer f.work()()
	f.cfg.Name = "w2"
	defer f.work()()
	var ids []string
	for n := range 5 {
		ids = append(ids, f.submit(f.setUp(fmt.Sprintf("cmp made gen && echo job >> made && echo %d > mine", n))).ID)
	}
	ran, made := 0, map[string]bool{}
	for n, id := range ids {
		rec, events := f.ended(id)
		result, err := f.eye.store.Result(t.Context(), rec)
		if err != nil || rec.Outcome != jobs.Success || len(result.Checks) != 2 || result.FilesChanged != 3 {
			t.Fatalf("%s %s, err %v, result %+v", rec.Outcome, rec.Message, err, result)
		}
		told := dataOf[event.SetupEnded](t, events, jobs.SetupEnded)
		if len(told) != 1 || told[0].Reason != "" || told[0].Cached != result.Checks[0].Cached || told[0].Cached == (count(events, jobs.CheckStarted) > 0) {
			t.Errorf("told %+v, the result has %+v: %s", told, result.Checks, kinds(events))
		}
		if !told[0].Cached {
			ran++
		}
		patch := f.patch(rec)
		if !strings.Contains(patch, fmt.Sprintf("\n+%d\n", n)) || !strings.Contains(patch, "\n+job\n") || !strings.Contains(patch, "\n+gen\n") {
			t.Errorf("the patch lacks what the job or its setup wrote:\n%s", patch)
		}
		_, rest, _ := strings.Cut(patch, "+++ b/made\n@@ -0,0 +1,2 @@\n+")
		uuid, _, _ := strings.Cut(rest, "\n")
		made[uuid] = true
	}
	if ran != 1 || len(made) != 1 || len(f.layers()) != 1 {
		t.Errorf("setup ran %d times, made %v, and left %q", ran, made, f.layers())
	}
}

// What decides about setup's jail, and what may not be kept, keeps a job from
// taking over what another's setup wrote.
func TestSetupThatIsAnother(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	writable, err := policy.Parse("/p.yaml", []byte("write: ["+outside+"]"))
	if err != nil {
		t.Fatal(err)
	}
	f := sharing(t)
	f.cfg.Secret = func(string) (string, bool) { return "hunter2hunter2", true }
	stop := f.work()
	plain := f.submit(f.setUp("true"))
	f.ended(plain.ID)
	stop()
	for name, c := range map[string]struct {
		change func(j *jobs.Job)
		worker func(c *Config)
		why    string
		layers int
	}{
		"the same":       {func(j *jobs.Job) { j.Prompt, j.Timeout, j.Check = "another", 1e12, []string{"true"} }, nil, "cached", 0},
		"text":           {func(j *jobs.Job) { j.Setup[1] += " " }, nil, "", 1},
		"environment":    {func(j *jobs.Job) { j.Env = map[string]string{"CI": "1"} }, nil, "", 1},
		"network":        {func(j *jobs.Job) { j.Sandbox.Network = jobs.NetworkAllowlist }, nil, "", 1},
		"hosts":          {func(j *jobs.Job) { j.Sandbox.Network, j.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"a.test"} }, nil, "", 1},
		"limits":         {func(j *jobs.Job) { j.Sandbox.Limits.Memory = 1 << 30 }, nil, "", 1},
		"preset":         {func(j *jobs.Job) { j.Sandbox.Preset = "debug" }, nil, "", 1},
		"toolchain":      {nil, func(c *Config) { c.Mounts = []sandbox.Mount{{Source: outside, Target: outside}} }, "", 1},
		"secrets":        {func(j *jobs.Job) { j.Secrets = []string{"TOKEN"} }, nil, "secrets", 0},
		"fresh":          {func(j *jobs.Job) { j.FreshSetup = true }, nil, "fresh_setup", 0},
		"turned off":     {nil, func(c *Config) { c.SetupCache = 0 }, "setup_cache", 0},
		"later":          {nil, func(c *Config) { c.SetupCache = time.Microsecond }, "", 1},
		"writable paths": {nil, func(c *Config) { c.Policy = writable }, "policy", 0},
		"scratch":        {func(j *jobs.Job) { j.Isolation, j.Repo = jobs.IsolationNone, jobs.Repo{} }, nil, "overlay", 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			kept, before := f.cfg, len(f.layers())
			defer func() { f.cfg = kept }()
			job := f.setUp("true")
			if c.change != nil {
				c.change(&job)
			}
			if c.worker != nil {
				c.worker(&f.cfg)
			}
			rec, events := f.run(job)
			told := dataOf[event.SetupEnded](t, events, jobs.SetupEnded)
			if rec.Outcome != jobs.Success || len(told) != 1 || told[0].Cached != (c.why == "cached") {
				t.Fatalf("%s %s, told %+v", rec.Outcome, rec.Message, told)
			}
			if !told[0].Cached && (!strings.Contains(told[0].Reason, c.why) || (c.why == "") != (told[0].Reason == "")) {
				t.Errorf("told %+v, want a word about %q", told, c.why)
			}
			if made := len(f.layers()) - before; made != c.layers {
				t.Errorf("%d more layers are kept, want %d", made, c.layers)
			}
		})
	}
}

// A setup that fails ends the job as it does without the cache, with what it
// had written in the result, and nothing is kept of it.
func TestAFailingSetupIsNotShared(t *testing.T) {
	t.Parallel()
	f := sharing(t)
	job := f.job("true")
	job.Setup = []string{"echo half > half", "echo why; exit 7"}
	var said []string
	for _, cache := range []time.Duration{0, time.Hour, time.Hour} {
		f.cfg.SetupCache = cache
		rec, events := f.run(job)
		ends := dataOf[event.CheckEnded](t, events, jobs.CheckEnded)
		if rec.Reason != jobs.SetupFailed || len(ends) != 2 || ends[1].Output != "why\n" || count(events, jobs.SetupEnded) > 0 {
			t.Errorf("cache %v: %s %s: %+v", cache, rec.Reason, rec.Message, ends)
		}
		s, patch := f.salvaged(rec.ID)
		said = append(said, fmt.Sprint(rec.Outcome, rec.Reason, rec.Message, s.Why, s.Files, patch))
	}
	if said[0] != said[1] || said[1] != said[2] {
		t.Errorf("without the cache:\n%s\nwith it:\n%s\n%s", said[0], said[1], said[2])
	}
	if left := f.layers(); len(left) > 0 {
		t.Errorf("kept: %q", left)
	}
}

// What a setup wrote that is ended half way is salvaged, and not shared.
func TestADrainedSetupIsSalvaged(t *testing.T) {
	t.Parallel()
	f := sharing(t)
	f.cfg.Drain = 0
	job := f.setUp("true")
	stop := f.work()
	job.Setup = append(job.Setup, "sleep 60")
	rec := f.submit(job)
	f.until("setup has begun", func() bool { return count(f.events(rec.ID), jobs.CheckStarted) == 3 })
	stop()
	if s, patch := f.salvaged(rec.ID); s.Why != jobs.WorkerDrained || !strings.Contains(patch, "+++ b/made\n") {
		t.Errorf("salvaged %+v:\n%s", s, patch)
	}
	if left := f.layers(); len(left) > 0 {
		t.Errorf("kept: %q", left)
	}
	_, err := f.eye.queue.Cancel(t.Context(), rec.ID, "test")
	f.must(err)
}
