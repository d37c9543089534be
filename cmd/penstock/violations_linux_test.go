package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Refused requests of jails are shown as they happen, until the user interrupts.
func TestViolationsAreFollowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	refused := func(label string) {
		cmd := f.command("sandbox", "run", "--label", label, "--file-size", "1MiB", "--", "sh", "-c", "exec head -c 2000000 /dev/zero >big")
		cmd.Dir = t.TempDir()
		_ = cmd.Run() // how it ended is in ProcessState
		if code := cmd.ProcessState.ExitCode(); code != 153 {
			t.Fatalf("ended with %d", code)
		}
	}
	refused("before")
	cmd := f.command("sandbox", "violations", "--follow")
	said := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	f.must(cmd.Start())
	for _, label := range []string{"before", "after"} {
		if label == "after" {
			refused(label)
		}
		f.eventually(20*time.Second, "the refusal "+label+" is shown", func() bool {
			return strings.Contains(said.String(), "limit  file-size  the limit is 1MiB  "+label+"\n")
		})
	}
	f.must(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 || strings.Count(said.String(), "file-size") != 2 {
		t.Errorf("got %v\n%s", err, said)
	}
}
