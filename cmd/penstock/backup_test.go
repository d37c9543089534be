package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/penstock/backupcmd"
	"github.com/penstock-run/penstock/jobs"
)

// A pool that is backed up while it works, and then lost, comes back on an
// empty directory by one command, and goes on.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, _ := f.serve("--slots", "1")
	done := f.submit("echo done >new.txt", "--key", "done")
	f.run("wait", "--timeout", patience(60), done)
	running := f.submit("echo begun; "+onlyFirst+"; echo ran >new.txt", "--key", "runs")
	f.runs(running)
	waiting := f.submit("echo waited >new.txt", "--key", "waits")
	dir := t.TempDir()
	var b backupcmd.Summary
	f.must(json.Unmarshal([]byte(f.run("backup", dir, "-o", "json")), &b))
	if info, err := os.Stat(b.File); err != nil || info.Size() != b.Bytes || info.Mode().Perm() != 0o600 || b.Jobs[jobs.Finished] != 1 || b.Jobs[jobs.Executing] != 1 || b.Jobs[jobs.Pending] != 1 {
		t.Errorf("the backup is %+v, %v, %v", b, info, err)
	}
	late := f.submit("true", "--key", "late")
	if out, code, told := f.try("restore", b.File, "--replace"); code != 1 || !strings.Contains(told, "a pool runs on") {
		t.Errorf("restored while the pool runs: %d, %s%s", code, out, told)
	}
	serve.kill()
	if out, code, told := f.try("restore", b.File); code != 1 || !strings.Contains(told, "the pool is not empty") || !strings.Contains(told, "--replace") {
		t.Errorf("restored over a pool: %d, %s%s", code, out, told)
	}
	if f.record(late).ID != late {
		t.Error("a restore that was refused has changed something")
	}
	f.run("restore", b.File, "--replace")
	if out, code, _ := f.try("job", "get", late); code != cli.ExitNotFound {
		t.Errorf("what was accepted after the backup is there: %d, %s", code, out)
	}
	// And once more on a directory that was never used.
	f.data = filepath.Join(t.TempDir(), "other")
	f.run("restore", b.File, "--dry-run")
	if _, err := os.Stat(f.data); err == nil {
		t.Error("a dry run has made something")
	}
	f.run("restore", b.File)
	f.serve("--slots", "2")
	if id := f.submit("false", "--key", "done"); id != done {
		t.Errorf("the key of job %s leads to %s", done, id)
	}
	f.run("wait", "--timeout", patience(90), done, running, waiting)
	for id, text := range map[string]string{done: "+done", running: "+ran", waiting: "+waited"} {
		if patch := f.run("job", "diff", id); !strings.Contains(patch, text) {
			t.Errorf("the patch of job %s is\n%s", id, patch)
		}
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			t.Errorf("job %s finished %d times", id, got)
		}
	}
}

// A backup that is killed leaves no file that could be taken for one.
func TestAKilledBackup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	f.run("wait", "--timeout", patience(60), f.submit("head -c 30000000 /dev/urandom >big.bin"))
	path := filepath.Join(t.TempDir(), "pool.backup")
	for _, after := range []time.Duration{50, 150, 250, 400} {
		cmd := f.command("backup", path)
		f.must(cmd.Start())
		time.Sleep(after * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, or done
		if _, err := os.Stat(path); err == nil {
			f.run("restore", path, "--dry-run") // then it is whole
			f.must(os.Remove(path))
		}
	}
	half := filepath.Join(t.TempDir(), "half")
	f.run("backup", path)
	whole, err := os.ReadFile(path)
	f.must(err)
	f.must(os.WriteFile(half, whole[:len(whole)/2], 0o600))
	if out, code, told := f.try("restore", half, "--replace"); code != cli.ExitUsage || !strings.Contains(told, "is not a whole backup") {
		t.Errorf("half a file: %d, %s%s", code, out, told)
	}
}

// How long things are kept is a setting, which streams that exist follow.
func TestRetention(t *testing.T) {
	t.Parallel()
	a := &app{out: console.New(io.Discard, os.Getenv), err: console.New(io.Discard, os.Getenv), cfg: cli.Defaults()}
	a.cfg.Data = filepath.Join(t.TempDir(), "data")
	for _, keep := range []cli.KeepConfig{
		a.cfg.Keep,
		{Jobs: time.Hour, Events: 2 * time.Hour, EventsBytes: "64MiB", Results: 3 * time.Hour, Artifacts: 4 * time.Hour, ArtifactsBytes: "32MiB", Dead: 5 * time.Hour},
	} {
		a.cfg.Keep = keep
		p, err := pool.Open(context.Background(), a.shell(), "run", pool.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		events, artifacts, _, _ := keep.Sizes()
		for _, want := range []struct {
			stream string
			age    time.Duration
			bytes  int64
		}{
			{"PS_EVENTS", keep.Events, events},
			{"KV_ps_results", keep.Results, 0},
			{"OBJ_ps_artifacts", keep.Artifacts, artifacts},
			{"PS_DEAD", keep.Dead, 0},
		} {
			age, bytes := bounds(t, p, want.stream)
			if age != want.age || max(0, bytes) != want.bytes {
				t.Errorf("%s keeps %v and %d bytes, want %v and %d", want.stream, age, bytes, want.age, want.bytes)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func bounds(t *testing.T, p *pool.Pool, stream string) (age time.Duration, bytes int64) {
	t.Helper()
	msg, err := p.Conn.Request("$JS.API.STREAM.INFO."+stream, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Config struct {
			Age   time.Duration `json:"max_age"`
			Bytes int64         `json:"max_bytes"`
		} `json:"config"`
	}
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		t.Fatal(err)
	}
	return info.Config.Age, info.Config.Bytes
}
