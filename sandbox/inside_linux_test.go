package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideMain is what this program does in a jail, and where it plays the
// first program of one.
func insideMain() {
	switch {
	case os.Args[0] == hostileInit:
		hostile(os.Args[1])
	case len(os.Args) == 3 && os.Args[1] == "full":
		full(os.Args[2])
	case len(os.Args) > 2 && os.Args[1] == "serve":
		if err := serve(os.Args[2:]); err != nil {
			fmt.Println(err)
			syscall.Exit(1)
		}
	default:
		return
	}
	syscall.Exit(0) // os.Exit would sleep a second under the race detector
}

// full listens with a queue of one and accepts no connection: after a few,
// clients that connect wait.
func full(port string) {
	n, _ := strconv.Atoi(port)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	_ = unix.Pause() // a select without cases is a deadlock to a runtime without cgo
}

// serve listens on addresses, "unix:" before those that are paths, says that
// it is ready, and answers each connection with what came, after the other
// side has said all it has to say.
func serve(addresses []string) error {
	for _, a := range addresses {
		network, address := "tcp", a
		if path, ok := strings.CutPrefix(a, "unix:"); ok {
			network, address = "unix", path
		}
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					b, err := io.ReadAll(c)
					if err == nil {
						_, _ = fmt.Fprintf(c, "%d bytes to %s: %s", len(b), c.LocalAddr().Network(), b)
					}
				}()
			}
		}()
	}
	fmt.Println("ready")
	select {}
}
