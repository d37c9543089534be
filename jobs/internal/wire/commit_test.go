package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// writers is more than the broker allows batches at once.
const writers = 200

// bucket makes a bucket and returns a way to write to its keys.
func bucket(t *testing.T, url string) (c *wire.Conn, write func(key string, expect uint64, value string) (uint64, error)) {
	t.Helper()
	c, err := wire.New(jobstest.Connect(t, url), jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Assets().Ensure(jobstest.Context(t), wire.BucketAsset(jetstream.KeyValueConfig{Bucket: "b"}), false); err != nil {
		t.Fatal(err)
	}
	return c, func(key string, expect uint64, value string) (uint64, error) {
		return c.Put(jobstest.Context(t), wire.Write{Stream: "KV_b", Subject: "$KV.b." + key, Data: []byte(value), Expect: expect})
	}
}

func last(t *testing.T, c *wire.Conn, key string) wire.Message {
	t.Helper()
	m, err := c.Last(jobstest.Context(t), "KV_b", "$KV.b."+key)
	if err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	return m
}

// batched reports whether a message was stored as a part of a batch.
func batched(m wire.Message) bool { return m.Header.Get("Nats-Batch-Id") != "" }

func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// Writes that come at the same time share batches, each learns its own sequence, and one
// that comes alone does not wait.
func TestWritesAtTheSameTimeAreCommittedTogether(t *testing.T) {
	t.Parallel()
	c, write := bucket(t, jobstest.Start(t).URL())
	if _, err := write("alone", 0, "x"); err != nil {
		t.Fatal(err)
	}
	if batched(last(t, c, "alone")) {
		t.Error("a write that came alone is in a batch")
	}
	const rounds = 10
	var shared atomic.Int32
	atOnce(writers, func(i int) {
		key, seq := "k"+strconv.Itoa(i), uint64(0)
		for round := range rounds {
			value := fmt.Sprint(i, " ", round)
			next, err := write(key, seq, value)
			if err != nil {
				t.Errorf("write %s: %v", key, err)
				return
			}
			m := last(t, c, key)
			if m.Seq != next || string(m.Data) != value {
				t.Errorf("%s is %q at %d, want %q at %d", key, m.Data, m.Seq, value, next)
			}
			if batched(m) {
				shared.Add(1)
			}
			seq = next
		}
	})
	if n := shared.Load(); n < writers {
		t.Errorf("%d of %d writes were in batches, want most", n, writers*rounds)
	}
}

// A write that expects what is not there fails alone, whoever shares its batch.
func TestAConflictConcernsOneWrite(t *testing.T) {
	t.Parallel()
	c, write := bucket(t, jobstest.Start(t).URL())
	atOnce(writers, func(i int) {
		key, wrong := "k"+strconv.Itoa(i), i%7 == 0
		expect := uint64(0)
		if wrong {
			expect = 1 << 40
		}
		switch _, err := write(key, expect, key); {
		case wrong && !errors.Is(err, wire.ErrConflict):
			t.Errorf("%s expects what is not there: %v, want a conflict", key, err)
		case !wrong && err != nil:
			t.Errorf("%s: %v", key, err)
		case !wrong && string(last(t, c, key).Data) != key:
			t.Errorf("%s was not stored", key)
		}
	})
}

// Two writes of one subject that come at the same time are not in one batch: one of them
// is told of the other.
func TestOneOfTwoWritesOfASubjectConflicts(t *testing.T) {
	t.Parallel()
	_, write := bucket(t, jobstest.Start(t).URL())
	won := make([]atomic.Int32, writers/2)
	atOnce(writers, func(i int) {
		key := i / 2
		switch _, err := write("k"+strconv.Itoa(key), 0, strconv.Itoa(i)); {
		case err == nil:
			won[key].Add(1)
		case !errors.Is(err, wire.ErrConflict):
			t.Error(err)
		}
	})
	for key := range won {
		if n := won[key].Load(); n != 1 {
			t.Errorf("%d writes of k%d were stored, want 1", n, key)
		}
	}
}

// While the broker is killed again and again, each write is known to be stored, or not.
func TestCommitsOutlastABroker(t *testing.T) {
	t.Parallel()
	server := jobstest.Child(t)
	c, write := bucket(t, server.URL())
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			key, seq := "k"+strconv.Itoa(i), uint64(0)
			for n := 1; ; n++ {
				select {
				case <-done:
					if m := last(t, c, key); string(m.Data) != strconv.Itoa(n-1) {
						t.Errorf("%s is %s, want %d: each of its writes was acknowledged once", key, m.Data, n-1)
					}
					return
				default:
				}
				next, err := write(key, seq, strconv.Itoa(n))
				if err != nil {
					t.Errorf("write %d of %s: %v", n, key, err)
					return
				}
				seq = next
			}
		})
	}
	for range 4 {
		time.Sleep(300 * time.Millisecond) // some writes in between; none is waited for
		server.Kill()
		server.Up()
	}
	close(done)
	all.Wait()
}

// A write that is given up while it waits for its turn is not stored later.
func TestAWriteThatWasGivenUpIsNotStored(t *testing.T) {
	t.Parallel()
	server := jobstest.Child(t)
	c, write := bucket(t, server.URL())
	server.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			key := "k" + strconv.Itoa(i)
			if _, err := c.Put(ctx, wire.Write{Stream: "KV_b", Subject: "$KV.b." + key, Data: []byte("x")}); !errors.Is(err, jobs.ErrUnavailable) {
				t.Errorf("%s: %v, want that the broker is away", key, err)
			}
		})
	}
	cancel()
	all.Wait()
	server.Up()
	if _, err := write("after", 0, "y"); err != nil {
		t.Error(err)
	}
}
