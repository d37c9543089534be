// Package natsd runs a NATS server in the process, for small installs and for
// single commands.
//
// Everything that the server has acknowledged is on the disk: it syncs every write
// unless it is set to be fast. It owns its directory by a lock, since two
// servers on one directory silently lose each other's writes. Other
// commands of the same user find it by a file in there, which holds the
// address and the generated password of an operator. Every other client needs a
// [Credential], which names its role. The server ends with
// [Server.Close], handles no signals, and refuses new work before the disk is
// full.
package natsd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/access"
)

// readyWithin bounds the start. A store with a million messages takes two
// seconds, so a large one has time.
const readyWithin = 2 * time.Minute

// handshake bounds how long a client may take to say who it is, and each step of TLS. The broker's
// own two seconds are too short for a client that is far away, some of whose packets are late.
const handshake = 10 * time.Second

// Config says how a server runs.
type Config struct {
	// StoreDir is the server's directory; it is created.
	StoreDir string
	// Listen is "host:port", where the port may be 0. Empty means that only
	// this process can connect. An address beyond loopback needs TLS, or a User
	// and a Password that the operator chose.
	Listen string
	// Owner tells people what runs here: "serve", "batch run".
	Owner string
	// Fast syncs once a second instead of at every write: a power cut, and
	// nothing else, may then take the last second of acknowledged work.
	Fast bool
	// Layout says where the subjects are that a role may use.
	Layout access.Layout
	// User and Password of an operator. Empty generates them, once for a
	// directory, so that clients can reconnect after a restart.
	User, Password string
	TLS            *tls.Config
	// MaxStore bounds the store; default is three quarters of the free disk.
	MaxStore int64
	// Reserve is how much of the disk stays free; default 1 GiB, at most a
	// twentieth of the disk.
	Reserve int64
	// Logger gets the server's messages; default is silence.
	Logger *slog.Logger
	// Stuck is called, at most once, where only the end of the process helps: see
	// [StuckError].
	Stuck func(error)
}

// A Server is a server in this process.
type Server struct {
	cfg   Config
	lock  *lock
	watch sync.WaitGroup
	stop  chan struct{}

	mu   sync.Mutex
	srv  *server.Server // replaced where it cannot write any more
	port int            // where it listens, once that is known
}

// An ExposedError refuses to listen where strangers could connect.
type ExposedError struct{ Listen string }

func (e *ExposedError) Error() string {
	return fmt.Sprintf("listen on %s: not on a network without TLS or chosen credentials: listen on 127.0.0.1, or set TLS, or a user and a password", e.Listen)
}

// Open starts a server, or says which process uses the directory: see [InUseError].
func Open(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	host, port, err := listenAt(cfg)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("open server directory: %w", err)
	}
	lock, err := takeLock(cfg.StoreDir, cfg.Owner)
	if err != nil {
		return nil, err
	}
	if cfg.User == "" {
		cfg.User = "penstock"
		if cfg.Password, err = password(cfg.StoreDir); err != nil {
			return nil, errors.Join(err, lock.release())
		}
	}
	s := &Server{cfg: cfg, lock: lock, stop: make(chan struct{}), port: port}
	if err := s.start(host); err != nil {
		return nil, errors.Join(fmt.Errorf("start server in %s: %w", cfg.StoreDir, err), lock.release())
	}
	if err := s.announce(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.limit()
	s.watch.Go(func() { s.watchDisk(host) })
	s.watch.Go(s.watchRevoked)
	return s, nil
}

