package flaky_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProxy(t *testing.T) {
	s := jobstest.Start(t)
	p := s.Proxy()
	nc := jobstest.Connect(t, p.URL())
	if err := nc.FlushTimeout(jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	if err := nc.FlushTimeout(100 * time.Millisecond); err == nil {
		t.Error("a muted proxy let an answer through")
	}
	p.Heal()
	deadline := time.Now().Add(jobstest.Patience)
	for nc.FlushTimeout(100*time.Millisecond) != nil {
		if time.Now().After(deadline) {
			t.Fatal("a healed proxy lets nothing through")
		}
	}
	p.Cut()
	if err := nc.FlushTimeout(100 * time.Millisecond); err == nil {
		t.Error("a cut proxy let an answer through")
	}
}

// A server that is far away answers later, and many questions as late as one.
func TestMove(t *testing.T) {
	p := jobstest.Start(t).Proxy()
	nc := jobstest.Connect(t, p.URL())
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	const far = 100 * time.Millisecond
	p.Move(flaky.Distance{RoundTrip: far})
	began := time.Now()
	if err := nc.FlushTimeout(jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < far {
		t.Errorf("a round trip took %v, want %v at least", took, far)
	}
	// Some pieces are late, and what is behind them waits: nothing is lost, and the order stays.
	p.Move(flaky.Distance{RoundTrip: 4 * time.Millisecond, Stalls: 0.3, Shortest: time.Millisecond, Longest: 20 * time.Millisecond})
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	const many = 100
	for n := range many {
		if err := nc.PublishRequest("echo", inbox.Subject, []byte(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that there are many pieces
	}
	for n := range many {
		m, err := inbox.NextMsg(jobstest.Patience)
		if err != nil || string(m.Data) != strconv.Itoa(n) {
			t.Fatalf("answer %d: %v, %v", n, m, err)
		}
	}
}
