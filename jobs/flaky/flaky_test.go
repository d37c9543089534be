package flaky_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

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
