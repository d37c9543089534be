package backup

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// In a cluster, the server of a connection may hear of the chunks' subscriber
// later than the client: until then it answers that there are no responders.
func TestAChunkWaitsForItsTaker(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	taken := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		_, err := nc.Subscribe("chunks", func(m *nats.Msg) { taken <- m.Respond([]byte("+OK")) })
		if err != nil {
			taken <- err
		}
	}()
	answer, err := ask(t.Context(), nc, "chunks", []byte("chunk"))
	if err != nil || string(answer) != "+OK" {
		t.Fatalf("answered %q, %v", answer, err)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

// A consumer is removed also if the answer to a first request was lost.
func TestRemoveAConsumerTwice(t *testing.T) {
	t.Parallel()
	conn, err := wire.New(jobstest.Start(t).Connect(), jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	stream := wire.StreamAsset(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err := conn.Assets().Ensure(ctx, stream, false); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JS.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Name: "counts"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := removeConsumer(ctx, conn, "S", "counts"); err != nil {
			t.Error(err)
		}
	}
	if err := removeConsumer(ctx, conn, "T", "counts"); err == nil {
		t.Error("there is no such stream")
	}
}
