package natsd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher/natsd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	s, err := natsd.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenFindClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	if _, err := natsd.Find(dir); !errors.Is(err, natsd.ErrNotRunning) {
		t.Errorf("find before open: %v, want not running", err)
	}
	s := open(t, natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve"})
	_, err := natsd.Open(natsd.Config{StoreDir: dir, Owner: "batch run"})
	if used, ok := errors.AsType[*natsd.InUseError](err); !ok || used.PID != os.Getpid() || used.Owner != "serve" {
		t.Errorf("second server: %v, want in use by serve", err)
	}
	e, err := natsd.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Error(err)
	}
	nc.Close()
	if e.Password = "wrong"; true {
		if nc, err := e.Connect(); err == nil {
			nc.Close()
			t.Error("connected with a wrong password")
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "server.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("descriptor: %v, %v; want mode 0600", info, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := natsd.Find(dir); !errors.Is(err, natsd.ErrNotRunning) {
		t.Errorf("find after close: %v, want not running", err)
	}
}
