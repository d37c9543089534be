package workspace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// serve offers repositories below root as any forge does, to user "u" with
// password "s3cret" only.
func serve(t *testing.T, root string) *httptest.Server {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	backend := &cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=u",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}, InheritEnv: []string{"PATH"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", "Basic realm=x")
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestFetchFromURL(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	server := serve(t, filepath.Dir(repo))
	plain := server.URL + "/user%20repo/.git"
	withPassword := strings.Replace(plain, "http://", "http://u:s3cret@", 1)
	helper := filepath.Join(t.TempDir(), "askpass")
	script := "#!/bin/sh\ncase $1 in User*) echo u;; *) echo s3cret;; esac\n"
	if err := exectest.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url string
		env       []string
		ok        bool
	}{
		{"password in the URL", withPassword, nil, true},
		{"the operator's helper", plain, []string{"GIT_ASKPASS=" + helper, "PATH=" + os.Getenv("PATH"), "GIT_DIR=/nonexistent"}, true},
		{"no password", plain, nil, false},
		{"wrong password", strings.Replace(plain, "http://", "http://u:wr0ng@", 1), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(t.Context(), Config{Dir: t.TempDir(), FetchEnv: c.env})
			if err != nil {
				t.Fatal(err)
			}
			w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: c.url, Ref: "main"}, Isolation: jobs.IsolationWorktree})
			if !c.ok {
				if !refusedAs(jobs.NoCredentials)(err) || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), "private-repositories") {
					t.Errorf("got %v, want a refusal that names the page, without the password", err)
				}
				nothingLeft(t, s)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			write(t, w.Dir(), "new", "x\n")
			if change := collect(t, w); change.Files != 1 {
				t.Errorf("got %d files, want 1", change.Files)
			}
			if got := run(t, w.Dir(), "git", "rev-parse", "origin/main"); got != w.Base() {
				t.Errorf("origin/main: got %s, want %s", got, w.Base())
			}
			if found := grep(t, s.cfg.Dir, "s3cret"); found != "" {
				t.Errorf("the password was written to %s", found)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			nothingLeft(t, s)
		})
	}
}

func TestSilentRemoteEndsWithTheContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	s := open(t, Limits{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Prepare(ctx, Request{ID: "job.1", Repo: jobs.Repo{URL: server.URL + "/x"}, Isolation: jobs.IsolationWorktree})
	if !errors.Is(err, context.DeadlineExceeded) || isA[*source.UnreachableError](err) {
		t.Errorf("got %v, want a passed deadline and no word against the remote", err)
	}
	if took := time.Since(began); took > slowtest.Limit(4*time.Second) {
		t.Errorf("took %v", took)
	}
	nothingLeft(t, s)
}

func TestDeadRemoteIsAskedOnceForAll(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		time.Sleep(300 * time.Millisecond)
		http.Error(w, "down", http.StatusBadGateway)
	}))
	defer server.Close()
	s := open(t, Limits{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := s.Prepare(t.Context(), Request{ID: fmt.Sprintf("job.%d", i), Repo: jobs.Repo{URL: server.URL + "/x"}, Isolation: jobs.IsolationWorktree})
			if !isA[*source.UnreachableError](err) {
				t.Errorf("got %v, want an UnreachableError", err)
			}
		})
	}
	wg.Wait()
	// One for the first, one for all that came meanwhile, and one more if the machine
	// was slow to start them.
	if got := asked.Load(); got > 3 {
		t.Errorf("asked %d times, want 2", got)
	}
	nothingLeft(t, s)
}

func TestPacksAreJoined(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("makes more than fifty commits and bases")
	}
	repo, s := newRepo(t), open(t, Limits{})
	src, err := s.access.Locate(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	mirror := filepath.Join(s.cfg.Dir, "mirrors", src.Key, "mirror.git")
	for range 55 { // a mirror may have fifty packs
		sh(t, repo, "git commit -q --allow-empty -m more")
		w := prepare(t, s, "job.1", repo)
		w.Close()
	}
	packs, err := filepath.Glob(filepath.Join(mirror, "objects/pack/*.pack"))
	if err != nil || len(packs) > 10 {
		t.Errorf("got %d packs, %v; want few", len(packs), err)
	}
	run(t, "/", "git", "--git-dir="+mirror, "fsck", "--full")
	if got := run(t, "/", "git", "--git-dir="+mirror, "rev-list", "--all", "--count"); got != "56" {
		t.Errorf("got %s commits, want 56", got)
	}
}
