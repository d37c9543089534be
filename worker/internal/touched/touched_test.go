package touched

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// An agents is a workspace whose next look finds what a test says.
type agents struct {
	looks atomic.Int64
	found func(look int64) (patchstat.Stat, error)
}

func (*agents) Base() string { return "c1" }

func (a *agents) Touched(context.Context) (patchstat.Stat, error) { return a.found(a.looks.Add(1)) }

func newTeller(t *testing.T) (*Teller, func() []string) {
	store := overlap.Of(jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{}).Workers())
	var at overlap.Cursor
	return &Teller{Store: store, Record: jobs.Record{ID: "job", Repo: "r"}, Clean: func(s string) string { return strings.ReplaceAll(s, "S3CRET", "***") }, Log: slog.New(slog.DiscardHandler)},
		func() (told []string) {
			t.Helper()
			var err error
			at, err = store.Since(t.Context(), at, func(w overlap.Work) { told = append(told, fmt.Sprint(w.Base, w.Files)) })
			if err != nil {
				t.Error(err)
			}
			return told
		}
}

// What a look finds is told when it is something else than before, without secrets. A look that fails is
// followed by another one.
func TestWatch(t *testing.T) {
	t.Parallel()
	teller, told := newTeller(t)
	w := &agents{found: func(look int64) (stat patchstat.Stat, err error) {
		switch {
		case look == 1:
			err = errors.New("a torn view")
		case look > 1:
			stat.Files = []patchstat.File{{Path: "S3CRET.txt", Added: int(look), Spans: []patchstat.Span{{Begin: 1, End: 2}}}}
		}
		return stat, err
	}}
	stop := teller.Watch(t.Context(), w)
	for deadline := time.Now().Add(time.Minute); w.looks.Load() < 3 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if got := told(); len(got) != 1 || got[0] != "c1[{***.txt [[1 2]]}]" {
		t.Errorf("told %q", got)
	}
	looks := w.looks.Load()
	time.Sleep(3 * time.Second / 2)
	if w.looks.Load() != looks || looks < 3 {
		t.Errorf("%d looks, and %d after the end", looks, w.looks.Load()-looks)
	}
}

// A job that ends before it was looked at tells what its patch changes; one without a change tells nothing,
// unless it had told something.
func TestPatch(t *testing.T) {
	t.Parallel()
	teller, told := newTeller(t)
	patch := filepath.Join(t.TempDir(), "patch")
	text := "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -3 +3 @@\n-x\n+y\n"
	if err := os.WriteFile(patch, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ base, patch, want string }{
		{"c1", "", "[]"},
		{"", patch, "[]"},
		{"c1", patch + ".absent", "[]"},
		{"c1", patch, "[c1[{f [[3 4]]}]]"},
		{"c1", patch, "[]"},
		{"c1", "", "[c1[]]"},
	} {
		teller.Patch(t.Context(), tt.base, tt.patch)
		if got := fmt.Sprint(told()); got != tt.want {
			t.Errorf("base %q, patch %q: told %s, want %s", tt.base, tt.patch, got, tt.want)
		}
	}
}
