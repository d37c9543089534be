package jobstest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports of tests are none of those that Linux gives to connections, 32768 and up, so a
// server that is stopped finds its own free when it is started again. Processes of tests run
// at once, so each takes a block after the other for itself, until it ends.
const (
	firstPort = 10_000
	blocks    = 44
	blockSize = 500
)

var ports struct {
	sync.Mutex
	next, end int
}

// FreePort returns a free port of the loopback, which no other process of tests gets. This
// one gets it again only when there are no others.
func FreePort(tb testing.TB) int {
	tb.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 2 * blockSize {
		if ports.next == ports.end {
			nextBlock()
		}
		port := ports.next
		ports.next++
		if free(port) {
			return port
		}
	}
	tb.Fatal("no port of 127.0.0.1 is free")
	return 0
}

// free reports whether a port is free. No child process is forked meanwhile: it would have
// the port, too, until it begins its own program.
func free(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// nextBlock goes on with a block of ports that no other process has; with any, if all are
// taken.
func nextBlock() {
	block := rand.IntN(blocks)
	for range blocks {
		if reserve(block) {
			break
		}
		block = (block + 1) % blocks
	}
	ports.next = firstPort + block*blockSize
	ports.end = ports.next + blockSize
}
