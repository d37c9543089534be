package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// followed is an HTTP server that follows its pool, with a feed of its own.
func (p *pool) followed() httpapi.Config {
	p.t.Helper()
	f, err := feed.New(p.nc, feed.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := p.config()
	cfg.Changes = f.Follow
	return cfg
}

// until reads events until one is of a kind, each with a connection of its own, and
// returns the kinds of all.
func (r *reader) until(kind string) string {
	r.t.Helper()
	var kinds []string
	for end := time.Now().Add(jobstest.Patience); len(kinds) < 9 && time.Now().Before(end); {
		r.got = nil
		if r.read(1); len(r.got) == 0 {
			continue // the server is not there yet
		}
		_, got, _ := strings.Cut(r.got[0], " ")
		if kinds = append(kinds, got); got == kind {
			break
		}
	}
	return strings.Join(kinds, " ")
}

// A reader of the pool's changes goes on over cuts, and with a server that was started
// since, and is not told anything twice.
func TestTheStreamOfChanges(t *testing.T) {
	t.Parallel()
	p := open(t)
	url, stop := p.listenAs(p.followed(), "127.0.0.1:0", nil)
	r := &reader{t: t, url: url + "/v1/stream"}
	if got := r.until("reset"); got != "reset" {
		t.Fatalf("a stream begins with %s", got)
	}
	p.submitted()
	if got := r.until("job"); got != "job" {
		t.Errorf("a reader that was cut goes on with %s", got)
	}
	address := strings.TrimPrefix(url, "http://")
	stop()
	p.submitted()
	_, stop = p.listenAs(p.followed(), address, nil)
	if got := r.until("job"); got != "job" {
		t.Errorf("a reader goes on with a server that was started since with %s", got)
	}
	r.last = "of another pool"
	if got := r.until("reset"); got != "reset" {
		t.Errorf("behind an id of elsewhere comes %s", got)
	}
	stop()
}

// The stream says now and then that it is there, and ends at once with its server.
func TestTheQuietStreamOfChanges(t *testing.T) {
	t.Parallel()
	p := open(t)
	url, stop := p.listenAs(p.followed(), "127.0.0.1:0", func(s *httpapi.Server) { s.Hasten(20*time.Millisecond, time.Minute) })
	var reading, waiting sync.WaitGroup
	for range 10 {
		waiting.Add(1)
		reading.Go(func() {
			r := reader{t: t, url: url + "/v1/stream", quiet: sync.OnceFunc(waiting.Done)}
			if ended, _ := r.read(2); ended {
				t.Error("the stream of changes has an end")
			}
		})
	}
	waiting.Wait()
	began := time.Now()
	stop()
	reading.Wait()
	if took := time.Since(began); took > jobstest.Patience/2 {
		t.Errorf("the streams have ended after %v", took)
	}
}

// The stream is for the roles that may list jobs, and takes no other type and no parameter.
func TestWhoMayFollowChanges(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.url = p.serve(p.followed())
	for request, want := range map[string]struct {
		role   jobs.Role
		accept string
		status int
	}{
		"GET /v1/stream":          {jobs.RoleAutoscale, "text/event-stream", http.StatusForbidden},
		"GET /v1/stream?":         {jobs.RoleWorker, "text/event-stream", http.StatusForbidden},
		"GET /v1/stream?since=1h": {jobs.RoleViewer, "text/event-stream", http.StatusBadRequest},
		"GET /v1/stream?&":        {jobs.RoleViewer, "application/json", http.StatusBadRequest},
	} {
		if got := p.ask(want.role, request, "", "Accept", want.accept); got.status != want.status {
			t.Errorf("%s by %s for %s: %d %s", request, want.role, want.accept, got.status, got.body)
		}
	}
	p.url = p.serve(p.config())
	if got := p.ask(jobs.RoleViewer, "GET /v1/stream", "", "Accept", "text/event-stream"); got.status != http.StatusNotFound {
		t.Errorf("a server without a feed: %d %s", got.status, got.body)
	}
}
