package wire_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// The answer to a write is lost, and a server that lags behind its cluster is asked what
// became of it: that is no conflict, unless the server stays like that. The last of a subject was 5.
func TestAServerThatLagsIsNoConflict(t *testing.T) {
	t.Parallel()
	const gone = `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`
	got := func(seq int) string { return fmt.Sprintf(`{"message":{"subject":"s","seq":%d}}`, seq) }
	const lost, wrong, stored = `{"error":{"code":503,"err_code":10008,"description":"not now"}}`, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 6"}}`, `{"seq":6}`
	for name, test := range map[string]struct {
		writes, reads []string // the answers, the last of which is repeated
		seq           uint64
		err           error
		asked         int32 // how often it is read; 0: more than once
	}{
		"an earlier message":           {[]string{lost, stored}, []string{got(3)}, 6, nil, 1},
		"none":                         {[]string{lost, stored}, []string{gone}, 6, nil, 1},
		"none, and it is stored":       {[]string{lost, wrong}, []string{gone, got(7)}, 0, wire.ErrConflict, 2},
		"a later one":                  {[]string{lost, stored}, []string{got(7)}, 0, wire.ErrConflict, 1},
		"an earlier one for ever":      {[]string{lost, wrong}, []string{got(3)}, 0, wire.ErrConflict, 0},
		"removed for ever":             {[]string{lost, wrong}, []string{gone}, 0, wire.ErrConflict, 0},
		"a conflict that was answered": {[]string{wrong}, []string{gone}, 0, wire.ErrConflict, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := jobstest.Start(t).Connect()
			// This role asks the broker under another name, where this test answers.
			c, err := wire.New(nc, jobs.RoleWorker)
			if err != nil {
				t.Fatal(err)
			}
			var reads atomic.Int32
			answering := func(to string, answers []string, count *atomic.Int32) {
				t.Helper()
				if _, err := nc.Subscribe(to, func(m *nats.Msg) {
					n := min(int(count.Add(1)), len(answers)) - 1
					_ = m.Respond([]byte(answers[n]))
				}); err != nil {
					t.Fatal(err)
				}
			}
			answering("s", test.writes, new(atomic.Int32))
			answering(subject.RoleAPI+".STREAM.MSG.GET.S", test.reads, &reads)
			seq, err := c.Put(jobstest.Context(t), wire.Write{Stream: "S", Subject: "s", Expect: 5})
			n := reads.Load()
			if seq != test.seq || !errors.Is(err, test.err) || test.asked > 0 && n != test.asked || test.asked == 0 && n < 2 || test.asked < 0 && n > 0 {
				t.Errorf("got %d, %v after %d reads, want %d, %v", seq, err, n, test.seq, test.err)
			}
		})
	}
}
