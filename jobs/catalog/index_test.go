package catalog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// some is a record of a few queues, batches, sessions, states and outcomes.
func some(random *rand.Rand, id string, at time.Time) jobs.Record {
	rec := jobs.Record{ID: id, Session: id, Queue: fmt.Sprint("q", random.IntN(3)), Submitted: at}
	rec.State = []jobs.State{jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished}[random.IntN(5)]
	if rec.State == jobs.Finished {
		rec.Outcome = []jobs.Outcome{jobs.Success, jobs.Failure}[random.IntN(2)]
		if random.IntN(2) == 0 {
			rec.Review = &jobs.Review{State: []jobs.ReviewState{jobs.Accepted, jobs.Rejected}[random.IntN(2)]}
		}
	}
	if rec.State != jobs.Finished {
		rec.Reason = []jobs.Reason{"", jobs.QuotaWaiting, jobs.KeyRefused, jobs.RateLimited, jobs.BudgetWaiting, jobs.BudgetParked}[random.IntN(6)]
	}
	if random.IntN(2) == 0 {
		rec.Batch = fmt.Sprint("b", random.IntN(4))
	}
	if random.IntN(5) == 0 {
		rec.Session = fmt.Sprint("s", random.IntN(2))
	}
	return rec
}

// An index answers as if it had looked through all records, whatever has changed, in
// whatever order.
func TestIndexAnswersAsTheRecords(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test's choices
		x, all := NewIndex(), map[string]jobs.Record{}
		begun := time.Now().UTC().Truncate(time.Millisecond)
		var ids []string
		for i := range 2000 {
			id := uuid.Must(uuid.NewV7()).String()
			ids = append(ids, id)
			all[id] = some(random, id, begun.Add(time.Duration(i)*time.Second))
		}
		for _, i := range random.Perm(len(ids)) {
			x.Set(all[ids[i]], time.Time{})
		}
		for range 3000 { // they change, or are not kept any more
			id := ids[random.IntN(len(ids))]
			if rec, kept := all[id]; kept && random.IntN(3) > 0 {
				now := some(random, id, rec.Submitted)
				now.Session, now.Batch, now.Queue = rec.Session, rec.Batch, rec.Queue // which do not change
				all[id] = now
				x.Set(now, time.Time{})
			} else {
				delete(all, id)
				x.Remove(id)
			}
		}
		if x.Len() != len(all) {
			t.Fatalf("seed %d: %d jobs, want %d", seed, x.Len(), len(all))
		}
		compareLists(t, x, all, begun)
		compareCounts(t, x, all)
	}
}

func compareLists(t *testing.T, x *Index, all map[string]jobs.Record, begun time.Time) {
	t.Helper()
	for _, f := range []record.Filter{
		{}, {Queue: "q1"}, {Batch: "b2"}, {Session: "s1"}, {State: jobs.Finished, Outcome: jobs.Failure},
		{Unfinished: true, Batch: "b0"}, {Since: begun.Add(1500 * time.Second)}, {Queue: "none"},
		{Review: jobs.Unreviewed}, {Review: jobs.Rejected, Queue: "q0"},
	} {
		var want []string
		for _, rec := range all {
			if f.Match(rec) {
				want = append(want, rec.ID)
			}
		}
		slices.Sort(want)
		for _, newest := range []bool{false, true} {
			if newest {
				slices.Reverse(want)
			}
			var got []string
			s := Selection{Filter: f, Newest: newest, Limit: 37}
			for {
				ids, more := x.list(s)
				if got = append(got, ids...); !more {
					break
				}
				s.After = ids[len(ids)-1]
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v, newest %v: %d jobs, want %d: %s", f, newest, len(got), len(want), firstDifference(got, want))
			}
		}
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("number %d is %s, want %s", i, got[i], want[i])
		}
	}
	return "one has more"
}

func compareCounts(t *testing.T, x *Index, all map[string]jobs.Record) {
	t.Helper()
	queues, batches := tally{queues: map[string]*operation.Queue{}}, tally{batches: map[string]*operation.Batch{}}
	for _, rec := range all {
		queues.addQueue(keyOf(rec), 1, rec.Submitted.UnixNano())
		if rec.Batch != "" {
			batches.addBatch(keyOf(rec), 1, rec.Submitted.UnixNano())
		}
	}
	if got, want := x.queues(""), queues.byQueue(); !reflect.DeepEqual(got, want) {
		t.Errorf("queues\n%+v, want\n%+v", got, want)
	}
	if got, want := x.batches("", ""), batches.byBatch(); !reflect.DeepEqual(got, want) {
		t.Errorf("batches\n%+v, want\n%+v", got, want)
	}
	if got, want := x.batches("b3", ""), batches.byBatch()[3:4]; !reflect.DeepEqual(got, want) {
		t.Errorf("batch b3\n%+v, want\n%+v", got, want)
	}
}

// An abbreviated id means the jobs whose ids begin or end with it.
func TestIndexResolvesIDs(t *testing.T) {
	t.Parallel()
	x := NewIndex()
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = jobs.NewID()
		x.Set(jobs.Record{ID: ids[i]}, time.Time{})
	}
	slices.Sort(ids)
	for _, short := range []string{ids[7], ids[7][:35], ids[7][:13], ids[7][:4], ids[7][14:], ids[7][33:], ids[7][35:], "-", "x", ""} {
		var want []string
		for _, id := range ids {
			if strings.HasPrefix(id, short) || strings.HasSuffix(id, short) {
				want = append(want, id)
			}
		}
		got, n := x.resolve(short, 5)
		if n != len(want) || !slices.Equal(got, want[:min(n, 5)]) {
			t.Errorf("%q: %d jobs, %v; want %d, %v", short, n, got, len(want), want[:min(len(want), 5)])
		}
	}
}

// A job whose record the broker has removed is in no list and no count.
func TestIndexForgetsWhatExpires(t *testing.T) {
	t.Parallel()
	x := NewIndex()
	kept := jobs.Record{ID: jobs.NewID(), Queue: "default", State: jobs.Finished}
	gone := jobs.Record{ID: jobs.NewID(), Queue: "default", State: jobs.Finished}
	x.Set(kept, time.Now().Add(time.Hour))
	x.Set(gone, time.Now().Add(-time.Hour))
	if ids, more := x.list(Selection{Limit: 10}); more || !slices.Equal(ids, []string{kept.ID}) {
		t.Errorf("jobs %v, want %s", ids, kept.ID)
	}
	if got := x.queues(""); len(got) != 1 || got[0].Finished != 1 {
		t.Errorf("queues %+v, want one finished job", got)
	}
	x.Set(jobs.Record{ID: "not-of-a-job", Queue: "default"}, time.Time{})
	if x.Len() != 1 {
		t.Errorf("%d jobs, want one", x.Len())
	}
}

// What a job costs the leader does not depend on its record, and is small.
func TestIndexIsSmall(t *testing.T) {
	const n, most = 200_000, 64
	ids := make([]string, n)
	for i := range ids {
		ids[i] = jobs.NewID()
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(a[20:], b[20:]) }) // in any order
	x := NewIndex()
	before := heap()
	for i, id := range ids {
		x.Set(jobs.Record{ID: id, Session: id, Queue: "default", Batch: fmt.Sprint("b", i%100), State: jobs.Finished, Title: "a title", Submitted: time.Now()}, time.Time{})
	}
	if each := (heap() - before) / n; each > most {
		t.Errorf("a job costs %d bytes, want at most %d", each, most)
	}
	runtime.KeepAlive(x)
	runtime.KeepAlive(ids)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // of a test
}
