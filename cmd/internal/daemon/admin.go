package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/metrics"
	"github.com/penstock-run/penstock/worker/gate"
)

// ListenAdmin opens the admin address. A default that another penstock has
// taken is replaced by a free port; one that was asked for is not.
func ListenAdmin(address, standard string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && address == standard {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, cli.Fail(cli.ExitUnexpected, `name another one with --admin, or none with --admin ""`, "admin address: %w", err)
	}
	return l, nil
}

// Ready says that a service is ready, with the address of its metrics.
func Ready(shell cli.Shell, admin net.Listener, n servicelog.Notice) {
	if admin != nil {
		address := fmt.Sprintf("http://%s", admin.Addr())
		n.Text += ", metrics at " + address + "/metrics"
		n.Attrs = append(n.Attrs, slog.String("admin", address))
	}
	n.Attrs = append(n.Attrs, slog.String("version", shell.Release), slog.Int("pid", os.Getpid()))
	servicelog.Say(shell, n)
}

// serve shows the metrics and the health at an address until ctx ends, and
// measures the connection, and sends signs of life to the service manager. An empty
// address shows nothing.
func (m *Monitor) serve(ctx context.Context, p *pool.Pool, listener net.Listener) error {
	handler, err := m.adminHandler(p, listener)
	if err != nil {
		return fmt.Errorf("admin address: %w", err)
	}
	if m.dispatcher != nil {
		all := catalog.New(p.Queue)
		m.dispatcher.State(m.registry, func(ctx context.Context) (metrics.State, error) { return state(ctx, p, all) }, 2*time.Second)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { m.measure(ctx, p); return nil })
	g.Go(func() error {
		m.manager.keepAlive(ctx, func(ctx context.Context) error { return alive(ctx, p) }, m.log(p))
		return nil
	})
	if listener != nil {
		g.Go(func() error {
			if err := adminServer(handler).Serve(ctx, listener); err != nil {
				return fmt.Errorf("admin address: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// adminHandler is what the admin address shows; nil where there is none.
func (m *Monitor) adminHandler(p *pool.Pool, listener net.Listener) (http.Handler, error) {
	if listener == nil {
		return nil, nil
	}
	admin := metrics.Admin{Registry: m.registry, Info: m.info, Ready: []metrics.Check{
		{Name: "broker", Test: func(ctx context.Context) error { return p.Conn.FlushWithContext(ctx) }}, {Name: "draining", Test: m.accepting},
	}}
	if m.dispatcher == nil {
		admin.Ready = append(admin.Ready, metrics.Check{Name: "disk", Test: m.roomy})
	} else { // which takes jobs as long as its broker does, whatever its own disk
		admin.Ready = append(admin.Ready, metrics.Check{Name: "store", Test: p.Queue.Room})
	}
	return withLevel(m.shell, p, listener, m.withProfiles(admin.Handler()))
}

// answerWithin is how long a client of the admin address may take for an answer.
const answerWithin = 30 * time.Second

// adminServer serves public information, numbers and whether the service is healthy, and
// what asks for a credential itself.
func adminServer(handler http.Handler) gate.Server {
	return gate.Server{Auth: gate.Public, Connections: 64, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read could hold a connection for ever.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin)) // every connection of ours has one
		handler.ServeHTTP(w, r)
	})}
}
