package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/penstock/doctorcmd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/jobs/why"
)

// doctor returns what doctor finds, by check, and what it says beside it.
func (f *fixture) doctor(args ...string) (found map[string]doctorcmd.Finding, said string) {
	f.Helper()
	out, _, said := f.try(append([]string{"doctor", "-o", "json"}, args...)...) // the host may lack something
	var list []doctorcmd.Finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		f.Fatalf("doctor: %v\n%s%s", err, out, said)
	}
	found = map[string]doctorcmd.Finding{}
	for _, x := range list {
		if _, double := found[x.Check]; double {
			f.Errorf("%s is there twice", x.Check)
		}
		found[x.Check] = x
	}
	return found, said
}

// Doctor examines a pool that runs: each thing that is wrong there is named by its check,
// with the way out, and is gone when that was gone.
func TestDoctorOfAPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_LEASE=20s") // the same for all commands, however busy the machine is
	dir := t.TempDir()
	settings := filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(settings, []byte("webhooks: {allow_private: [\"127.0.0.0/8\"]}\n"), 0o600))
	f.serve("--config", settings)
	found, _ := f.doctor()
	f.wants(found, map[string]string{"broker": "ok", "streams": "ok", "broker clock": "ok", "records": "ok", "workers": "note", "store": "ok",
		"backup": "note", "dead letters": "ok", "webhooks": "ok", "credentials": "ok", "tokens": "ok"})

	found, _ = f.doctor(f.credentials()[jobs.RoleViewer]...)
	for _, check := range []string{"streams", "broker clock", "tokens", "store", "backup"} {
		if x, ok := found[check]; ok {
			t.Errorf("a viewer, who may not ask, has the finding %+v", x)
		}
	}
	f.wants(found, map[string]string{"broker": "ok", "records": "ok", "webhooks": "ok"})

	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer gone.Close()
	f.run("webhook", "add", "out", "--url", gone.URL, "--config", settings)
	f.run("token", "add", "short", "--role", "viewer", "--expires", "1h")
	f.run("backup", dir)
	f.worker("--slots", "1")
	f.run("wait", f.submit("true"))
	ca := f.authority("ca")
	cert, key := ca.issue("server", time.Now().Add(24*time.Hour))
	f.env = append(f.env, "PENSTOCK_SERVE_HTTP_TLS_CERT="+cert, "PENSTOCK_SERVE_HTTP_TLS_KEY="+key)
	f.eventually(time.Minute, "the webhook is disabled", func() bool { return strings.Contains(f.run("webhook", "ls", "-o", "json"), "disabled") })
	found, _ = f.doctor()
	f.wants(found, map[string]string{"workers": "ok", "backup": "ok", "webhooks": "weak", "credentials": "weak", "tokens": "weak"})
	for check, want := range map[string]string{"webhooks": "410", "credentials": cert, "tokens": "token short", "workers": "1 of "} {
		if !strings.Contains(found[check].Detail, want) {
			t.Errorf("%+v, want %s", found[check], want)
		}
	}
	if said := f.run("audit", "-o", "jsonl"); strings.Count(said, `"operation":"backup"`) != 1 {
		t.Errorf("the audit log says of the backup:\n%s", said)
	}
}

// Doctor names what is missing on a broker and who differs, and with --fix makes and closes
// what is safe, once. Asked for a preview it changes nothing.
func TestDoctorRepairs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	srv := jobstest.Start(t)
	token := filepath.Join(t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte("x"), 0o644))
	flags := []string{"--server", srv.URL(), "--token-file", token}
	found, said := f.doctor(append(flags, "--dry-run")...)
	f.wants(found, map[string]string{"broker": "ok", "streams": "fail"})
	if !strings.Contains(said, "would fix: stream PS_EVENTS is missing") || !strings.Contains(said, "would fix: "+token) {
		t.Errorf("a preview says\n%s", said)
	}
	if info, err := os.Stat(token); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("after a preview: %v, %v", info.Mode(), err)
	}
	found, said = f.doctor(append(flags, "--fix")...)
	f.wants(found, map[string]string{"streams": "ok"})
	if info, err := os.Stat(token); err != nil || info.Mode().Perm() != 0o640 || !strings.Contains(said, "fix: stream PS_EVENTS") {
		t.Errorf("after a repair: %v, %v\n%s", info.Mode(), err, said)
	}
	if _, said = f.doctor(append(flags, "--fix")...); strings.Contains(said, "fix:") {
		t.Errorf("a second repair says\n%s", said)
	}
	q := jobstest.Queue(t, srv.Connect(), queue.Config{})
	present := func() error {
		now := time.Now()
		like := why.Worker{Queues: []string{"default"}, Slots: 1, Started: now}
		older, wrong := like, like
		older.Name, wrong.Name, wrong.Version, wrong.Clock = "old", "wrong", "v1", now.Add(-time.Hour)
		return errors.Join(q.Workers().Present(t.Context(), older), q.Workers().Present(t.Context(), wrong))
	}
	f.must(present())
	until := time.Now().Add(time.Hour).UTC()
	limits := ratelimit.Of(q.Workers())
	_, err := limits.Put(t.Context(), ratelimit.State{Key: ratelimit.Name("openai", "sk"), Holds: map[string]time.Time{"gpt-5.5": until}}, time.Now())
	f.must(err)
	found, _ = f.doctor(flags...)
	if k := found["model keys"]; k.Status != "note" || !strings.Contains(k.Detail, "1 held by a limit: gpt-5.5 of openai/") || !strings.Contains(k.Detail, until.Format(time.RFC3339)) {
		t.Errorf("a key that is held by a limit: %+v", k)
	}
	_, err = limits.Put(t.Context(), ratelimit.State{
		Key: ratelimit.Name("anthropic", "sk"), Changed: time.Now(), Refused: &ratelimit.Refusal{Message: "credit balance is too low", Since: time.Now(), Retry: until, Tries: 1},
	}, time.Now())
	f.must(err)
	// Like workers they go on saying so, however long the doctor takes.
	ended, alive := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for {
			select {
			case <-ended:
				alive <- err
				return
			case <-time.After(100 * time.Millisecond):
				err = errors.Join(err, present())
			}
		}
	}()
	found, _ = f.doctor(flags...)
	close(ended)
	f.must(<-alive)
	if k := found["model keys"]; k.Status != "weak" || !strings.Contains(k.Detail, "1 refused: anthropic/") || !strings.Contains(k.Detail, "credit balance is too low") {
		t.Errorf("a key that is refused: %+v", k)
	}
	if w := found["workers"]; w.Status != "weak" || !strings.Contains(w.Detail, "1 of an earlier release") || !strings.Contains(w.Detail, "wrong is 1h0m") || !strings.Contains(w.Detail, "behind the broker") {
		t.Errorf("a worker of an earlier release, and one whose clock is wrong: %+v", w)
	}
	found, _ = f.doctor("--server", "nats://127.0.0.1:1")
	f.wants(found, map[string]string{"broker": "fail"})
}
