package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// holding returns the streams of the pool that have a text, in a subject, a header or the content of a
// message: byte by byte, and in the names of objects, which are encoded.
func (f *fixture) holding(text string) []string {
	f.Helper()
	at, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	nc, err := nats.Connect(at.URL, at.Options()...)
	f.must(err)
	defer nc.Close()
	js, err := nc.JetStream()
	f.must(err)
	found := map[string]bool{}
	for info := range js.Streams() {
		for seq := max(1, info.State.FirstSeq); seq <= info.State.LastSeq; seq++ {
			m, err := js.GetMsg(info.Config.Name, seq)
			if errors.Is(err, nats.ErrMsgNotFound) {
				continue
			}
			f.must(err)
			if m.Header.Get("Penstock-Purged") != "" {
				continue // the note, which is about an id
			}
			name, _ := base64.URLEncoding.DecodeString(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
			all := fmt.Sprint(m.Subject, m.Header, string(name), string(m.Data))
			if strings.Contains(all, text) {
				found[info.Config.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// onDisk returns the files below a directory that have a text.
func (f *fixture) onDisk(dir, text string) (found []string) {
	f.Helper()
	f.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// A secret stands in all that a job has: prompt, labels, key, output, patch, dead letter. After a purge it
// is in no message of any stream, nor is the job's id, but in the audit log; and after a compaction
// in no file of the store. The other jobs are as they were.
func TestPurge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "1")
	secret := "planted-" + rand.Text()
	kept := f.submit("echo kept >new.txt")
	planted := func(more ...string) []string {
		return append([]string{"--label", "who=" + secret, "--key", "k" + secret + fmt.Sprint(len(more)), "--env", "WHO=" + secret}, more...)
	}
	done := f.submit("echo out "+secret+"; echo "+secret+" >new.txt", planted()...)
	dead := f.submit("echo "+secret+"; sleep 60", planted("--timeout", "1s", "--max-attempts", "1")...)
	running := f.submit("echo begun; sleep 600")
	_, _, _ = f.try("wait", "--timeout", patience(60), kept, done, dead) // one of them ends in a timeout
	before := f.holding(secret)
	for _, stream := range []string{"KV_ps_jobs", "KV_ps_specs", "OBJ_ps_artifacts", "PS_EVENTS", "PS_DEAD"} {
		if !slices.Contains(before, stream) {
			t.Errorf("nothing is planted in %s: it is in %q", stream, before)
		}
	}
	f.runs(running)
	if out, code, told := f.try("job", "purge", done, running); code != cli.ExitUnexpected || !strings.Contains(told, "job cancel "+running) {
		t.Errorf("a job that runs: %d, %s%s", code, out, told)
	}
	if rec := f.record(done); rec.ID != done || rec.Purging {
		t.Errorf("a purge that was refused has changed %+v", rec)
	}
	if listed := f.run("job", "purge", done, "--dry-run", "-o", "id"); !strings.Contains(listed, done) {
		t.Errorf("a dry run lists %s", listed)
	}
	for role, flags := range f.credentials() {
		if role != jobs.RoleOperator {
			if out, code, told := f.try(append([]string{"job", "purge", done}, flags...)...); code != cli.ExitDenied {
				t.Errorf("a %s: %d, %s%s", role, code, out, told)
			}
		}
	}
	f.run("job", "purge", done, dead)
	f.run("job", "purge", done, dead) // once more
	if left := f.holding(secret); len(left) > 0 {
		t.Errorf("the secret is in %q", left)
	}
	for _, id := range []string{done, dead} {
		if left := f.holding(id); !slices.Equal(left, []string{"PS_AUDIT"}) {
			t.Errorf("job %s is in %q", id, left)
		}
		if out, code, told := f.try("job", "get", id); code != cli.ExitNotFound || !strings.Contains(told, "purged") {
			t.Errorf("a job that was purged: %d, %s%s", code, out, told)
		}
	}
	if listed := f.run("job", "ls", "-o", "id"); strings.Contains(listed, done) || !strings.Contains(listed, kept) {
		t.Errorf("the jobs are\n%s", listed)
	}
	if out, code, told := f.try("job", "purge", jobs.NewID()); code != cli.ExitNotFound {
		t.Errorf("a job that never was: %d, %s%s", code, out, told)
	}
	if again := f.submit("true", "--key", "k"+secret+"0"); again == done {
		t.Error("its key still leads to a job that was purged")
	} else {
		f.run("wait", "--timeout", patience(60), f.cancelled(running), again)
		f.run("job", "purge", again)
	}
	if out, code, told := f.try("nats", "compact"); code != cli.ExitUnexpected || !strings.Contains(told, "a pool runs on") {
		t.Errorf("compacted while the pool runs: %d, %s%s", code, out, told)
	}
	serve.end()
	f.run("nats", "compact")
	if left := f.onDisk(filepath.Join(f.data, "nats"), secret); len(left) > 0 {
		t.Errorf("the secret is in the files %q", left)
	}
	if left, err := filepath.Glob(filepath.Join(f.data, "nats.*")); err != nil || len(left) > 0 {
		t.Errorf("a compaction has left %q, %v", left, err)
	}
	f.start("serving", args...)
	if patch := f.run("job", "diff", kept); !strings.Contains(patch, "+kept") {
		t.Errorf("the patch of another job is\n%s", patch)
	}
	f.gapless(f.events(kept))
	f.run("wait", "--timeout", patience(60), f.submit("echo more >new.txt"))
}

// cancelled ends a job, and is its id where jobs are named that may end in any way.
func (f *fixture) cancelled(id string) string {
	f.Helper()
	f.run("job", "cancel", id)
	f.eventually(60*time.Second, "the job has ended", func() bool { return f.record(id).State == jobs.Finished })
	return f.submit("true")
}

// A server that is killed in the middle of a purge leaves a job that nothing brings back, and the next
// purge removes the rest; where none comes, the leader does.
func TestPurgeKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "2")
	secret := "planted-" + rand.Text()
	left := false // to the leader
	for _, after := range []time.Duration{0, 3, 10, 30, 100} {
		id := f.submit("echo "+secret+"; head -c 3000000 /dev/urandom >big.bin; echo "+secret+" >new.txt; exit 3", "--label", "who="+secret, "--max-attempts", "1")
		_, _, _ = f.try("wait", "--timeout", patience(60), id)
		asked := f.command("job", "purge", id)
		f.must(asked.Start())
		time.Sleep(after * time.Millisecond)
		serve.kill()
		_ = asked.Process.Kill()
		_ = asked.Wait() // killed, or done
		serve = f.start("serving", args...)
		if !left && strings.Contains(f.run("job", "ls", "-o", "jsonl"), `"purging":true`) {
			left = true
			f.eventually(90*time.Second, "the leader ends the purge", func() bool {
				_, _, said := f.try("job", "get", id)
				return len(f.holding(secret)) == 0 && strings.Contains(said, "purged")
			})
		}
		if out, code, _ := f.try("job", "purge", id); code != 0 && code != cli.ExitNotFound {
			t.Errorf("purged again: %d, %s", code, out)
		}
		if left := f.holding(secret); len(left) > 0 {
			t.Errorf("killed after %dms: the secret is in %q", after, left)
		}
	}
	if !left {
		t.Log("no kill has hit the middle of a purge")
	}
}
