package natsd

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// startsWithin is how long a server that has its lock may take to start before
// clients get an error.
const startsWithin = 5 * time.Second

// ErrNotRunning says that no server runs on a directory.
var ErrNotRunning = errors.New("no server runs here")

// An Endpoint says how to connect to a server of another process.
type Endpoint struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	// Certificate is the server's own (DER), where it has TLS.
	Certificate []byte    `json:"certificate,omitempty"`
	PID         int       `json:"pid"`
	Owner       string    `json:"owner"`
	Since       time.Time `json:"since"`
}

// Options returns what nats.Connect needs besides the URL.
func (e Endpoint) Options() []nats.Option {
	return append(Options(), nats.UserInfo(e.User, e.Password))
}

// Connect opens a connection to the server.
func (e Endpoint) Connect(opts ...nats.Option) (*nats.Conn, error) {
	nc, err := Dial(e.URL, append(e.Options(), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the server of penstock %s (process %d) at %s: %w", e.Owner, e.PID, e.URL, err)
	}
	return nc, nil
}

// An InUseError names the process that uses a server's directory.
type InUseError struct {
	Dir   string
	PID   int
	Owner string
	Since time.Time
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use by penstock %s (process %d, since %s): use its server, wait for it, or choose another --data directory",
		e.Dir, e.Owner, e.PID, e.Since.Local().Format("15:04:05"))
}

// Find returns the endpoint of the server that runs on a directory. There is
// none: [ErrNotRunning], whatever files a killed one has left. There is one,
// but it does not listen: [InUseError].
func Find(dir string) (Endpoint, error) {
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		holder, err := holderOf(dir)
		if err != nil {
			return Endpoint{}, err
		}
		var e Endpoint
		data, err := os.ReadFile(descriptor(dir))
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		switch {
		// A file of an earlier server does not name the one that has the lock.
		case err == nil && e.PID == holder.PID && e.Since.Equal(holder.Since):
			if e.URL == "" {
				return Endpoint{}, holder
			}
			return e, nil
		case time.Since(begun) > startsWithin:
			return Endpoint{}, holder
		}
	}
}

// password returns the directory's password, and makes one for a new directory.
func password(dir string) (string, error) {
	path := filepath.Join(dir, "password")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		data = []byte(rand.Text())
		err = writeFile(path, data)
	}
	if err != nil {
		return "", fmt.Errorf("password of %s: %w", dir, err)
	}
	return string(data), nil
}

// announce writes the file that Find reads.
func (s *Server) announce() error {
	data, err := json.MarshalIndent(s.Endpoint(), "", "\t")
	if err != nil {
		return err
	}
	if err := writeFile(descriptor(s.cfg.StoreDir), data); err != nil {
		return fmt.Errorf("tell others how to connect: %w", err)
	}
	return nil
}

// writeFile replaces a file that only its owner may read, all at once.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
