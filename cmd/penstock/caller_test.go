package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A caller calls the program for what starts no jail: a current
// directory, a data directory, and what stands on standard input.
type caller struct {
	testing.TB
	dir, data string
	in        string
	stdin     io.Reader // instead of in
	env       []string
}

func newCaller(t testing.TB) *caller {
	t.Helper()
	return &caller{TB: t, dir: t.TempDir(), data: filepath.Join(t.TempDir(), "data")}
}

// A reply is what one command line answered.
type reply struct {
	code     int
	out, err string
	memory   int64 // the most that it had, in KiB; 0 where that is not known
}

// call runs the program with these arguments.
func (c *caller) call(args ...string) reply {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), "penstock", args...)
	cmd.Dir, cmd.Stdin = c.dir, strings.NewReader(c.in)
	cmd.Env = append(os.Environ(), "PENSTOCK_DATA="+c.data, "HOME="+filepath.Dir(c.data), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=")
	cmd.Env = append(cmd.Env, c.env...)
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	ended, peak := make(chan struct{}), make(chan int64, 1)
	go func() { peak <- peakMemory(cmd.Process.Pid, ended) }()
	err := cmd.Wait()
	close(ended)
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		c.Fatal(err)
	}
	return reply{code: cmd.ProcessState.ExitCode(), out: out.String(), err: told.String(), memory: <-peak}
}

// peakMemory looks until a process has ended at the most memory that it had, in
// KiB; 0 where that is not known. Its resource usage does not say it: that begins
// with the memory of this process.
func peakMemory(pid int, ended <-chan struct{}) (most int64) {
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, peak, ok := strings.Cut(string(status), "VmHWM:"); err == nil && ok {
			var now int64
			if _, err := fmt.Sscan(peak, &now); err == nil {
				most = max(most, now)
			}
		}
		select {
		case <-ended:
			return most
		case <-time.After(time.Millisecond):
		}
	}
}

// wants fails unless the reply has that code and says each word, on either stream.
func (c *caller) wants(code int, words []string, args ...string) reply {
	c.Helper()
	got := c.call(args...)
	if got.code != code {
		c.Errorf("penstock %v: exit code %d, want %d\n%s%s", args, got.code, code, got.out, got.err)
	}
	for _, word := range words {
		if !strings.Contains(got.out+got.err, word) {
			c.Errorf("penstock %v does not say %q:\n%s%s", args, word, got.out, got.err)
		}
	}
	return got
}

// write writes a file below the current directory.
func (c *caller) write(name, text string) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		c.Fatal(err)
	}
}
