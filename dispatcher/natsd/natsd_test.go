package natsd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// childDir makes this binary serve that directory until it is killed.
const childDir = "NATSD_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if _, err := natsd.Open(natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve"}); err != nil {
			panic(err)
		}
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	machineMain()
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	s, err := natsd.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenFindClose(t *testing.T) {
	t.Parallel()
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
	e.Password = "wrong"
	if nc, err := e.Connect(); err == nil {
		nc.Close()
		t.Error("connected with a wrong password")
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

func TestInProcessOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, natsd.Config{StoreDir: dir, Owner: "run", Fast: true})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Error(err)
	}
	_, err = natsd.Find(dir)
	if used, ok := errors.AsType[*natsd.InUseError](err); !ok || used.Owner != "run" {
		t.Errorf("find: %v, want in use by run", err)
	}
	nc.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", ":0", "192.0.2.1:4222", "example.com:0"} {
		_, err := natsd.Open(natsd.Config{StoreDir: t.TempDir(), Listen: listen})
		if _, ok := errors.AsType[*natsd.ExposedError](err); !ok {
			t.Errorf("listen on %s: %v, want it refused", listen, err)
		}
	}
	if _, err := natsd.Open(natsd.Config{StoreDir: t.TempDir(), Listen: "nonsense"}); err == nil {
		t.Error("listened on nonsense")
	}
	s := open(t, natsd.Config{StoreDir: t.TempDir(), Listen: "0.0.0.0:0", User: "u", Password: "chosen"})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	if _, err := natsd.Open(natsd.Config{StoreDir: dir, Listen: l.Addr().String()}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("open: %v, want the address in use", err)
	}
	// The directory is free again.
	if err := open(t, natsd.Config{StoreDir: dir}).Close(); err != nil {
		t.Error(err)
	}
}

// A process that is killed leaves a lock file and a descriptor, and neither
// stands in the next server's way.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	defer kill()
	var e natsd.Endpoint
	err := natsd.ErrNotRunning
	for begun := time.Now(); errors.Is(err, natsd.ErrNotRunning) && time.Since(begun) < slowtest.Limit(20*time.Second); time.Sleep(10 * time.Millisecond) {
		e, err = natsd.Find(dir)
	}
	if err != nil || e.PID != cmd.Process.Pid || e.Owner != "serve" {
		t.Fatalf("find: %+v, %v; want process %d", e, err, cmd.Process.Pid)
	}
	nc, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	_, err = natsd.Open(natsd.Config{StoreDir: dir, Owner: "run"})
	if used, ok := errors.AsType[*natsd.InUseError](err); !ok || used.PID != cmd.Process.Pid {
		t.Errorf("second server: %v, want in use by %d", err, cmd.Process.Pid)
	}
	kill()
	if _, err := natsd.Find(dir); !errors.Is(err, natsd.ErrNotRunning) {
		t.Errorf("find after the kill: %v, want not running", err)
	}
	s := open(t, natsd.Config{StoreDir: dir})
	defer s.Close()
	nc, err = s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	str, err := js.Stream(ctx, "S")
	if err != nil || str.CachedInfo().State.Msgs != 1 {
		t.Errorf("stream after the kill: %v, %v; want its message", str, err)
	}
}
