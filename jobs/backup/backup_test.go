package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

const lease = 2 * time.Second

// A pool is a broker with all that a pool has on it.
type pool struct {
	*testing.T
	nc    *nats.Conn
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
}

func open(t *testing.T, nc *nats.Conn) *pool {
	t.Helper()
	p := &pool{T: t, nc: nc, log: jobstest.Log(t, nc), store: jobstest.Store(t, nc)}
	p.queue = jobstest.Queue(t, nc, queue.Config{Lease: lease, Finished: func(ctx context.Context, rec jobs.Record) error {
		return p.log.Finish(ctx, rec, rec.Result())
	}})
	return p
}

func (p *pool) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func keyed(key string) jobs.Job {
	job := jobstest.Job()
	job.Key = key
	return job
}

// work claims a job and does it: events, a patch, the result, the end.
func (p *pool) work(ctx context.Context, worker string) (jobs.Record, error) {
	c, err := p.queue.Claim(ctx, worker, []string{"default"})
	if err != nil {
		return jobs.Record{}, err
	}
	rec := c.Record()
	w, err := p.log.Writer(ctx, session.Source{Job: rec.ID, Session: rec.Session, Agent: "command", Attempt: rec.Attempt, Epoch: rec.Epoch},
		event.New(event.JobClaimed{}))
	if err != nil {
		return rec, err
	}
	if err := w.Append(ctx, event.New(event.OutputLine{Text: "of " + rec.ID})); err != nil {
		return rec, err
	}
	if _, err := p.store.Put(ctx, rec.ID, rec.Epoch, "changes.patch", bytes.NewReader([]byte("patch of "+rec.ID))); err != nil {
		return rec, err
	}
	return c.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, func(ctx context.Context, rec jobs.Record) error {
		return p.log.Finish(ctx, rec, rec.Result())
	})
}

// file takes a backup to a file.
func (p *pool) file() (string, backup.Manifest) {
	p.Helper()
	path := filepath.Join(p.TempDir(), "pool.backup")
	f, err := os.Create(path)
	p.must(err)
	m, err := backup.Write(jobstest.Context(p), p.nc, f, backup.Config{Release: "test", Prefix: "penstock.v1"})
	p.must(errors.Join(err, f.Close()))
	return path, m
}

// restored is the pool of a backup on a broker of its own.
func restored(t *testing.T, path string) *pool {
	t.Helper()
	s := jobstest.Start(t)
	nc := s.Connect()
	f, err := backup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Restore(jobstest.Context(t), nc, 1, nil); err != nil {
		t.Fatal(err)
	}
	s.Restart() // as it is what comes next
	p := open(t, nc)
	p.must(p.queue.Conclude(jobstest.Context(t), f.Taken.Add(-time.Hour)))
	return p
}

// repair does what a dispatcher does every few seconds, until all has ended.
func (p *pool) repair(ctx context.Context) {
	for ctx.Err() == nil {
		stranded, err := p.queue.Stranded(ctx)
		if err == nil {
			for _, rec := range stranded {
				_ = p.queue.Enqueue(ctx, rec) // tried again
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lease / 4):
		}
	}
}

