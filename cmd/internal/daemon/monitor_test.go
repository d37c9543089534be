package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/worker/modelkey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a command's shell on a data directory of its own.
func call(t *testing.T) cli.Shell {
	t.Helper()
	cfg, format, progress := cli.Defaults(), cli.Table, cli.ProgressQuiet
	cfg.Data, cfg.Serve.Listen = t.TempDir(), "127.0.0.1:0"
	w := console.New(&bytes.Buffer{}, func(string) string { return "" })
	return cli.Shell{Out: w, Err: w, Config: &cfg, Format: &format, Progress: &progress, Terminal: true}
}

// status is the HTTP status of a page of an admin address; 0 if it does not answer.
func status(admin net.Listener, path string) int {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + admin.Addr().String() + path)
	if err != nil {
		return 0
	}
	_ = res.Body.Close() // only the status is read
	return res.StatusCode
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// The admin address answers from the start of the services until all of them have ended;
// while they drain, it says that the process is not ready.
func TestHealthUntilTheLastServiceEnds(t *testing.T) {
	t.Parallel()
	shell := call(t)
	monitor := NewMonitor(shell, Dispatcher, 1)
	admin, err := ListenAdmin("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	drained, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- monitor.Run(ctx, p, admin, func(context.Context) error { <-drained; return nil }) }()
	waitFor(t, "it is ready", func() bool { return status(admin, "/readyz") == http.StatusOK })
	stop()
	waitFor(t, "it is not ready while it drains", func() bool { return status(admin, "/readyz") == http.StatusServiceUnavailable })
	if live, numbers := status(admin, "/livez"), status(admin, "/metrics"); live != http.StatusOK || numbers != http.StatusOK {
		t.Errorf("while it drains: livez %d, metrics %d", live, numbers)
	}
	close(drained)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := status(admin, "/livez"); got != 0 {
		t.Errorf("after the end the admin address still answers: %d", got)
	}
}

// A broken listener accepts no connection.
type broken struct{ net.Listener }

var errBroken = errors.New("broken")

func (broken) Accept() (net.Conn, error) { return nil, errBroken }

// Services that cannot be watched end, with the reason.
func TestServicesEndWithTheirAdminAddress(t *testing.T) {
	t.Parallel()
	shell := call(t)
	monitor := NewMonitor(shell, Worker, 1)
	admin, err := ListenAdmin("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = monitor.Run(ctx, p, broken{admin}, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if !errors.Is(err, errBroken) || ctx.Err() != nil {
		t.Errorf("got %v, with the context's %v; want that the admin address is broken, at once", err, ctx.Err())
	}
}

// The default address makes room for another penstock on the same host. An address that
// a user asked for does not change.
func TestListenAdmin(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	l, err := ListenAdmin(address, address)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := ListenAdmin(address, "127.0.0.1:9464"); err == nil {
		t.Errorf("listens at %s instead of %s", l.Addr(), address)
	}
	if l, err := ListenAdmin("", address); l != nil || err != nil {
		t.Errorf("got %v, %v, want none", l, err)
	}
}

// A reload that finds invalid settings, or none, changes nothing and says why.
func TestReloadKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	shell := call(t)
	var said bytes.Buffer
	shell.Err = console.New(&said, func(string) string { return "" })
	shell.Reread = func() (cli.Config, error) { return cli.Config{}, errors.New("log.level: loud") }
	NewReloader(shell).reload(nil) // a pool that is not there would panic if it changed
	if want := "penstock: the settings stay as they are: log.level: loud\n"; said.String() != want {
		t.Errorf("got %q, want %q", said.String(), want)
	}
	said.Reset()
	shell.Reread = func() (cli.Config, error) { return cli.Defaults(), nil }
	r := NewReloader(shell)
	r.Keys = func(cli.Config) (func() modelkey.Change, error) { return nil, errors.New("model.keys.main: no") }
	r.reload(nil)
	if want := "penstock: the settings stay as they are: model.keys.main: no\n"; said.String() != want {
		t.Errorf("got %q, want %q", said.String(), want)
	}
}

