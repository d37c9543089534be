package worker

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/none"
)

// What hostile agents do, and how their jobs end.
func TestAgentsThatMisbehave(t *testing.T) {
	t.Parallel()
	second := jobs.Duration(time.Second)
	tests := []struct {
		name   string
		script string
		change func(*jobs.Job)
		reason jobs.Reason // empty for success
		says   string      // in the record's message
	}{
		{"it ends at once", "exit 0", nil, "", ""},
		{"it fails at once", "exit 1", nil, jobs.AgentFailed, "status 1"},
		{"its last words are told", "echo no such luck >&2; exit 3", nil, jobs.AgentFailed, "no such luck"},
		{"a signal ends it", "kill -SEGV $$", nil, jobs.AgentCrashed, ""},
		{"it is not there", "", func(j *jobs.Job) { j.Agent.Command = []string{"/nowhere/agent"} }, jobs.AgentMissing, "/nowhere/agent"},
		{"it reads its input to the end", "cat; echo read", nil, "", ""},
		{"it closes its output and works on", "exec >&- 2>&-; sleep 0.5; echo late > late", nil, "", ""},
		{"it closes its output and hangs", "exec >&- 2>&-; sleep 60", func(j *jobs.Job) { j.IdleTimeout = second }, jobs.IdleLimit, ""},
		{"it is silent", "sleep 60", func(j *jobs.Job) { j.IdleTimeout = second }, jobs.IdleLimit, ""},
		{"noise on its error output is life", "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.4; done", func(j *jobs.Job) { j.IdleTimeout = second }, "", ""},
		{"it takes too long, talking", "while sleep 0.2; do echo $((i=i+1)); done", func(j *jobs.Job) { j.Timeout = second }, jobs.TimeLimit, ""},
		{"it does not listen to a polite signal", "trap '' TERM INT HUP; while :; do sleep 1; done", func(j *jobs.Job) { j.Timeout = second }, jobs.TimeLimit, ""},
		{"it leaves children that hold its output", "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 60' & done; sleep 0.2; exit 0", nil, "", ""},
		{"it forks away", "setsid sh -c 'sleep 60; echo never' </dev/null >/dev/null 2>&1 & exit 0", nil, "", ""},
		{"it writes beyond the memory limit", "head -c 400m /dev/zero | tail", func(j *jobs.Job) { j.Sandbox.Limits.Memory = 64 << 20 }, jobs.OutOfMemory, "64"},
		{"its file grows beyond the disk limit", "head -c 64m /dev/zero > big; sleep 60", func(j *jobs.Job) { j.Sandbox.Limits.Disk = 8 << 20 }, jobs.DiskLimit, "8MiB: raise sandbox.limits.disk"},
		{"its files are more than the limit of inodes", "i=0; while :; do : > f$((i=i+1)); done", func(j *jobs.Job) { j.Sandbox.Limits.Inodes = 300 }, jobs.InodeLimit, "300"},
		{"it starts more than the limit of processes", "i=0; while test $((i=i+1)) -lt 60; do sleep 60 & done; exit 1", func(j *jobs.Job) { j.Sandbox.Limits.PIDs = 32 }, jobs.ProcessLimit, "32"},
		{"it loses a child to the memory limit, and goes on", "head -c 400m /dev/zero | tail; exit 0", func(j *jobs.Job) { j.Sandbox.Limits.Memory = 64 << 20 }, "", ""},
		{"it is slowed", "head -c 300k /dev/zero | tr '\\0' x", func(j *jobs.Job) { j.Sandbox.Limits.OutputRate = 128 << 10 }, "", ""},
		{"the setup fails", "true", func(j *jobs.Job) { j.Setup = []string{"true", "echo oh no; exit 7"} }, jobs.SetupFailed, "status 7"},
		{"the setup reaches the memory limit", "true", func(j *jobs.Job) {
			j.Setup, j.Sandbox.Limits.Memory = []string{"head -c 400m /dev/zero | tail"}, 64<<20
		}, jobs.OutOfMemory, "64"},
		{"the setup hangs", "true", func(j *jobs.Job) { j.Setup, j.Timeout = []string{"sleep 60"}, second }, jobs.TimeLimit, ""},
		{"the check fails", "echo bad > README", func(j *jobs.Job) { j.Check = []string{"grep -q hello README"} }, jobs.CheckFailed, "grep"},
		{"the check passes", "echo hello again > README", func(j *jobs.Job) { j.Check = []string{"grep -q hello README", "true"} }, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requireNamedLimit(t, tt.reason)
			f := newField(t)
			job := f.job(tt.script)
			job.Retry.MaxAttempts = 1
			if tt.change != nil {
				tt.change(&job)
			}
			if job.Sandbox.Limits.Memory != 0 { // which may end the whole jail without a control group
				requireNamedLimit(t, jobs.OutOfMemory)
			}
			rec, events := f.run(job)
			want := jobs.Success
			if tt.reason != "" {
				want = jobs.Reasons[tt.reason].Outcome
			}
			if rec.Outcome != want || rec.Reason != tt.reason || !strings.Contains(rec.Message, tt.says) {
				t.Errorf("got %s %s (%s), want %s %s (…%s…); %s", rec.Outcome, rec.Reason, rec.Message, want, tt.reason, tt.says, kinds(events))
			}
			if rec.Attempt != 1 {
				t.Errorf("%d attempts", rec.Attempt)
			}
		})
	}
}

