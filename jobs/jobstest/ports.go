package jobstest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
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
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatal("no port of 127.0.0.1 is free")
	return 0
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
