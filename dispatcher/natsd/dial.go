package natsd

import (
	"strings"

	"github.com/nats-io/nats.go"
)

const (
	// dialMost is how often a handshake is begun that the server's own ping has broken.
	dialMost = 5
	// earlyPing is in the client's error about that, which has no type (nats.go 1.55.0).
	earlyPing = "expected 'PONG', got 'PING'"
)

// Dial opens a connection to a server. A server pings a client two seconds after it has
// accepted it. On a slow way that may come before the answer to the client's handshake, and
// the client takes it for a wrong answer: it is begun again.
func Dial(url string, opts ...nats.Option) (nc *nats.Conn, err error) {
	for range dialMost {
		nc, err = nats.Connect(url, opts...)
		if err == nil || !strings.Contains(err.Error(), earlyPing) {
			break
		}
	}
	return nc, err
}
