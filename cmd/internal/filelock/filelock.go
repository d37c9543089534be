// Package filelock keeps two programs from working in one directory, by a lock on a
// file of it. The kernel drops the lock with the process, so a kill -9 leaves none.
package filelock

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A HeldError says that another program holds a lock.
type HeldError struct {
	PID int // of that program; 0: not known
}

func (e *HeldError) Error() string { return "it is in use by " + e.Holder() }

// Holder names the program that holds the lock.
func (e *HeldError) Holder() string {
	if e.PID > 0 {
		return "process " + strconv.Itoa(e.PID)
	}
	return "another program"
}

// maxText bounds what is read of a file that says who holds the lock.
const maxText = 32

// Take locks a file, which was opened for reading and writing, until it is closed, and
// writes into it who holds it. If another program does, the error is a [*HeldError].
func Take(f *os.File) error {
	taken, err := flock(f)
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if taken {
		text, _ := io.ReadAll(io.LimitReader(f, maxText)) // only to name the other
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return &HeldError{pid}
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
