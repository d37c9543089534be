// Command testreport runs go test with the given arguments, prints what go test
// prints, and ends with what was skipped and why: "go test ./..." alone passes
// in silence on a machine where half of the tests cannot run.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code of go test, so that nothing go test finds wrong can
// get lost on the way through the report.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Fprintln(stderr, "testreport:", err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "testreport:", err)
		return 1
	}
	r := newReport(stdout)
	readErr := read(out, r)
	err = cmd.Wait()
	r.summary()
	if readErr != nil {
		fmt.Fprintln(stderr, "testreport: read the output of go test:", readErr)
		return 1
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(stderr, "testreport: go test:", err)
		return 1
	}
	return 0
}

// read feeds one line after the other to r. A line that is no event is printed
// as it is: a test binary may write to its standard output past the framework.
func read(in io.Reader, r *report) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var ev event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &ev) == nil:
			r.add(ev)
		default:
			fmt.Fprintf(r.out, "%s", line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
