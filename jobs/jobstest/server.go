// Package jobstest runs a real server inside the test process, and makes it
// fail.
//
// [Start] gives a server that listens on loopback and can be stopped and
// started again on the same port and the same store. [Server.Proxy] is a way
// to it that can be cut and healed. [Child] is a server in a process of its
// own, which can be killed. [Fault] makes the nth step of something fail.
package jobstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
	"github.com/penstock-run/penstock/jobs/webhook"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Patience bounds what a test waits for. It is long because the machine may
// be busy, and longer where it is; nothing that works waits for it.
var Patience = slowtest.Limit(30 * time.Second)

// ServersOwn are the goroutines that a server may leave behind, for goleak: it
// makes a stream that a muted client has asked for while it shuts down, and the
// stream's goroutines outlive it (2.15.2).
func ServersOwn() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreTopFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server + ".(*msgBlock).flushLoop"), // begun while its stream is closed
		goleak.IgnoreTopFunction(server + "/ats.Register.func1"),
	}
}

// A Server is a real server in this process.
type Server struct {
	tb   testing.TB
	opts server.Options
	srv  *server.Server
	said complaints
}

// Start runs a server that ends with the test. Its store is on the disk and
// is not synced: a killed process loses nothing of it, only a power cut would.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, options(tb.TempDir()))
}

// StartSynced runs a server that syncs every write, as installations do.
func StartSynced(tb testing.TB) *Server {
	tb.Helper()
	opts := options(tb.TempDir())
	opts.SyncAlways = true
	return start(tb, opts)
}

// StartNarrow runs a server that takes messages of up to so many bytes.
func StartNarrow(tb testing.TB, payload int32) *Server {
	tb.Helper()
	opts := options(tb.TempDir())
	opts.MaxPayload = payload
	return start(tb, opts)
}

func start(tb testing.TB, opts server.Options) *Server {
	s := &Server{tb: tb, opts: opts}
	s.opts.Port = FreePort(tb)
	s.Up()
	tb.Cleanup(func() {
		s.Down()
		if tb.Failed() {
			s.said.tell(tb)
		}
	})
	return s
}

func options(dir string) server.Options {
	return server.Options{
		Host: "127.0.0.1", ServerName: "jobstest", JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 256 << 20,
	}
}

// Up starts the server again after Down.
func (s *Server) Up() {
	s.tb.Helper()
	srv, err := serve(s.opts, &s.said)
	if err != nil {
		s.tb.Fatalf("start server: %v", err)
	}
	s.srv = srv
}

// serve starts a server. Its port may be taken for a moment, by a child process that was
// forked while the port was in use and has not begun its own program yet: a server that
// cannot listen says so to nobody, so that is tried again.
func serve(opts server.Options, said *complaints) (*server.Server, error) {
	for end := time.Now().Add(Patience); ; time.Sleep(50 * time.Millisecond) {
		again := opts
		srv, err := server.NewServer(&again)
		if err != nil {
			return nil, err
		}
		srv.SetLoggerV2(said, false, false, false)
		srv.Start()
		switch {
		case srv.Addr() != nil && srv.ReadyForConnections(Patience):
			return srv, nil
		case srv.Addr() != nil:
			err = errors.New("it is not ready")
		default:
			err = fmt.Errorf("port %d is taken", opts.Port)
		}
		srv.Shutdown()
		srv.WaitForShutdown()
		if time.Now().After(end) {
			return nil, err
		}
	}
}

// Down stops the server. Connections stay and reconnect after Up.
func (s *Server) Down() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// Limit bounds the store, until the next Up.
func (s *Server) Limit(bytes int64) {
	s.tb.Helper()
	limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	if err := s.srv.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		s.tb.Fatal(err)
	}
}

// Used is how many bytes the store has.
func (s *Server) Used() int64 { return int64(s.srv.GlobalAccount().JetStreamUsage().Store) }

// Restart is Down and Up.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Down()
	s.Up()
}

