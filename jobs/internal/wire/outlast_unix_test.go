//go:build unix

package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A list may take the broker long. One that was asked of a broker that died is asked of the
// next one as soon as that is there.
func TestAListOutlastsABroker(t *testing.T) {
	t.Parallel()
	server := jobstest.Child(t)
	conn, err := wire.New(jobstest.Connect(t, server.URL()), jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	if _, err := conn.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JS.Publish(ctx, "s.a", nil); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	began, done := time.Now(), make(chan error, 1)
	go func() {
		all, err := conn.Subjects(ctx, "S", "s.*")
		if err == nil && all["s.a"] != 1 {
			err = fmt.Errorf("got %v", all)
		}
		done <- err
	}()
	time.Sleep(300 * time.Millisecond) // it has asked
	server.Kill()
	server.Up()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*wire.Patience { // it has 15
		t.Errorf("it has waited %v for an answer that could not come", took)
	}
}
