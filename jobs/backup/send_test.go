package backup

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
