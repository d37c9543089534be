package wire_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// Who follows a whole stream reads what comes at once without batches, in each of which the
// broker counts what is left. Each value that was not replaced is seen, once and in order.
func TestATailReadsBurstsWithoutBatches(t *testing.T) {
	t.Parallel()
	nc, conn := rung(t)
	var batches atomic.Int32
	if _, err := nc.Subscribe("$JS.API.DIRECT.GET.S", func(msg *nats.Msg) {
		if strings.Contains(string(msg.Data), `"batch"`) {
			batches.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	const bursts, keys = 30, 20
	burst := 0
	publish := func() {
		burst++
		for key := range keys {
			// Every third key is replaced at once.
			for n := range 1 + (key%3)/2 {
				if _, err := conn.JS.PublishAsync(fmt.Sprintf("s.%d", key), fmt.Appendf(nil, "%d.%d", burst, n), jetstream.WithStallWait(jobstest.Patience)); err != nil {
					t.Error(err)
				}
			}
		}
		<-conn.JS.PublishAsyncComplete()
	}
	last := map[string]string{}
	at, before, began := uint64(0), int32(0), false
	for m, err := range conn.Tail(jobstest.Context(t), wire.Range{Stream: "S", Subject: ">"}, "rung.>", func() bool {
		if !began {
			began, before = true, batches.Load()
			publish()
			return true
		}
		for key := range keys {
			if !strings.HasPrefix(last[fmt.Sprintf("s.%d", key)], fmt.Sprint(burst, ".")) {
				return true // not all of the burst has come
			}
		}
		if burst == bursts {
			return false
		}
		publish()
		return true
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Seq <= at {
			t.Fatalf("the message %d came after %d", m.Seq, at)
		}
		at, last[m.Subject] = m.Seq, string(m.Data)
	}
	for key := range keys {
		if got, want := last[fmt.Sprintf("s.%d", key)], fmt.Sprintf("%d.%d", bursts, (key%3)/2); got != want {
			t.Errorf("key %d: last %q, want %q", key, got, want)
		}
	}
	// Its own look, every two seconds, is one.
	if n := batches.Load() - before; n > bursts/3 {
		t.Errorf("%d bursts were read by %d batches", bursts, n)
	}
}
