package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

func text(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }

func get(tb testing.TB, s *artifact.Store, job string, epoch uint64, name string) []byte {
	tb.Helper()
	r, err := s.Get(jobstest.Context(tb), job, epoch, name)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestPutGetList(t *testing.T) {
	srv := jobstest.Start(t)
	s := jobstest.Store(t, srv.Connect())
	job := jobs.NewID()
	for name, data := range map[string][]byte{"empty": nil, "patch": text(160), "agent.log": text(3 << 20)} {
		// A reader that gives little at a time, as a pipe does.
		a, err := s.Put(jobstest.Context(t), job, 7, name, iotest.HalfReader(bytes.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if want := (jobs.Artifact{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}); a != want {
			t.Errorf("stored %+v, want %+v", a, want)
		}
		if got := get(t, s, job, 7, name); !bytes.Equal(got, data) {
			t.Errorf("%s: read %d bytes, want %d", name, len(got), len(data))
		}
	}
	// Another attempt has a place of its own.
	if _, err := s.Put(jobstest.Context(t), job, 8, "patch", strings.NewReader("second")); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, job, 7, "patch"); len(got) != 160 {
		t.Errorf("the first attempt's patch has %d bytes, want 160", len(got))
	}
	list, err := s.List(jobstest.Context(t), job, 7)
	if err != nil || len(list) != 3 || list[0].Name != "agent.log" || list[2].Name != "patch" {
		t.Errorf("list %v, %v; want three by name", list, err)
	}
	epochs, err := s.Epochs(jobstest.Context(t), job)
	if err != nil || len(epochs) != 2 || epochs[0] != 7 {
		t.Errorf("epochs %v, %v; want 7 and 8", epochs, err)
	}
	if _, err := s.Get(jobstest.Context(t), job, 9, "patch"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("get of another epoch: %v, want not found", err)
	}
}

func TestPutReplaces(t *testing.T) {
	srv := jobstest.Start(t)
	s := jobstest.Store(t, srv.Connect())
	job := jobs.NewID()
	for _, data := range []string{"first", "second"} {
		if _, err := s.Put(jobstest.Context(t), job, 1, "log", strings.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(get(t, s, job, 1, "log")); got != "second" {
		t.Errorf("read %q, want the second", got)
	}
	if list, err := s.List(jobstest.Context(t), job, 1); err != nil || len(list) != 1 || list[0].Bytes != 6 {
		t.Errorf("list %v, %v; want one of 6 bytes", list, err)
	}
}

// What the writes of an attempt are counted as is what is there in the end.
func TestStoredBytesAreCounted(t *testing.T) {
	srv := jobstest.Start(t)
	s := jobstest.Store(t, srv.Connect())
	ctx, job := jobstest.Context(t), jobs.NewID()
	var stored int64
	counting := artifact.Counting(s, func(bytes int64) { stored += bytes })
	counts := func(what string, want int64, err error) {
		t.Helper()
		// What is listed and described is small, and has no fixed size.
		if err != nil || stored < want || stored > want+2000 {
			t.Errorf("%s: %d bytes are counted, err %v, want %d and a little more", what, stored, err, want)
		}
	}
	_, err := counting.Put(ctx, job, 7, "patch", bytes.NewReader(text(1<<20)))
	counts("an artifact", 1<<20, err)
	_, err = counting.Put(ctx, job, 7, "patch", bytes.NewReader(text(160)))
	counts("a smaller one in its place", 160, err)
	_, err = counting.Put(ctx, job, 7, "broken", iotest.TimeoutReader(bytes.NewReader(text(1<<20))))
	if err == nil {
		t.Error("half an artifact was stored")
	}
	counts("one that could not be read", 160, nil)
	var capsules [2]jobs.Capsule
	for i := range capsules {
		part, err := counting.PutPart(ctx, job, 7, bytes.NewReader(text(64000*(i+1))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := counting.PutPart(ctx, job, 7, bytes.NewReader(text(64000*(i+1)))); err != nil { // it is there
			t.Fatal(err)
		}
		capsules[i] = jobs.Capsule{Job: job, Epoch: 7, Home: part}
	}
	counts("two parts", 160+64000+128000, counting.PutCapsule(ctx, capsules[0], jobs.Capsule{}))
	counts("the second capsule, without the part of the first", 160+128000, counting.PutCapsule(ctx, capsules[1], capsules[0]))
	if _, err := s.Put(ctx, job, 8, "patch", bytes.NewReader(text(1<<20))); err != nil { // of another attempt
		t.Fatal(err)
	}
	counts("what others store", 160+128000, nil)
}

func TestWhatIsNotWholeIsNotThere(t *testing.T) {
	srv := jobstest.Start(t)
	s, err := artifact.Open(jobstest.Context(t), srv.Connect(), artifact.Config{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	job := jobs.NewID()
	_, err = s.Put(jobstest.Context(t), job, 1, "large", bytes.NewReader(text(2<<20)))
	if large, ok := errors.AsType[*artifact.TooLargeError](err); !ok || large.Max != 1<<20 {
		t.Errorf("put: %v, want too large", err)
	}
	if _, err := s.Put(jobstest.Context(t), job, 1, "whole", bytes.NewReader(text(1<<20))); err != nil {
		t.Errorf("put of just the limit: %v", err)
	}
	broken := errors.New("broken pipe")
	if _, err := s.Put(jobstest.Context(t), job, 1, "broken", io.MultiReader(bytes.NewReader(text(512<<10)), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("put: %v, want the reader's error", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a b", ".hidden", "*", strings.Repeat("x", 200)} {
		if _, err := s.Put(jobstest.Context(t), job, 1, name, strings.NewReader("x")); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	if _, err := s.Put(jobstest.Context(t), "*", 1, "x", strings.NewReader("x")); err == nil {
		t.Error("a job named * was accepted")
	}
	list, err := s.List(jobstest.Context(t), job, 1)
	if err != nil || len(list) != 1 || list[0].Name != "whole" {
		t.Errorf("list %v, %v; want only what is whole", list, err)
	}
	if _, err := s.Get(jobstest.Context(t), job, 1, "large"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("get: %v, want not found", err)
	}
}

func TestPutAcrossRestart(t *testing.T) {
	srv := jobstest.Start(t)
	s := jobstest.Store(t, srv.Connect())
	job := jobs.NewID()
	data := text(8 << 20)
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(data[:5<<20])
		srv.Restart()
		_, _ = w.Write(data[5<<20:])
		w.Close()
	}()
	if _, err := s.Put(jobstest.Context(t), job, 1, "bundle", r); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, job, 1, "bundle"); !bytes.Equal(got, data) {
		t.Error("what was read is not what was written")
	}
}

func TestResult(t *testing.T) {
	srv := jobstest.Start(t)
	s := jobstest.Store(t, srv.Connect())
	now := time.Now().UTC()
	rec := jobs.Record{ID: jobs.NewID(), Item: "17", Epoch: 5, Attempt: 2, Outcome: jobs.Cancellation, Reason: jobs.Cancelled, Submitted: now.Add(-time.Minute), Finished: &now}
	got, err := s.Result(jobstest.Context(t), rec)
	if err != nil || got.ID != "17" || got.Outcome != jobs.Cancellation || got.Attempts != 2 || got.Durations.Total != 60 || got.Checks == nil {
		t.Errorf("result of a job without one: %+v, %v", got, err)
	}
	stored := jobs.Result{ID: "17", Job: rec.ID, Outcome: jobs.Success, Model: "m", Commits: 3}
	if err := s.PutResult(jobstest.Context(t), 5, stored); err != nil {
		t.Fatal(err)
	}
	// Cancelled after its worker had stored a success.
	got, err = s.Result(jobstest.Context(t), rec)
	if err != nil || got.Outcome != jobs.Cancellation || got.Reason != jobs.Cancelled || got.Commits != 3 {
		t.Errorf("result %+v, %v; want the stored one, judged by the record", got, err)
	}
	rec.Epoch = 6
	if got, err = s.Result(jobstest.Context(t), rec); err != nil || got.Commits != 0 {
		t.Errorf("result %+v, %v; want nothing of another epoch", got, err)
	}
}

func TestDamageIsFound(t *testing.T) {
	srv := jobstest.Start(t)
	nc := srv.Connect()
	s := jobstest.Store(t, nc)
	job := jobs.NewID()
	if _, err := s.Put(jobstest.Context(t), job, 1, "bundle", bytes.NewReader(text(1<<20))); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(jobstest.Context(t), "OBJ_ps_artifacts")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(jobstest.Context(t), 2); err != nil { // the second chunk
		t.Fatal(err)
	}
	r, err := s.Get(jobstest.Context(t), job, 1, "bundle")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %d bytes, %v; want that something is missing", n, err)
	}
}
