package jail

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// The last message of a sender that then closes the socket arrives, whenever it
// comes.
func TestTheLastWordIsHeard(t *testing.T) {
	for range 3000 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan error, 1)
		go func() {
			_, err := unix.Write(pair[1], []byte("last"))
			said <- errors.Join(err, unix.Close(pair[1]))
		}()
		word := make([]byte, 8)
		n, _, err := untilOver(func() (int, int, error) {
			for {
				if n, err := unix.Read(pair[0], word); err != unix.EAGAIN && err != unix.EINTR {
					return n, 0, err
				}
			}
		})
		if err = errors.Join(err, <-said, unix.Close(pair[0])); err != nil || string(word[:n]) != "last" {
			t.Fatalf("heard %q, err %v", word[:n], err)
		}
	}
}