// Keys that are read again are named by the metrics as soon as they are used, and not before.
func TestMetricsNameTheNewKeys(t *testing.T) {
	t.Parallel()
	m := NewMonitor(call(t), Worker, 1)
	series := func(key string) bool {
		t.Helper()
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "penstock_model_key_refused" && strings.Contains(f.String(), key)
		})
	}
	again := cli.Defaults()
	again.Model.Keys = modelkey.Keys{"rotated": {API: "anthropic"}}
	use, err := m.PrepareKeys(func(cli.Config) (func() modelkey.Change, error) {
		return func() modelkey.Change { return modelkey.Change{Added: 1} }, nil
	})(again)
	if err != nil || series("rotated") {
		t.Errorf("before: %v, %v", err, series("rotated"))
	}
	if change := use(); change.Added != 1 || !series("rotated") {
		t.Errorf("%+v, and the metrics do not have it", change)
	}
}

// What the broker reports of the connection is counted, and reaches the others that listen.
func TestErrorsOfTheConnectionAreCounted(t *testing.T) {
	t.Parallel()
	shell := call(t)
	monitor := NewMonitor(shell, Dispatcher, 0)
	admin, err := ListenAdmin("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 16)
	before := p.Conn.ErrorHandler()
	p.Conn.SetErrorHandler(func(conn *nats.Conn, sub *nats.Subscription, err error) {
		before(conn, sub, err)
		heard <- err
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- monitor.Run(ctx, p, admin, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	waitFor(t, "it is ready", func() bool { return status(admin, "/readyz") == http.StatusOK })
	slow, err := p.Conn.SubscribeSync("flood")
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := p.Conn.Publish("flood", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-heard; !errors.Is(err, nats.ErrSlowConsumer) {
		t.Errorf("the other listener has heard %v", err)
	}
	waitFor(t, "the error is counted", func() bool {
		return strings.Contains(text(t, admin, "/metrics"), `penstock_nats_errors_total{component="dispatcher",kind="slow_consumer"} 1`)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The state of the pool is read from its broker: its workers by what they say, its dead
// letters, its store.
func TestStateOfAPool(t *testing.T) {
	t.Parallel()
	shell := call(t)
	monitor := NewMonitor(shell, Dispatcher, 0)
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, w := range []why.Worker{
		{Name: "a", Queues: []string{"default", "gpu"}, Slots: 4}, {Name: "b", Queues: []string{"gpu"}, Slots: 2},
		{Name: "c", Queues: []string{"gpu"}, Slots: 8, Closed: "it shuts down"},
	} {
		if err := p.Queue.Workers().Present(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Queue.Reject(t.Context(), queue.Submission{ID: "x", At: time.Now(), Tenant: "default", Data: []byte("no job")}, errors.New("unreadable")); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for _, name := range []string{audit.BackupVerified, audit.Backup} {
		if err := p.Audit.Append(t.Context(), operation.AuditEntry{Operation: name, About: name, Outcome: audit.Done}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := state(t.Context(), p, catalog.New(p.Queue))
	if err != nil {
		t.Fatal(err)
	}
	if last, err := p.Audit.Backups(t.Context()); err != nil || last.Last.About != audit.Backup || !last.Verified.Equal(got.BackupVerified) {
		t.Errorf("the last backups are %+v, %v", last, err)
	}
	if got.BackupVerified.Before(begun) || !got.BackupFailed.IsZero() {
		t.Errorf("a backup was verified at %v and failed at %v; want one after %v, and none", got.BackupVerified, got.BackupFailed, begun)
	}
	slots := map[string]int{}
	for _, q := range got.Queues {
		slots[q.Queue] = q.Slots
	}
	if got.Claiming != 2 || got.Closed != 1 || slots["gpu"] != 6 || slots["default"] != 4 {
		t.Errorf("%d workers claim, %d are closed, slots are %v; want 2, 1, 6 of gpu and 4 of default", got.Claiming, got.Closed, slots)
	}
	if got.DeadLetters != 1 || got.StoreBytes <= 0 || got.StoreLimit <= got.StoreBytes {
		t.Errorf("%d dead letters, %d of %d bytes stored; want 1, and some of more", got.DeadLetters, got.StoreBytes, got.StoreLimit)
	}
}

// text is a page of an admin address.
func text(t *testing.T, admin net.Listener, path string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + admin.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}
