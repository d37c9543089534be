package proxy

import (
	"io"
	"net"
	"testing"
)

// half writes half of what it is given, as a connection that breaks does.
type half struct {
	net.Conn
	write func(b []byte) // sees what goes out
}

func (h half) Write(b []byte) (int, error) {
	h.write(b)
	return len(b) / 2, io.ErrShortWrite
}

// The goroutine that reads the answer sums up, while the one that wrote the
// request may still be in the system call.
func TestWhatIsSentIsCountedBeforeItsAnswer(t *testing.T) {
	traffic := &traffic{proxy: New(Config{})}
	var during int64
	c := &counted{Conn: half{write: func([]byte) { during = traffic.sent.Load() }}, traffic: traffic}
	if n, err := c.Write(make([]byte, 100)); n != 50 || err == nil {
		t.Fatalf("Write: got %d, %v", n, err)
	}
	if got := traffic.sent.Load(); during != 100 || got != 50 {
		t.Errorf("counted %d bytes while they were sent, want 100, and %d after a short write, want 50", during, got)
	}
}
