package measure

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/freeport"
)

// A Server is penstock serve with its own broker, and a client of it.
type Server struct {
	Serve  *Process
	Conn   *nats.Conn
	Client *client.Client
}

// Serve starts a command that is penstock serve, with the data directory data, on free ports, and
// connects a client, which is called by. It returns the server also with an error, to be closed.
func Serve(ctx context.Context, cmd *exec.Cmd, data, by string) (*Server, error) {
	s := &Server{}
	address, err := freeport.Address()
	if err != nil {
		return s, err
	}
	cmd.Args = append(cmd.Args, "--listen", address, "--http", "127.0.0.1:0")
	if s.Serve, err = Start(ctx, cmd); err != nil {
		return s, err
	}
	if s.Conn, err = Connect(data); err != nil {
		return s, err
	}
	s.Client, err = client.Open(ctx, s.Conn, client.Config{By: by})
	return s, err
}

// Connect opens a connection to the broker of a data directory.
func Connect(data string) (*nats.Conn, error) {
	at, err := natsd.Find(filepath.Join(data, "nats"))
	if err != nil {
		return nil, err
	}
	return at.Connect(nats.Timeout(time.Minute))
}

// Close ends the connection and the server. A nil server was never started.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	if s.Conn != nil {
		s.Conn.Close()
	}
	return s.Serve.End(syscall.SIGTERM, time.Minute)
}
