package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/none"
)

// What fails to start, for whatever reason and at whatever moment, leaves no
// descriptor, control group or directory.
func TestFailedStartsLeaveNothing(t *testing.T) {
	t.Run("engine", func(t *testing.T) {
		b := newEngine(t)
		failedStarts(t, func(s sandbox.Spec) (sandbox.Backend, sandbox.Spec) {
			s.Lower = nil
			return b, s
		})
	})
	for name, with := range backends(t) {
		t.Run(name, func(t *testing.T) { failedStarts(t, with) })
	}
}

func failedStarts(t *testing.T, with with) {
	dir := t.TempDir()
	upper := filepath.Join(dir, "upper")
	if err := os.Mkdir(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	gate := []string{"127.0.0.1:32128", "127.0.0.1:32129", "127.0.0.1:32128"}
	specs := []sandbox.Spec{
		{Args: []string{"no-such-program"}},
		{Args: []string{"true"}, Dir: "/workspace/nowhere"},
		{Args: []string{"true"}, Network: sandbox.NetworkGate, Listen: gate, Dial: true},
		{Args: []string{"true"}, Workspace: filepath.Join(dir, "nowhere")},
		{Args: []string{"no-such-program"}, Workspace: upper, Lower: []string{filepath.Join(dir, "nowhere")}},
		{Args: []string{"sleep", "1000"}, Network: sandbox.NetworkGate, Listen: gate[:2], Dial: true}, // is broken off
	}
	before, label := 0, fmt.Sprintf("failed.%d", os.Getpid())
	for n := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		spec := specs[n%len(specs)]
		if spec.Args[0] == "sleep" {
			time.AfterFunc(rand.N(15*time.Millisecond), cancel)
		}
		spec.Label = label
		b, spec := with(spec)
		p, err := sandbox.Start(ctx, b, spec, sandbox.Streams{StdinPipe: n%2 == 0})
		if err == nil {
			_, err = p.Wait() // it was broken off a little later
		}
		if err == nil {
			t.Errorf("%v in %q started", spec.Args, spec.Workspace)
		}
		cancel()
		if n == len(specs)-1 { // what the runtime opens once is open
			before = descriptors(t)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, after the first failures it were %d", after, before)
	}
	for _, name := range cgroup.Names() {
		if strings.HasPrefix(name, label+"_") {
			t.Errorf("the control group %s is left", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, err %v", left, err)
	}
}

// What a mechanism says before it ends is in the error, whatever the mechanism is
// called, and without its name.
func TestTheMechanismsOwnWords(t *testing.T) {
	b := changed{&none.Backend{}, func(c *sandbox.Command) {
		c.Path, c.Args = "/bin/sh", []string{"mechanism", "-c", "echo warning; echo mechanism: bwrap: no room >&2"}
	}}
	spec := sandbox.Spec{Args: []string{"true"}, Workspace: t.TempDir()}.Allow(none.Unenforced()...)
	_, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{})
	if e, ok := errors.AsType[*sandbox.StartError](err); !ok || e.Detail != "bwrap: no room" {
		t.Errorf("got %v", err)
	}
}

// An agent that stops its supervisor before that has said that the agent runs
// breaks off the start, and gains nothing by it.
func TestASupervisorThatIsStoppedAtOnce(t *testing.T) {
	stops := func(t *testing.T, with with) {
		dir := t.TempDir()
		b, spec := with(sandbox.Spec{Args: []string{"sh", "-c", "kill -STOP $PPID; echo $$ >pid; exec sleep 1000"}, Workspace: dir})
		impatient := changed{b, func(c *sandbox.Command) { c.StartTimeout = 500 * time.Millisecond }}
		p, err := sandbox.Start(t.Context(), impatient, spec, sandbox.Streams{})
		if _, broken := errors.AsType[*sandbox.StartError](err); err != nil && !broken {
			t.Error(err)
		}
		if err == nil {
			ended(t, p.Close)
		}
		if b.Name() != "none" {
			return // the agent's number is not the host's
		}
		pid, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			return // it came to nothing
		}
		// A zombie has no arguments.
		if args, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline"); err == nil && len(args) > 0 {
			t.Errorf("alive: %q", args)
		}
	}
	each(t, stops)
	engines(t, func(t *testing.T, b *engined) {
		stops(t, func(s sandbox.Spec) (sandbox.Backend, sandbox.Spec) { return b, s })
	})
}
