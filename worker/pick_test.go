package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
)

// kept returns what is stored of the files that a job asked for, by path.
func (f *field) kept(rec jobs.Record) map[string]string {
	f.Helper()
	result, err := f.eye.store.Result(f.Context(), rec)
	f.must(err)
	files := map[string]string{}
	for _, a := range result.Artifacts {
		if a.Path == "" {
			continue
		}
		r, err := f.eye.store.Get(f.Context(), rec.ID, rec.Epoch, a.Name)
		f.must(err)
		data, err := io.ReadAll(r)
		f.must(err)
		f.must(r.Close())
		if int64(len(data)) != a.Bytes {
			f.Errorf("%s: %d bytes are stored, the result says %d", a.Path, len(data), a.Bytes)
		}
		files[a.Path] = string(data)
	}
	return files
}

// said returns what was told of files that are not kept as they were.
func said(events []jobs.Event) string {
	var lines []string
	for _, e := range events {
		var r event.Notice
		if e.Kind == jobs.Notice && json.Unmarshal(e.Data, &r) == nil {
			lines = append(lines, r.Skipped...)
		}
	}
	return strings.Join(lines, "\n")
}

// Files are kept whatever became of the agent, and whether git ignores them.
func TestFilesOfTheJobAreKept(t *testing.T) {
	t.Parallel()
	const script = `mkdir -p out/deep; echo '/out/' > .gitignore; echo report > out/deep/r.xml; ln -s /etc/passwd out/l.xml; mkfifo out/f.xml; echo other > out/o.txt; `
	for _, c := range []struct {
		name, end string
		change    func(*jobs.Job)
		reason    jobs.Reason
	}{
		{"success", "exit 0", nil, ""},
		{"failure", "exit 1", nil, jobs.AgentFailed},
		{"a limit", "exec sleep 60", func(j *jobs.Job) { j.Timeout = jobs.Duration(2 * time.Second) }, jobs.TimeLimit},
		{"a check", "exit 0", func(j *jobs.Job) { j.Check = []string{"echo checked > out/c.xml; false"} }, jobs.CheckFailed},
		{"no repository", "exit 0", func(j *jobs.Job) { j.Repo.URL, j.Isolation = "", jobs.IsolationNone }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			job := f.job(script + c.end)
			job.Artifacts, job.Retry.MaxAttempts = []string{"out/**/*.xml", "no/such"}, 1
			if c.change != nil {
				c.change(&job)
			}
			rec, events := f.run(job)
			files := f.kept(rec)
			want := map[string]string{"out/deep/r.xml": "report\n"}
			if c.reason == jobs.CheckFailed {
				want["out/c.xml"] = "checked\n"
			}
			if rec.Reason != c.reason || fmt.Sprint(files) != fmt.Sprint(want) {
				t.Errorf("%s (%s): kept %q, want %q", rec.Reason, rec.Message, files, want)
			}
			wantSaid := "out/f.xml: is no regular file\nout/l.xml: is a link, and those are not followed\nno/such: there is no such file; links are not followed"
			if got := said(events); got != wantSaid {
				t.Errorf("said was\n%s\nwant\n%s", got, wantSaid)
			}
		})
	}
}

// An agent that writes its secrets into a file does not get them out by that.
func TestFilesAreKeptWithoutSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	f := newField(t)
	f.cfg.Secret = func(string) (string, bool) { return secret, true }
	job := f.job(`printf '%s' "a $TOKEN b" > log; head -c 300000 /dev/zero > big; printf %s "$TOKEN" | base64 >> big; : > "n-$TOKEN"; echo x > plain`)
	job.Secrets, job.Artifacts = []string{"TOKEN"}, []string{"log", "big", "n-*", "plain"}
	rec, events := f.run(job)
	files := f.kept(rec)
	if rec.Outcome != jobs.Success || len(files) != 4 || files["log"] != "a [redacted TOKEN] b" || files["plain"] != "x\n" {
		t.Errorf("%s (%s): kept %.300q", rec.Reason, rec.Message, files)
	}
	if !strings.Contains(files["big"], "\x00[redacted TOKEN]") {
		t.Errorf("big has %d bytes and no mark", len(files["big"]))
	}
	if got := said(events); got != "big: the value of a secret was removed from it\nlog: the value of a secret was removed from it" {
		t.Errorf("said was %q", got)
	}
	for path, content := range files {
		if strings.Contains(path+content, secret) || strings.Contains(content, "aHVudGVyMmh1bnRlcj") {
			t.Errorf("%s has the secret", path)
		}
	}
}

// A file that the store does not take costs itself; a store that takes nothing
// costs the attempt, which is not the agent's fault.
func TestFilesThatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	f := newField(t)
	small, err := artifact.Open(t.Context(), f.server.Connect(), artifact.Config{MaxBytes: 1 << 20})
	f.must(err)
	f.cfg.Store = small
	job := f.job("head -c 2000000 /dev/zero > big; echo x > small")
	job.Artifacts = []string{"big", "small"}
	rec, events := f.run(job)
	if files := f.kept(rec); rec.Outcome != jobs.Success || len(files) != 1 || files["small"] != "x\n" {
		t.Errorf("%s (%s): kept %.100q", rec.Reason, rec.Message, files)
	}
	if got := said(events); got != "big: has more than the 1048576 bytes that the store takes" {
		t.Errorf("said was %q", got)
	}
	list, err := f.eye.store.List(t.Context(), rec.ID, rec.Epoch)
	if err != nil || slices.ContainsFunc(list, func(a jobs.Artifact) bool { return a.Name == "file-1" }) {
		t.Errorf("listed are %v, %v", list, err)
	}
}
