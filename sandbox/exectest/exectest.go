// Package exectest writes programs that tests execute, runs scripts for them, and skips tests
// whose programs are missing.
package exectest

import (
	"os"
	"syscall"
)

// WriteFile is [os.WriteFile] for a program. A process that another goroutine
// starts meanwhile would hold the file open for writing until it executes its own
// program, and executing a file that is open for writing fails with ETXTBSY. So
// no process starts until the file is closed.
func WriteFile(name string, data []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, data, mode)
}