// A pool that is restored goes on from where it was: what waited is claimed,
// what ran is taken over, what had ended has its result, keys are known, and a
// worker that knows the pool of before is fenced.
func TestARestoredPoolGoesOn(t *testing.T) {
	before := open(t, jobstest.Start(t).Connect())
	ctx := jobstest.Context(t)
	jobstest.Submit(t, before.queue, keyed("done"))
	done, err := before.work(ctx, "w")
	before.must(err)
	running := jobstest.Submit(t, before.queue, keyed("runs"))
	claim := jobstest.Claim(t, before.queue, "old")
	waiting := jobstest.Submit(t, before.queue, keyed("waits"))
	path, m := before.file()
	if m.Jobs[jobs.Finished] != 1 || m.Jobs[jobs.Executing] != 1 || m.Jobs[jobs.Pending] != 1 {
		t.Errorf("the manifest counts %v", m.Jobs)
	}

	after := restored(t, path)
	for _, want := range []jobs.Record{done, running, waiting} {
		rec, err := after.queue.Get(ctx, want.ID)
		after.must(err)
		if want.ID == done.ID && (rec.State != jobs.Finished || rec.Epoch != done.Epoch) {
			t.Errorf("what had ended is %s, epoch %d; want %d", rec.State, rec.Epoch, done.Epoch)
		}
		again, duplicate, err := after.queue.Accept(ctx, keyed(want.Key))
		if err != nil || !duplicate || again.ID != want.ID {
			t.Errorf("key %s leads to %s, duplicate %v, %v; want %s", want.Key, again.ID, duplicate, err, want.ID)
		}
	}
	after.result(done)
	// A worker that knows nothing of the restore is not believed.
	old := open(t, after.nc)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var g sync.WaitGroup
	g.Go(func() { after.repair(stop) })
	for range 2 {
		rec, err := after.work(ctx, "new")
		after.must(err)
		if rec.ID == running.ID && (rec.Attempt != 2 || rec.Epoch <= claim.Epoch()+1<<19) {
			t.Errorf("what ran is done in attempt %d, epoch %d, after epoch %d", rec.Attempt, rec.Epoch, claim.Epoch())
		}
		old.result(rec)
	}
	cancel()
	g.Wait()
}

// result fails unless a job's patch and all of its events are there.
func (p *pool) result(rec jobs.Record) {
	p.Helper()
	ctx := jobstest.Context(p)
	r, err := p.store.Get(ctx, rec.ID, rec.Epoch, "changes.patch")
	p.must(err)
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "patch of "+rec.ID {
		p.Errorf("the patch of job %s is %q, %v", rec.ID, text, err)
	}
	seq, ends := uint64(0), 0
	for e, err := range p.log.Read(ctx, rec.Session, 1) {
		p.must(err)
		if seq++; e.Seq != seq {
			p.Errorf("session %s: event %d is numbered %d", rec.Session, seq, e.Seq)
		}
		if e.Kind == jobs.JobFinished {
			ends++
		}
	}
	if ends != 1 {
		p.Errorf("job %s has ended %d times", rec.ID, ends)
	}
}

// Backups are taken while jobs come in, run and end as fast as they can. Each
// of them is a pool of one moment: whatever its records say has ended is there
// with everything, once, and all the others get done.
func TestABackupIsOfOneMoment(t *testing.T) {
	before := open(t, jobstest.Start(t).Connect())
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var g sync.WaitGroup
	for range 2 {
		g.Go(func() {
			for ctx.Err() == nil {
				rec, _, err := before.queue.Accept(ctx, jobstest.Job())
				if err == nil {
					err = before.queue.Enqueue(ctx, rec)
				}
				if err == nil {
					_, err = before.work(ctx, "w")
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			}
		})
	}
	var files []string
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		path, _ := before.file()
		files = append(files, path)
	}
	stop()
	g.Wait()
	for _, path := range files {
		after := restored(t, path)
		list, err := after.queue.List(jobstest.Context(t), record.Filter{})
		after.must(err)
		if len(list) == 0 {
			t.Error("there are no jobs")
		}
		for _, rec := range list {
			if rec.State == jobs.Finished {
				after.result(rec)
				continue
			}
			for e, err := range after.log.Read(jobstest.Context(t), rec.Session, 1) {
				after.must(err)
				if e.Kind == jobs.JobFinished {
					t.Errorf("job %s is %s, and has ended", rec.ID, rec.State)
				}
			}
		}
	}
}

