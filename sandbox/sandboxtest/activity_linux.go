package sandboxtest

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Active looks at what jails do: one that computes, one that reads with little
// of the processor, and one that only waits. What configures the Spec for the
// backend is allow, which may be nil.
func Active(t *testing.T, b sandbox.Backend, allow func(sandbox.Spec) sandbox.Spec) {
	Require(t, b)
	for name, tt := range map[string]struct {
		script  string
		reached func(cpu time.Duration, io int64) bool
	}{
		"computes": {"while :; do :; done", func(cpu time.Duration, _ int64) bool { return cpu >= 100*time.Millisecond }},
		"reads":    {"while :; do head -c 100000 /dev/zero >/dev/null; sleep 0.1; done", func(_ time.Duration, io int64) bool { return io >= 1_000_000 }},
		"waits":    {"exec sleep 1234", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := treeDir(t)
			p, err := sandbox.Start(t.Context(), b, kindSpec(0, dir, tt.script, allow), sandbox.Streams{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			if tt.reached == nil {
				time.Sleep(300 * time.Millisecond) // it may still start
				cpu, io := p.Activity()
				time.Sleep(500 * time.Millisecond)
				if moreCPU, moreIO := p.Activity(); moreCPU-cpu > 50*time.Millisecond || moreIO-io > 4<<10 {
					t.Errorf("it waits, and went from %v and %d bytes to %v and %d", cpu, io, moreCPU, moreIO)
				}
				return
			}
			for deadline := time.Now().Add(slowtest.Pace(20 * time.Second)); !tt.reached(p.Activity()); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					cpu, io := p.Activity()
					t.Fatalf("it has done no more than %v and %d bytes", cpu, io)
				}
			}
		})
	}
}
