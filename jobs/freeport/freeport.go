// Package freeport finds ports for servers of tests and measurements, of which many are killed
// and started again at the same port.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// The ports are none of those that Linux gives to connections, 32768 and up, so a server that
// is stopped finds its own free when it is started again. Processes run at once, so each takes
// a block after the other for itself, until it ends: it listens on the block's first port.
const (
	firstPort = 10_000
	blocks    = 44
	blockSize = 500
)

var ports struct {
	sync.Mutex
	next, end int
	kept      []net.Listener // on the first ports of blocks
}

// Address returns an address of the loopback, 127.0.0.1 with a port of [Port].
func Address() (string, error) {
	port, err := Port()
	return at(port), err
}

// Port returns a port of 127.0.0.1 without a listener. No other process that asks this
// package gets it while this one lives. This one gets it again only when there are no
// others; the error says that there is none at all.
func Port() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 2 * blockSize {
		if ports.next == ports.end {
			nextBlock()
		}
		port := ports.next
		ports.next++
		if free(port) {
			return port, nil
		}
	}
	return 0, errors.New("no port of 127.0.0.1 is free")
}

func at(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// free reports whether a port has no listener. No child process is forked meanwhile: it
// would have the port, too, until it begins its own program.
func free(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", at(port))
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
		if l, err := net.Listen("tcp", at(firstPort+block*blockSize)); err == nil {
			ports.kept = append(ports.kept, l)
			break
		}
		block = (block + 1) % blocks
	}
	ports.next = firstPort + block*blockSize + 1
	ports.end = ports.next + blockSize - 1
}