// A file that is cut off or was changed anywhere is refused.
func TestABrokenFile(t *testing.T) {
	p := open(t, jobstest.Start(t).Connect())
	jobstest.Submit(t, p.queue, keyed("k"))
	path, _ := p.file()
	whole, err := os.ReadFile(path)
	p.must(err)
	broken := filepath.Join(t.TempDir(), "broken")
	refused := func(what string, data []byte) {
		t.Helper()
		p.must(os.WriteFile(broken, data, 0o600))
		f, err := backup.Open(broken)
		if _, ok := errors.AsType[*backup.BrokenError](err); !ok {
			t.Errorf("%s: %v, want it refused", what, err)
		}
		if err == nil {
			p.must(f.Close())
		}
	}
	for range 20 {
		at := rand.IntN(len(whole))
		refused("cut off", whole[:at])
	}
	f, err := backup.Open(path)
	p.must(err)
	defer f.Close()
	for _, s := range f.Streams { // whose names are in clear
		at := bytes.Index(whole, []byte("streams/"+s.Name)) + len("streams/"+s.Name)
		changed := bytes.Clone(whole)
		changed[at+4] ^= 1
		refused("changed in "+s.Name, changed)
	}
	refused("no backup", []byte("hello"))
}

// What a broker holds is found, and can be removed.
func TestOccupied(t *testing.T) {
	p := open(t, jobstest.Start(t).Connect())
	ctx := jobstest.Context(t)
	if found, err := backup.Occupied(ctx, p.nc); err != nil || len(found) > 0 {
		t.Errorf("a new pool holds %v, %v", found, err)
	}
	jobstest.Submit(t, p.queue, jobstest.Job())
	path, _ := p.file()
	if found, err := backup.Occupied(ctx, p.nc); err != nil || len(found) == 0 {
		t.Errorf("a pool with a job holds %v, %v", found, err)
	}
	f, err := backup.Open(path)
	p.must(err)
	defer f.Close()
	if err := f.Restore(ctx, p.nc, 1, nil); err == nil {
		t.Error("it was restored over what there is")
	}
	p.must(backup.Clear(ctx, p.nc))
	if found, err := backup.Occupied(ctx, p.nc); err != nil || len(found) > 0 {
		t.Errorf("a pool that was cleared holds %v, %v", found, err)
	}
	p.must(f.Restore(ctx, p.nc, 1, nil))
}

// A broker that has never had a pool has no process at work, and is empty.
func TestABrokerWithoutAPool(t *testing.T) {
	ctx, nc := jobstest.Context(t), jobstest.Start(t).Connect()
	if running, err := backup.Running(ctx, nc); err != nil || len(running) > 0 {
		t.Errorf("at work: %v, %v", running, err)
	}
	if found, err := backup.Occupied(ctx, nc); err != nil || len(found) > 0 {
		t.Errorf("holds %v, %v", found, err)
	}
	if err := backup.Clear(ctx, nc); err != nil {
		t.Error(err)
	}
}

// A restored pool accepts the tokens of the one before, and has forgotten none that was
// removed.
func TestTokensAreRestored(t *testing.T) {
	t.Parallel()
	before := open(t, jobstest.Start(t).Connect())
	tokens, ctx := jobstest.Tokens(t, before.nc), jobstest.Context(t)
	secrets := map[string]token.Secret{"kept": token.New(), "removed": token.New()}
	for name, secret := range secrets {
		_, err := tokens.Add(ctx, operation.TokenRequest{Name: name, Role: jobs.RoleViewer, Hash: secret.Hash()}, "test")
		before.must(err)
	}
	before.must(tokens.Remove(ctx, "removed"))
	path, _ := before.file()

	verifier := token.NewVerifier(jobstest.Tokens(t, restored(t, path).nc), token.VerifierConfig{})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- verifier.Run(running) }()
	for {
		who, err := verifier.Verify(secrets["kept"].Reveal())
		if err == nil && who.Name == "kept" || ctx.Err() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := verifier.Verify(secrets["kept"].Reveal()); err != nil {
		t.Errorf("the token that was kept: %v", err)
	}
	if _, err := verifier.Verify(secrets["removed"].Reveal()); !errors.Is(err, token.ErrRefused) {
		t.Errorf("the token that was removed: %v", err)
	}
	stop()
	before.must(<-done)
}