// URL is where the server listens; it stays the same.
func (s *Server) URL() string {
	return "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.opts.Port))
}

// Dir is the server's store.
func (s *Server) Dir() string { return s.opts.StoreDir }

// Connect opens a connection that ends with the test.
func (s *Server) Connect() *nats.Conn {
	s.tb.Helper()
	return Connect(s.tb, s.URL())
}

// Connect opens a connection that reconnects fast and ends with the test.
func Connect(tb testing.TB, url string) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond), nats.Timeout(Patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Queue opens a queue on a connection.
func Queue(tb testing.TB, nc *nats.Conn, cfg queue.Config) *queue.Queue {
	tb.Helper()
	q, err := queue.Open(Context(tb), nc, cfg)
	if err != nil {
		tb.Fatalf("open queue: %v", err)
	}
	return q
}

// Log opens a session log on a connection.
func Log(tb testing.TB, nc *nats.Conn) *session.Log {
	tb.Helper()
	l, err := session.Open(Context(tb), nc, session.Config{})
	if err != nil {
		tb.Fatalf("open session log: %v", err)
	}
	return l
}

// Store opens an artifact store on a connection.
func Store(tb testing.TB, nc *nats.Conn) *artifact.Store {
	tb.Helper()
	s, err := artifact.Open(Context(tb), nc, artifact.Config{})
	if err != nil {
		tb.Fatalf("open artifact store: %v", err)
	}
	return s
}

// Tokens opens the tokens on a connection.
func Tokens(tb testing.TB, nc *nats.Conn) *token.Store {
	tb.Helper()
	s, err := token.Open(Context(tb), nc, token.Config{})
	if err != nil {
		tb.Fatalf("open tokens: %v", err)
	}
	return s
}

// Audit opens the audit log on a connection.
func Audit(tb testing.TB, nc *nats.Conn) *audit.Log {
	tb.Helper()
	l, err := audit.Open(Context(tb), nc, audit.Config{})
	if err != nil {
		tb.Fatalf("open audit log: %v", err)
	}
	return l
}

// Webhooks opens the webhooks on a connection.
func Webhooks(tb testing.TB, nc *nats.Conn) *webhook.Store {
	tb.Helper()
	s, err := webhook.Open(Context(tb), nc, webhook.Config{})
	if err != nil {
		tb.Fatalf("open webhooks: %v", err)
	}
	return s
}

// Context ends after Patience, or with the test.
func Context(tb testing.TB) context.Context {
	// The machine may have become busy since the process began.
	ctx, cancel := context.WithTimeout(context.Background(), max(Patience, slowtest.Limit(30*time.Second)))
	tb.Cleanup(cancel)
	return ctx
}

// Job returns a valid job that runs "true".
func Job() jobs.Job {
	j := jobs.Job{Prompt: "do nothing", Agent: jobs.Agent{Name: "command", Command: []string{"true"}}}
	return j.WithDefaults()
}

// Submit accepts a job and enqueues it.
func Submit(tb testing.TB, q *queue.Queue, job jobs.Job) jobs.Record {
	tb.Helper()
	rec, _, err := q.Accept(Context(tb), job)
	if err != nil {
		tb.Fatal(err)
	}
	if err := q.Enqueue(Context(tb), rec); err != nil {
		tb.Fatal(err)
	}
	return rec
}

// Claim claims the next job of the default queue.
func Claim(tb testing.TB, q *queue.Queue, worker string) *queue.Claim {
	tb.Helper()
	c, err := q.Claim(Context(tb), worker, []string{"default"})
	if err != nil {
		tb.Fatalf("claim: %v", err)
	}
	return c
}

// childDir names the store to a re-executed test binary.
const childDir = "JOBSTEST_CHILD_DIR"

// IsChild reports whether this process is a server that [Child] has started.
// A package that uses Child begins its TestMain with
//
//	if jobstest.IsChild() {
//		jobstest.ServeChild()
//	}
func IsChild() bool { return os.Getenv(childDir) != "" }
