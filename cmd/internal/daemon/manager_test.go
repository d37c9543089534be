package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// listen is a service manager: it passes on each message that it gets.
func listen(t *testing.T) (serviceManager, <-chan string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1000)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return // it was closed
			}
			got <- string(buf[:n])
		}
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-read
	})
	return serviceManager{socket: name}, got
}

// next returns the next message that is no sign of life.
func next(t *testing.T, got <-chan string) string {
	t.Helper()
	for {
		select {
		case state := <-got:
			if state != "WATCHDOG=1" {
				return state
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no message within 30 s")
		}
	}
}

// A service manager hears when a service is ready, that it is alive, also while it drains,
// and when it stops, with the time that this may take.
func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	shell := call(t)
	shell.Config.Worker.Drain = 2 * time.Hour
	monitor := NewMonitor(shell, Dispatcher, 1)
	manager, got := listen(t)
	manager.watchdog = 30 * time.Millisecond
	monitor.manager = manager
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	drained, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- monitor.Run(ctx, p, nil, func(context.Context) error { <-drained; return nil }) }()
	if state := next(t, got); state != "READY=1" {
		t.Errorf("the first message is %q", state)
	}
	sign := func(when string) {
		t.Helper()
		waitFor(t, "a sign of life "+when, func() bool { return <-got == "WATCHDOG=1" })
	}
	sign("while it runs")
	stop()
	if state, want := next(t, got), "STOPPING=1\nEXTEND_TIMEOUT_USEC="+strconv.Itoa(2*60*60*1e6+60*1e6); state != want {
		t.Errorf("at the end it says %q, want %q", state, want)
	}
	sign("while it drains")
	close(drained)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A service that does not work sends no sign of life, whether its check fails or hangs, and
// its log says why. When it works again, the signs come back.
func TestNoSignOfLifeWithoutLife(t *testing.T) {
	t.Parallel()
	manager, got := listen(t)
	manager.watchdog = 90 * time.Millisecond
	var checks []func(context.Context) error
	for range 3 {
		checks = append(checks,
			func(context.Context) error { return errors.New("it is broken") },
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}
	dead := len(checks)
	checks = append(checks, func(context.Context) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	called, ended := 0, make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		manager.keepAlive(ctx, func(ctx context.Context) error {
			check := checks[min(called, dead)]
			called++
			return check(ctx)
		}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	if state := <-got; state != "WATCHDOG=1" {
		t.Errorf("got %q", state)
	}
	stop()
	<-ended
	if called <= dead {
		t.Errorf("the first sign of life came after %d checks, of which %d fail", called, dead)
	}
	if said := strings.Count(log.String(), "level=ERROR"); said != dead || !strings.Contains(log.String(), "it is broken") {
		t.Errorf("%d errors are logged, want %d:\n%s", said, dead, log.String())
	}
}

// What names the service manager is taken from the environment, so that programs that the
// service starts do not report in its name. A watchdog for another process is not ours.
func TestTheServiceManagerOfTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		name, pid, usec string
		want            time.Duration
	}{
		{"of this process", strconv.Itoa(os.Getpid()), "3000000", 3 * time.Second},
		{"of any process", "", "3000000", 3 * time.Second},
		{"of another process", "1", "3000000", 0},
		{"none", "", "", 0},
		{"nonsense", "", "-5", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", "/run/notify")
			t.Setenv("WATCHDOG_PID", test.pid)
			t.Setenv("WATCHDOG_USEC", test.usec)
			if got := takeServiceManager(); got != (serviceManager{socket: "/run/notify", watchdog: test.want}) {
				t.Errorf("got %+v, want a watchdog of %v", got, test.want)
			}
			if slices.ContainsFunc(os.Environ(), func(kv string) bool {
				return strings.HasPrefix(kv, "NOTIFY_") || strings.HasPrefix(kv, "WATCHDOG_")
			}) {
				t.Error("programs that this one starts inherit it")
			}
		})
	}
}

// A process whose own broker does not answer has to be started anew. One whose broker is
// elsewhere has not: it waits.
func TestAlive(t *testing.T) {
	t.Parallel()
	shell := call(t)
	own, err := pool.Open(t.Context(), shell, "serve", pool.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pool.Open(t.Context(), shell, "read", pool.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := alive(t.Context(), own); err != nil {
		t.Errorf("while it works: %v", err)
	}
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := alive(ctx, own); err == nil {
		t.Error("its broker has ended, and it is alive")
	}
	if err := alive(ctx, other); err != nil {
		t.Errorf("that of another process has ended: %v", err)
	}
}
