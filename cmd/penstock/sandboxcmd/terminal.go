package sandboxcmd

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/sandbox/policy"
)

// askLimit bounds how long a request waits while other questions are asked.
const askLimit = 10 * time.Minute

// askOnTerminal puts a question to the user at the terminal. Without a terminal
// the answer is no.
func askOnTerminal(ctx context.Context, q policy.Question) bool {
	tty, err := openTTY()
	if err != nil {
		return false
	}
	defer tty.Close()
	// A program in the background would be stopped by reading.
	foreground := false
	withFD(tty, func(fd int) {
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		foreground = err == nil && group == unix.Getpgrp()
	})
	return foreground && question(ctx, tty, q)
}

func openTTY() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

// withFD uses a descriptor as it is: Fd would make it one that no deadline
// interrupts.
func withFD(f *os.File, use func(fd int)) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { use(int(fd)) }) // a file that was closed has no terminal
	}
}

// question asks on tty until an answer is there or ctx ends.
func question(ctx context.Context, tty *os.File, q policy.Question) bool {
	// What was typed before was no answer to this.
	withFD(tty, flushInput)
	// A name of the command's choice must not look like something else.
	verb := map[string]string{policy.KindHost: "reach", policy.KindRead: "read", policy.KindWrite: "write to"}[q.Kind]
	screen := console.New(tty, os.Getenv)
	screen.Printf("penstock: may the command %s %s? [y/N] ", verb, q.What)
	defer context.AfterFunc(ctx, func() { _ = tty.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(io.LimitReader(tty, 64)).ReadString('\n')
	if err != nil {
		screen.Printf("no\n")
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
