package layout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// A store of another version is refused by all that would work on it, and stays as it is.
func TestAStoreOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version string // empty: nothing is written
		refused string
	}{
		{"", ""},
		{"1", ""},
		{"0", "version 0, and this release of penstock reads version 1 only: use the release that wrote it; the changelog"},
		{"2", "version 2, and this release of penstock reads version 1 only: use the release that wrote it, or a newer one"},
		{"x", "version 0, and"},
	} {
		t.Run("version "+test.version, func(t *testing.T) {
			t.Parallel()
			nc := jobstest.Start(t).Connect()
			install(t, nc, queue.Config{})
			edit(t, nc, "KV_ps_jobs", func(cfg *jetstream.StreamConfig) {
				if cfg.Metadata["penstock-store"] != "1" {
					t.Errorf("a new pool says %v", cfg.Metadata)
				}
				delete(cfg.Metadata, "penstock-store")
				if test.version != "" {
					cfg.Metadata["penstock-store"] = test.version
				}
			})
			ctx := jobstest.Context(t)
			for what, try := range map[string]func() error{
				"queue": func() error { _, err := queue.Open(ctx, nc, queue.Config{}); return err },
				"log":   func() error { _, err := session.Open(ctx, nc, session.Config{}); return err },
				"diff":  func() error { _, err := layout.Diff(ctx, nc, layout.Config{}); return err },
			} {
				refused(t, what, try(), test.refused)
			}
			_, err := queue.Open(ctx, nc, queue.Config{Upgrade: true})
			refused(t, "a queue that upgrades", err, test.refused)
			_, err = layout.Apply(ctx, nc, layout.Config{Downgrade: true}, func(layout.Difference) {})
			refused(t, "apply", err, test.refused)
			want := test.version
			if test.refused == "" {
				want = "1" // what upgrades writes it
			}
			if got := stream(t, nc, "KV_ps_jobs").Metadata["penstock-store"]; got != want {
				t.Errorf("the store says version %q afterwards, want %q", got, want)
			}
		})
	}
}

func refused(t *testing.T, what string, err error, with string) {
	t.Helper()
	_, other := errors.AsType[*jobs.StoreVersionError](err)
	if with == "" && err != nil || with != "" && (!other || !strings.Contains(err.Error(), with) || jobs.Code(err) != jobs.CodeInvalid) {
		t.Errorf("%s: %v (%s), want %q", what, err, jobs.Code(err), with)
	}
}
