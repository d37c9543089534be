package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// Who has as much stored as may be gets no more accepted, also after the server was killed, until
// a job is purged.
func TestQuotaOfStoredBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "1", "--quota", "label:owner=*=1MiB", "--quota", "queue:default=100")
	submit := func(owner string, command ...string) (id string, code int, said string) {
		t.Helper()
		id, code, said = f.try(append([]string{"submit", "-o", "id", "--isolation", "none", "--label", "owner=" + owner, "--"}, command...)...)
		return strings.TrimSpace(id), code, said
	}
	large, code, said := submit("ann", "sh", "-c", "head -c 3000000 /dev/zero | base64 -w 10000")
	if code != 0 {
		t.Fatal(code, said)
	}
	f.run("wait", large)
	var rec jobs.Record
	f.must(json.Unmarshal([]byte(f.run("job", "get", large, "-o", "json")), &rec))
	js, err := jetstream.New(f.bus())
	f.must(err)
	events, err := js.Stream(t.Context(), "PS_EVENTS")
	f.must(err)
	// The broker counts subjects, too, and the dispatcher's event at the submission and the end.
	if there := int64(events.CachedInfo().State.Bytes); rec.Stored < 4000000 || rec.Stored < there*9/10 || rec.Stored > there { //nolint:gosec // bytes of one session
		t.Errorf("the job has %d bytes stored, want nearly the %d of its events", rec.Stored, there)
	}
	refused := func(what string) {
		t.Helper()
		f.eventually(15*time.Second, what, func() bool {
			id, code, said := submit("ann", "true")
			if code == 0 {
				f.run("job", "cancel", id)
				return false
			}
			return code == cli.ExitDenied && strings.Contains(said, "quota label:owner=ann") && strings.Contains(said, "are stored, of 1MiB") && strings.Contains(said, "job purge")
		})
	}
	refused("no more is accepted")
	if _, code, said := submit("bob", "true"); code != 0 {
		t.Errorf("another owner: %d, %s", code, said)
	}
	serve.kill()
	f.start("serving", args...)
	refused("the new leader has read the records")
	f.run("job", "purge", large, "--yes")
	f.eventually(15*time.Second, "there is room again", func() bool { _, code, _ := submit("ann", "true"); return code == 0 })
}

// Who has as many open jobs as may be gets no more accepted, by whatever door, also after the server was
// killed. Others do, and so does what is there already.
func TestQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const job = `{"agent":{"name":"command","command":["true"]},"isolation":"none","labels":{"owner":"ann"}}`
	web := freeAddress(t)
	serve, args := f.serve("--slots", "0", "--http", web, "--quota", "label:owner=*=3", "--quota", "queue:default=5")
	submit := func(owner string, more ...string) (id string, code int, said string) {
		t.Helper()
		return f.try(append([]string{"submit", "-o", "id", "--label", "owner=" + owner}, append(more, "--", "true")...)...)
	}
	accepts := func(what, owner string, more ...string) string {
		t.Helper()
		id, code, said := submit(owner, more...)
		if code != 0 {
			t.Errorf("%s: %d, %s", what, code, said)
		}
		return strings.TrimSpace(id)
	}
	refuses := func(what, owner, quota string) {
		t.Helper()
		if id, code, said := submit(owner); code != cli.ExitDenied || id != "" || !strings.Contains(said, "quota "+quota) || !strings.Contains(said, "serve --quota") {
			t.Errorf("%s: %d, %s%s", what, code, id, said)
		}
	}
	first := accepts("a first one", "ann", "--key", "k1")
	second := accepts("a second one", "ann")
	accepts("a third one", "ann")
	refuses("a fourth one", "ann", "label:owner=ann: 3 jobs are open, of 3")
	if again := accepts("a key that has a job", "ann", "--key", "k1"); again != first {
		t.Errorf("the key k1 leads to %s, want %s", again, first)
	}
	accepts("another owner", "bob")
	accepts("another owner", "bob")
	refuses("another owner, in a full queue", "bob", "queue:default: 5 jobs are open, of 5")
	accepts("another queue", "bob", "--queue", "nightly")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+web+"/v1/jobs", strings.NewReader(job))
	f.must(err)
	request.Header.Set("Authorization", "Bearer "+f.httpToken())
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	f.must(err)
	f.must(answer.Body.Close())
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("over HTTP: %s", answer.Status)
	}
	_, err = f.bus().Request("penstock.v1.submit.default", []byte(job), 10*time.Second)
	f.must(err)
	f.eventually(10*time.Second, "what was published is a dead letter", func() bool { return strings.Contains(f.run("dead", "ls", "-o", "json"), "quota label:owner=ann") })
	if listed := f.run("queue", "ls", "-o", "json"); !strings.Contains(listed, `"quota":5`) && !strings.Contains(listed, `"quota": 5`) {
		t.Errorf("the queues are %s", listed)
	}
	if list := f.run("job", "ls", "-o", "id"); strings.Count(list, "\n") != 6 {
		t.Errorf("the jobs are\n%s", list)
	}
	serve.kill()
	f.start("serving", args...)
	f.eventually(15*time.Second, "the new leader has read the records", func() bool {
		id, code, _ := submit("ann")
		if code == 0 {
			f.run("job", "cancel", strings.TrimSpace(id))
		}
		return code == cli.ExitDenied
	})
	f.run("job", "cancel", second)
	f.eventually(15*time.Second, "the place is free", func() bool { _, code, _ := submit("ann"); return code == 0 })
	refuses("a fourth one", "ann", "label:owner=ann")
}
