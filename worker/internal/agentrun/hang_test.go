package agentrun

import (
	"testing"
	"time"
)

// What tells a program that works from one that only waits.
func TestWhatIsWork(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	before := activity{cpu: time.Second, io: 1 << 20}
	for name, tt := range map[string]struct {
		cpu   time.Duration
		io    int64
		span  time.Duration
		works bool
	}{
		"nothing":                   {0, 0, time.Second, false},
		"it wakes up now and then":  {9 * ms, 100, time.Second, false},
		"a tick of the processor":   {10 * ms, 0, time.Second, true},
		"a tick in half a minute":   {10 * ms, 0, 30 * time.Second, false},
		"a page":                    {0, 4 << 10, 100 * ms, true},
		"a page in half a minute":   {0, 4 << 10, 30 * time.Second, false},
		"a slow disk":               {0, 200 << 10, 30 * time.Second, true},
		"a process ended, unwaited": {-200 * ms, 0, time.Second, true},
		"one that read, too":        {0, -1, time.Second, true},
	} {
		after := activity{cpu: before.cpu + tt.cpu, io: before.io + tt.io}
		if got := works(before, after, tt.span); got != tt.works {
			t.Errorf("%s: works is %t, want %t", name, got, tt.works)
		}
	}
}
