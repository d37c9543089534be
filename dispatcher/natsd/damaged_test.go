package natsd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A power cut tears the state of a consumer that is not synced. The consumer is there after
// it, and hands out what was not acknowledged.
func TestTheTornStateOfAConsumer(t *testing.T) {
	t.Parallel()
	for name, tear := range map[string]func([]byte) []byte{
		"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
		"half":  func(b []byte) []byte { return b[:len(b)/2] },
		"none":  func(b []byte) []byte { return b[:0] },
		"whole": func(b []byte) []byte { return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, natsd.Config{StoreDir: dir, Owner: "test"})
			consumer := consumerOf(t, s)
			first := next(t, consumer)
			if err := first.DoubleAck(jobstest.Context(t)); err != nil || string(first.Data()) != "0" {
				t.Fatalf("got %q, err %v", first.Data(), err)
			}
			next(t, consumer) // and is not acknowledged
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			torn := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.Name() != "o.dat" {
					return err
				}
				torn++
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				return os.WriteFile(path, tear(data), 0o600)
			})
			if err != nil || torn != 1 {
				t.Fatal(torn, err)
			}
			s = open(t, natsd.Config{StoreDir: dir, Owner: "test"})
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			got := map[string]bool{}
			for consumer := consumerOf(t, s); len(got) < 2; {
				m := next(t, consumer)
				got[string(m.Data())] = true
				if err := m.DoubleAck(jobstest.Context(t)); err != nil {
					t.Fatal(err)
				}
			}
			if !got["1"] || !got["2"] {
				t.Errorf("got %v", got)
			}
		})
	}
}

// consumerOf returns the consumer of a stream that has three messages.
func consumerOf(t *testing.T, s *natsd.Server) jetstream.Consumer {
	t.Helper()
	js, ctx := stream(t, s), jobstest.Context(t)
	if _, err := js.Stream(ctx, "S"); err != nil {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
			t.Fatal(err)
		}
		for _, data := range []string{"0", "1", "2"} {
			if _, err := js.Publish(ctx, "s", []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := js.CreateOrUpdateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(jobstest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