// listenAt parses and judges Config.Listen.
func listenAt(cfg Config) (host string, port int, err error) {
	if cfg.Listen == "" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(cfg.Listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("listen on %q: want host:port, as in 127.0.0.1:4222: %w", cfg.Listen, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && cfg.TLS == nil && cfg.Password == "" {
		return "", 0, &ExposedError{cfg.Listen}
	}
	return host, port, nil
}

// start starts a server on what is stored, in the place of the last one. If that fails,
// everything is stored as before.
func (s *Server) start(host string) error {
	dir := s.cfg.StoreDir
	if _, err := returnStreams(dir); err != nil { // to a start that was killed
		return err
	}
	if err := adopt(dir); err != nil {
		return err
	}
	if err := holdStreams(dir); err != nil {
		return fmt.Errorf("secure what is stored: %w", err)
	}
	log := &logger{log: s.cfg.Logger}
	srv, err := s.startWhole(host, log)
	if err != nil || len(removedStreams(dir)) > 0 {
		return s.startFailed(srv, err, log)
	}
	s.mu.Lock()
	s.srv = srv
	if addr, ok := srv.Addr().(*net.TCPAddr); ok {
		s.port = addr.Port
	}
	s.mu.Unlock()
	if err := dropHeld(dir); err != nil {
		s.cfg.Logger.Warn("what secured the start is left", "err", err)
	}
	return nil
}

// startFailed stores everything as before a start, of which srv may be left.
func (s *Server) startFailed(srv *server.Server, err error, log *logger) error {
	if srv != nil {
		stop(srv)
	}
	streams, failed := returnStreams(s.cfg.StoreDir)
	if failed != nil { // the next start tries again
		return errors.Join(err, failed)
	}
	if err == nil {
		err = &LeftOutError{streams, log.why()}
	}
	return errors.Join(err, dropHeld(s.cfg.StoreDir))
}

func stop(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// startOn starts a server on what is stored, and waits until it runs.
func (s *Server) startOn(host string, log *logger) (*server.Server, error) {
	_, disk, err := diskSpace(s.cfg.StoreDir)
	if err != nil {
		return nil, err
	}
	gate := &gatekeeper{cfg: s.cfg}
	opts := &server.Options{
		ServerName: "penstock-" + strconv.Itoa(os.Getpid()), Host: host, Port: s.port, DontListen: s.cfg.Listen == "",
		CustomClientAuthentication: gate, AlwaysEnableNonce: true,
		TLSConfig: s.cfg.TLS, TLS: s.cfg.TLS != nil, TLSTimeout: handshake.Seconds(), AuthTimeout: handshake.Seconds(),
		NoSigs: true, DisableJetStreamBanner: true, MaxPayload: 1 << 20,
		// A worker that vanished silently is noticed in a minute.
		PingInterval: 20 * time.Second, MaxPingsOut: 2,
		JetStream: true, StoreDir: s.cfg.StoreDir, SyncAlways: !s.cfg.Fast, SyncInterval: time.Second,
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: disk, // limit bounds it further
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1, MaxBatchInflightPerStream: 1000},
	}
	accounts, err := s.cfg.Layout.Config(nil)
	if err == nil {
		err = opts.ProcessConfigString(accounts)
	}
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	gate.srv = srv
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if err := awaitReady(srv, log); err != nil {
		stop(srv)
		return nil, err
	}
	return srv, nil
}

// adopt moves the store of an earlier version, which had no accounts.
func adopt(dir string) error {
	streams := filepath.Join(dir, "jetstream")
	err := os.Rename(filepath.Join(streams, "$G"), filepath.Join(streams, access.Pool))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, there := os.Stat(filepath.Join(streams, access.Pool)); there == nil {
		return nil
	}
	return fmt.Errorf("move the store to account %s: %w", access.Pool, err)
}

func awaitReady(srv *server.Server, log *logger) error {
	for begun := time.Now(); time.Since(begun) < readyWithin; {
		if srv.ReadyForConnections(100*time.Millisecond) && srv.JetStreamEnabled() {
			return nil
		}
		if why := log.fatal(); why != "" {
			return errors.New(why)
		}
	}
	return fmt.Errorf("it was not ready after %s", readyWithin)
}

// server is the one that runs now.
func (s *Server) server() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// inside is the way to whichever server runs now.
type inside struct{ server *Server }

func (i inside) InProcessConn() (net.Conn, error) { return i.server.server().InProcessConn() }

// Connect opens a connection inside the process, which needs no listener. Its
// owner closes it before the server.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append(Options(), nats.InProcessServer(inside{s}), nats.UserInfo(s.cfg.User, s.cfg.Password))
	nc, err := Dial("", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the server in this process: %w", err)
	}
	return nc, nil
}

// Endpoint says how other processes connect. Its URL is empty when they cannot.
func (s *Server) Endpoint() Endpoint {
	e := Endpoint{User: s.cfg.User, Password: s.cfg.Password, PID: os.Getpid(), Owner: s.cfg.Owner, Since: s.lock.since}
	if s.cfg.Listen != "" {
		scheme := "nats://"
		if s.cfg.TLS != nil {
			scheme = "tls://"
			if len(s.cfg.TLS.Certificates) > 0 {
				e.Certificate = s.cfg.TLS.Certificates[0].Certificate[0]
			}
		}
		e.URL = scheme + s.server().Addr().String()
	}
	return e
}

// Close stops the server and gives the directory free. What it has
// acknowledged stays. One that is stuck is left as it is, with a [StuckError], and
// keeps the directory until the process ends.
func (s *Server) Close() error {
	close(s.stop)
	s.watch.Wait()
	err := os.Remove(descriptor(s.cfg.StoreDir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if stuck := within("stop", func() { stop(s.server()) }); stuck != nil {
		return errors.Join(err, stuck)
	}
	return errors.Join(err, s.lock.release())
}

// Options are those of every connection to a pool's server: it reconnects for
// ever, and does not send late what was meant for before an outage.
func Options() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
		// The caller of each request gets its errors; the default prints them.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
}

// logger hands the server's words to slog. What the server takes for notable
// at each start is not.
type logger struct {
	log  *slog.Logger
	mu   sync.Mutex
	last string // the last fatal error
	left string // what was said last about a stream that is left out
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(words(format, v)) }
func (l *logger) Warnf(format string, v ...any) {
	text := words(format, v)
	l.log.Warn(text)
	if strings.Contains(text, "recreating stream") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = text
	}
}
func (l *logger) Errorf(format string, v ...any) { l.log.Error(words(format, v)) }
func (l *logger) Debugf(string, ...any)          {}
func (l *logger) Tracef(string, ...any)          {}

func (l *logger) Fatalf(format string, v ...any) {
	l.log.Error(words(format, v))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = words(format, v)
}

func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// why is the reason for which a stream was left out.
func (l *logger) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

func words(format string, v []any) string {
	return "nats: " + strings.TrimSpace(fmt.Sprintf(format, v...))
}

func descriptor(dir string) string { return filepath.Join(dir, "server.json") }