// Without a jail, if the job asks for that, an agent finds what it would find in one,
// and leaves as little behind.
func TestAnAgentWithoutAJail(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Backend = func(name string) (sandbox.Backend, error) { return backends.New(t.Context(), name) }
	f.cfg.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/usr"}}
	job := f.job(`grep -q "^test" "$PENSTOCK_PROMPT_FILE" && cmp "$PENSTOCK_INPUT_DIR/data" "$PWD/README" &&
		test "$PWD" = "$PENSTOCK_WORKSPACE" && echo x > "$HOME/x" && { setsid sleep 60 & } && echo mine > new.txt`)
	job.Files = []jobs.File{{Name: "data", Content: []byte("hello\n")}}
	job.Setup, job.Check = []string{"test -d $HOME"}, []string{"test -f $HOME/x"}
	job.Sandbox.Backend = "none"
	for _, feature := range none.Unenforced() {
		job.Sandbox.AllowWeaker = append(job.Sandbox.AllowWeaker, string(feature))
	}
	rec, _ := f.run(job)
	result, err := f.eye.store.Result(t.Context(), rec)
	if err != nil || rec.Outcome != jobs.Success || result.FilesChanged != 1 || result.Backend != "none" {
		t.Errorf("%s %s (%s): %d files changed, backend %s, err %v", rec.Outcome, rec.Reason, rec.Message, result.FilesChanged, result.Backend, err)
	}
}

// What an agent had done when it was stopped is kept.
func TestTheWorkOfAStoppedAgentIsCollected(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.job("echo mine > new.txt; exec sleep 60")
	job.Timeout, job.Retry.MaxAttempts = jobs.Duration(time.Second), 1
	rec, _ := f.run(job)
	result, err := f.eye.store.Result(t.Context(), rec)
	if err != nil || rec.Reason != jobs.TimeLimit || result.FilesChanged != 1 || len(result.Artifacts) != 1 {
		t.Errorf("%s: %d files changed, artifacts %v, err %v; want one of each", rec.Reason, result.FilesChanged, result.Artifacts, err)
	}
}

// Six hundred megabytes without an end of line are one line, cut.
func TestAFloodWithoutAnEndOfLine(t *testing.T) {
	t.Parallel()
	f := newField(t)
	before := resident(t)
	job := f.job("head -c 600000000 /dev/zero | tr '\\0' x; echo; echo after")
	rec, events := f.run(job)
	if rec.Outcome != jobs.Success || count(events, jobs.OutputLine) != 2 {
		t.Fatalf("got %s %s; %s", rec.Outcome, rec.Message, kinds(events))
	}
	for _, e := range events {
		var line event.OutputLine
		if e.Kind != jobs.OutputLine {
			continue
		}
		if err := json.Unmarshal(e.Data, &line); err != nil {
			t.Fatal(err)
		}
		if line.Text != "after" && (len(line.Text) > jobs.MaxEventBytes || line.Cut == 0) {
			t.Errorf("a line of %d bytes, %d cut", len(line.Text), line.Cut)
		}
	}
	if grown := resident(t) - before; grown > 500<<20 {
		t.Errorf("the worker grew by %d MiB", grown>>20)
	}
}

// resident is the memory of this process.
func resident(tb testing.TB) int {
	tb.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Fatal(err)
	}
	pages := 0
	for _, c := range strings.Fields(string(data))[1] {
		pages = pages*10 + int(c-'0')
	}
	return pages * os.Getpagesize()
}

// What a program ran into and survived is in the log, and not the outcome.
func TestALimitThatEndedNothingIsNoted(t *testing.T) {
	t.Parallel()
	requireNamedLimit(t, jobs.OutOfMemory)
	f := newField(t)
	job := f.job("head -c 400m /dev/zero | tail >/dev/null; head -c 400k /dev/zero | tr '\\0' x; exit 0")
	job.Sandbox.Limits = jobs.Limits{Memory: 64 << 20, OutputRate: 128 << 10, Disk: 1 << 30}
	rec, events := f.run(job)
	if rec.Outcome != jobs.Success {
		t.Errorf("got %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
	var noted []string
	var started event.JailStarted
	for _, e := range events {
		switch e.Kind {
		case jobs.JailViolation:
			noted = append(noted, string(e.Data))
		case jobs.JailStarted:
			if err := json.Unmarshal(e.Data, &started); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, limit := range []string{"memory", "output"} {
		if !strings.Contains(strings.Join(noted, " "), `"`+limit+`"`) {
			t.Errorf("%s is not noted in %q", limit, noted)
		}
	}
	if !slices.Contains(started.Watched, "disk") {
		t.Errorf("watched are %q", started.Watched)
	}
}
