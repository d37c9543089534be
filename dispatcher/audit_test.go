package dispatcher_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
)

// losses are what becomes of the records' store while the broker is down. Before
// is a copy that was made when the jobs were submitted.
var losses = map[string]func(t *testing.T, dir, before string){
	"the last writes": func(t *testing.T, dir, before string) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(before)); err != nil {
			t.Fatal(err)
		}
	},
	"the end of the last block": func(t *testing.T, dir, _ string) {
		blocks, err := filepath.Glob(filepath.Join(dir, "msgs", "*.blk"))
		if err != nil || len(blocks) == 0 {
			t.Fatal(blocks, err)
		}
		last := blocks[len(blocks)-1]
		info, err := os.Stat(last)
		if err == nil {
			err = os.Truncate(last, info.Size()*3/20)
		}
		if err == nil {
			err = os.Remove(filepath.Join(dir, "msgs", "index.db"))
		}
		if err != nil {
			t.Fatal(err)
		}
	},
}

// recordsOf is where a server keeps the records.
func recordsOf(t *testing.T, store string) (dir string) {
	t.Helper()
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "KV_ps_jobs" {
			dir = path
			return fs.SkipAll
		}
		return err
	})
	if err != nil || dir == "" {
		t.Fatalf("no records in %s: %v", store, err)
	}
	return dir
}

// A pool whose broker has lost the end of the records runs nothing again that
// has a result, loses no job, and says what it found.
func TestRecordsThatWereLost(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			srv := jobstest.Start(t)
			p := openOn(t, srv.Connect(), dispatcher.Hooks{})
			const many = 30
			var ids []string
			for range many {
				answer, err := p.Submit(t.Context(), job(), "test")
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, answer.ID)
			}
			srv.Down()
			before := filepath.Join(t.TempDir(), "before")
			if err := os.CopyFS(before, os.DirFS(recordsOf(t, srv.Dir()))); err != nil {
				t.Fatal(err)
			}
			srv.Up()
			ended := map[string]jobs.Record{}
			for n := range many - 10 { // all ways in which an attempt ends, and none at all for the rest
				rec := p.work(t, jobs.Ended{Outcome: jobs.Success}, n%2 == 0)
				ended[rec.ID] = rec
			}
			cancelled, err := p.queue.Cancel(jobstest.Context(t), p.open(t, ids, ended), "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.log.Finish(jobstest.Context(t), cancelled, cancelled.Result()); err != nil {
				t.Fatal(err)
			}
			ended[cancelled.ID] = cancelled
			srv.Down()
			lose(t, recordsOf(t, srv.Dir()), before)
			srv.Up()

			lost, err := p.Audit(jobstest.Context(t), false)
			if err != nil || len(lost) == 0 || lost[0].Fixed {
				t.Fatalf("looked at: %d losses, %v", len(lost), err)
			}
			p.serve(t)
			eventually(t, "every job has its record", func() bool {
				left, err := p.Audit(t.Context(), true) // who leads does so, too, now and then
				all, listErr := p.queue.List(t.Context(), record.Filter{})
				return err == nil && listErr == nil && len(left) == 0 && len(all) == many
			})
			for id, was := range ended {
				rec, err := p.queue.Get(jobstest.Context(t), id)
				if err != nil || rec.State != jobs.Finished || rec.Outcome != was.Outcome || rec.Attempt != was.Attempt {
					t.Errorf("job %s: %s %s, attempt %d, %v; want finished %s, attempt %d", id, rec.State, rec.Outcome, rec.Attempt, err, was.Outcome, was.Attempt)
				}
				if res, err := p.store.Result(jobstest.Context(t), rec); err != nil || was.Outcome == jobs.Success && res.Message != "of "+id {
					t.Errorf("result of job %s: %+v, %v", id, res, err)
				}
			}
			for range many - len(ended) {
				rec := p.work(t, jobs.Ended{Outcome: jobs.Success}, true)
				if _, again := ended[rec.ID]; again {
					t.Errorf("job %s ran again", rec.ID)
				}
				ended[rec.ID] = rec
			}
			if len(ended) != many {
				t.Errorf("%d jobs ran, want %d", len(ended), many)
			}
		})
	}
}

// open is a job that has not ended.
func (p pool) open(t *testing.T, ids []string, ended map[string]jobs.Record) string {
	t.Helper()
	for _, id := range ids {
		if _, over := ended[id]; !over {
			return id
		}
	}
	t.Fatal("all have ended")
	return ""
}

// work runs one job as a worker does. A worker that dies does so when the result is
// stored and the end is written, before it could write to the session.
func (p pool) work(t *testing.T, end jobs.Ended, tells bool) jobs.Record {
	t.Helper()
	ctx := jobstest.Context(t)
	claim := jobstest.Claim(t, p.queue, "w1")
	rec := claim.Record()
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()}
	if _, err := p.log.Writer(ctx, src, event.New(event.JobClaimed{})); err != nil {
		t.Fatal(err)
	}
	res := rec.Result()
	res.Outcome, res.Message = end.Outcome, "of "+rec.ID
	end.Message = res.Message
	if err := p.store.PutResult(ctx, claim.Epoch(), res); err != nil {
		t.Fatal(err)
	}
	settled, err := claim.Settle(ctx, end, nil)
	if err == nil && tells {
		err = p.log.Finish(ctx, settled, res)
	}
	if err != nil {
		t.Fatal(err)
	}
	return settled
}
