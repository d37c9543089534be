package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// What a package computes before main is paid for by each command. The runtime counts what a
// package allocates there, which does not depend on the load.
func TestPackagesComputeLittleAtTheStart(t *testing.T) {
	t.Parallel()
	const most = 400
	c := newCaller(t)
	c.env = []string{"GODEBUG=inittrace=1"}
	got := c.call("version")
	ours := 0
	for line := range strings.Lines(got.err) {
		// init PACKAGE @3.1 ms, 0.01 ms clock, 512 bytes, 7 allocs
		words := strings.Fields(line)
		if len(words) != 11 || words[0] != "init" || !strings.HasPrefix(words[1], "github.com/penstock-run/penstock/") {
			continue
		}
		if strings.HasSuffix(words[1], "/cmd/penstock") {
			continue // most of it is the variables of these tests
		}
		ours++
		allocs, err := strconv.Atoi(words[9])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if allocs > most {
			t.Errorf("%s makes %d allocations before main, want at most %d: what it needs sometimes belongs into a function, or sync.OnceValue", words[1], allocs, most)
		}
	}
	if ours < 50 {
		t.Fatalf("got %d packages of ours, want the program's; it said %q", ours, got.err)
	}
}

// A command line makes its own command only, under the name that it has in the list of all.
func TestACommandLineMakesItsCommand(t *testing.T) {
	t.Parallel()
	a := &app{cfg: cli.Defaults(), format: cli.Table, progress: cli.ProgressAuto}
	for name := range constructors {
		one := subcommands(a.shell(), []string{name, "--help"})
		if len(one) != 1 || one[0].Name() != name {
			t.Errorf("%q makes %d commands, the first of which is %q", name, len(one), one[0].Name())
		}
	}
	if all := subcommands(a.shell(), []string{"schedules"}); len(all) < len(constructors) {
		t.Errorf("a second name makes %d commands, want all, of which one has it", len(all))
	}
}
