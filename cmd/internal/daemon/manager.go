package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
)

// A serviceManager is systemd, where it has started this process by a unit of
// Type=notify: it wants to know when the service is ready, when it stops, and that it
// still works. The zero value is none, which is told nothing.
type serviceManager struct {
	socket string // takes messages
	// watchdog is the time in which it wants a sign of life, or kills the process; 0 is
	// for ever.
	watchdog time.Duration
}

// takeServiceManager finds the service manager by the environment, and removes it from
// there: programs that this one starts, such as an engine's client, would report as if
// they were the service.
func takeServiceManager() serviceManager {
	m := serviceManager{socket: os.Getenv("NOTIFY_SOCKET")}
	pid := os.Getenv("WATCHDOG_PID")
	if pid == "" || pid == strconv.Itoa(os.Getpid()) {
		usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
		if err == nil && usec > 0 {
			m.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		_ = os.Unsetenv(name) // it fails for no name that exists
	}
	return m
}

// tell sends a state, as sd_notify(3) has it.
func (m serviceManager) tell(state string) error {
	if m.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// stopping says that the service stops, and that this may take as long as running jobs may
// continue: without it the unit's TimeoutStopSec would cut a longer drain short.
func (m serviceManager) stopping(within time.Duration) error {
	return m.tell(fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// keepAlive sends signs of life as long as the process is alive, until ctx ends. It sends
// none while alive fails or does not return, so that the service is started anew.
func (m serviceManager) keepAlive(ctx context.Context, alive func(context.Context) error, log *slog.Logger) {
	if m.socket == "" || m.watchdog == 0 {
		return
	}
	tick := time.NewTicker(m.watchdog / 3)
	defer tick.Stop()
	for {
		limited, done := context.WithTimeout(ctx, m.watchdog/3)
		err := alive(limited)
		done()
		if err == nil {
			err = m.tell("WATCHDOG=1")
		}
		if err != nil && ctx.Err() == nil {
			log.Error("no sign of life is sent to the service manager", "watchdog", m.watchdog, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// noJob is the id of no job.
const noJob = "00000000-0000-0000-0000-000000000000"

// alive returns an error if this process has to be started anew: its own broker does not
// answer from its store. A broker of another process comes back without that.
func alive(ctx context.Context, p *pool.Pool) error {
	if !p.Own() {
		return nil
	}
	// A read, since a full disk refuses writes and is no reason to end what runs.
	if _, err := p.Queue.Get(ctx, noJob); err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("the broker of this process does not answer: %w", err)
	}
	return nil
}
