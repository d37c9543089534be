package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
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
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		c.Fatal(err)
	}
	got := reply{code: cmd.ProcessState.ExitCode(), out: out.String(), err: told.String()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && runtime.GOOS == "linux" {
		got.memory = usage.Maxrss
	}
	return got
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
