package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// A slowWriter sends a body as a slow line would.
type slowWriter struct{ http.ResponseWriter }

func (w slowWriter) Write(p []byte) (int, error) {
	const part = 32 << 10
	sent := 0
	for len(p) > 0 {
		n, err := w.ResponseWriter.Write(p[:min(part, len(p))])
		sent += n
		if err != nil {
			return sent, err
		}
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		if p = p[n:]; sent%part == 0 {
			time.Sleep(70 * time.Millisecond) // the line is slow: that is what is tested
		}
	}
	return sent, nil
}

// TestProgressOfASlowFetch: a first job on a large repository shows the progress of its
// fetch.
func TestProgressOfASlowFetch(t *testing.T) {
	t.Parallel()
	f := newForge(newFixture(t))
	random := make([]byte, 48<<10)
	for i := range 40 {
		_, _ = rand.Read(random)
		f.must(os.WriteFile(filepath.Join(f.repo, "big"+string(rune('a'+i))), random, 0o644))
	}
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-qm", "big")
	backend := f.handler()
	f.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { backend.ServeHTTP(slowWriter{w}, r) })
	f.env = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=credential.helper", "GIT_CONFIG_VALUE_0=!f() { echo username=u; echo password=s3cret; }; f"}
	_, code, stderr := f.try("run", "--repo", f.http.URL+"/repo/.git", "--agent", "command", "--", "true")
	if code != 0 || !strings.Contains(stderr, "fetch: Receiving objects") {
		t.Errorf("exit code %d, want 0 and the fetch's progress in\n%s", code, stderr)
	}
	id := strings.TrimSpace(f.run("job", "ls", "-o", "id"))
	told := 0
	for line := range strings.Lines(f.run("logs", id, "-o", "jsonl")) {
		var e jobs.Event
		f.must(json.Unmarshal([]byte(line), &e))
		if e.Kind != jobs.WorkspaceProgress {
			continue
		}
		told++
		var p event.WorkspaceProgress
		f.must(json.Unmarshal(e.Data, &p))
		if p.Step == "" || p.Phase == "" || p.Total < 1 || p.Done > p.Total || p.Percent > 100 || p.Seconds < 2 {
			t.Errorf("got %s", e.Data)
		}
	}
	if told == 0 || told > 30 {
		t.Errorf("got %d events of progress, want a few", told)
	}
}
