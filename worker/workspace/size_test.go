package workspace

import (
	"context"
	"testing"
)

// A workspace's size is what is written there: a hole is nothing, a file with
// two names is one, and what a link leads to is not there.
func TestSize(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Overlay, Clone} {
		s := openAs(t, strategy, Limits{})
		w := prepare(t, s, "job.1", newRepo(t))
		bytes, inodes := w.Size(t.Context())
		grown := func(what, script string, atLeast, atMost, files int64) {
			t.Helper()
			sh(t, w.Dir(), script)
			b, i := w.Size(t.Context())
			if more := b - bytes; more < atLeast || more > atMost || i-inodes != files {
				t.Errorf("%s: %s: %d bytes and %d inodes more, want %d to %d and %d", strategy, what, more, i-inodes, atLeast, atMost, files)
			}
			bytes, inodes = b, i
		}
		const slack = 64 << 10 // of directories and the file system's own blocks
		grown("a file", "head -c 1000000 /dev/urandom > one", 1_000_000, 1_000_000+slack, 1)
		grown("another name", "ln one two", 0, slack, 0)
		grown("a hole", "truncate -s 1G hole", 0, slack, 1)
		grown("a link", "ln -s / root; mkfifo p", 0, slack, 2)
		grown("directories", "mkdir -p d/e; head -c 500000 /dev/urandom > d/e/f", 500_000, 500_000+slack, 3)
		grown("less", "rm one two", -1_000_000-slack, -1_000_000, -1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, got := w.Size(ctx); got > 1 {
			t.Errorf("%s: %d inodes were counted when nobody wanted to know", strategy, got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
