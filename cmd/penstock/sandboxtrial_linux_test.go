package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// A command by hand makes one jail, its own. Only where that one is not made a
// trial says why, or finds another; and the command runs once.
func TestSandboxRunMakesOneJail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	real, err := exec.LookPath("bwrap")
	if err != nil {
		skip(t, "bwrap", "%v", err)
	}
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	f.must(os.WriteFile(rules, []byte("backends: [bwrap]\n"), 0o644))
	for name, c := range map[string]struct {
		broken       int // starts that fail, from the first
		backend      []string
		starts, code int
		says         string
	}{
		"works":           {starts: 1},
		"works, by name":  {starts: 1, backend: []string{"--backend", "bwrap"}},
		"fails once":      {broken: 1, starts: 3},
		"fails":           {broken: 9, starts: 2, code: 125, says: "no backend can make a jail on this host: bwrap: no jail can be made here: "},
		"fails, by name":  {broken: 9, starts: 2, code: 125, backend: []string{"--backend", "bwrap"}, says: "no jail can be made here: "},
		"says how it is":  {starts: 1, backend: []string{"--explain"}},
		"explains no lie": {broken: 9, starts: 1, code: 125, backend: []string{"--explain"}, says: "no jail can be made here: "},
	} {
		t.Run(name, func(t *testing.T) {
			bin, ws := t.TempDir(), t.TempDir()
			script := fmt.Sprintf("#!/bin/sh\necho >>%[1]s/starts\nif [ $(wc -l <%[1]s/starts) -le %[2]d ]; then echo broken here >&2; exit 1; fi\nexec %[3]s \"$@\"\n",
				bin, c.broken, real)
			f.must(exectest.WriteFile(filepath.Join(bin, "bwrap"), []byte(script), 0o755))
			args := append([]string{"sandbox", "run", "--progress", "quiet", "--policy", rules}, c.backend...)
			cmd := f.command(append(args, "--", "sh", "-c", "echo ran >>ran")...)
			cmd.Dir, cmd.Env = ws, append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
			said, _ := cmd.CombinedOutput() // how it ended is in ProcessState
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(said), c.says) {
				t.Errorf("ended with %d, want %d and %q\n%s", code, c.code, c.says, said)
			}
			ran, _ := os.ReadFile(filepath.Join(ws, "ran"))
			runs := 1
			if c.code != 0 || strings.Contains(strings.Join(c.backend, " "), "explain") {
				runs = 0
			}
			if got := bytes.Count(ran, []byte("ran")); got != runs {
				t.Errorf("the command ran %d times, want %d\n%s", got, runs, said)
			}
			starts, err := os.ReadFile(filepath.Join(bin, "starts"))
			f.must(err)
			if got := bytes.Count(starts, []byte("\n")); got != c.starts {
				t.Errorf("%d jails were tried, want %d\n%s", got, c.starts, said)
			}
		})
	}
}
