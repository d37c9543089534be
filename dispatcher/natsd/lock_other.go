//go:build !unix

package natsd

import (
	"errors"
	"fmt"
	"time"
)

type lock struct{ since time.Time }

// takeLock refuses: without a lock that dies with its holder, two servers on
// one directory would lose each other's writes.
func takeLock(dir, _ string) (*lock, error) {
	return nil, fmt.Errorf("lock %s: %w on this system: run a NATS server and name it with --server", dir, errors.ErrUnsupported)
}

func (l *lock) release() error { return nil }

func holderOf(dir string) (*InUseError, error) {
	return nil, fmt.Errorf("%s: %w", dir, ErrNotRunning)
}

// diskSpace knows nothing here, so nothing is limited by it.
func diskSpace(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
