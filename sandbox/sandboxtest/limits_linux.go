package sandboxtest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// limitRows check that a program that reaches a limit is told apart from one that
// ends otherwise.
func limitRows() []attack {
	const mib = 1 << 20
	large := strconv.Itoa(512 * mib)
	memory := func(s *sandbox.Spec) { s.Limits.Memory = 128 * mib }
	disk := func(s *sandbox.Spec) { s.Limits.Disk = 8 * mib }
	file := strconv.Itoa(32 * mib)
	return []attack{
		{name: "use all memory", feature: sandbox.FeatureMemory, probe: "memory", args: []string{large}, works: "ok",
			spec: memory, exit: reached(sandbox.FeatureMemory)},
		{name: "use all memory through files", feature: sandbox.FeatureMemory, probe: "keep", args: []string{"/tmp/f", large},
			spec: memory, exit: reached(sandbox.FeatureMemory)},
		{name: "fork until it is told", feature: sandbox.FeaturePIDs, probe: "sleep",
			spec: func(s *sandbox.Spec) {
				s.Limits.PIDs = 32
				s.Args = []string{"/bin/sh", "-c", "(i=0; while test $((i=i+1)) -lt 40; do /bin/sleep 60 & done); exec /bin/sleep 3"} // it is looked for, by a machine that may be busy
			},
			exit: func(t *testing.T, e sandbox.Exit) {
				if !slices.Contains(e.Reached, sandbox.FeaturePIDs) {
					t.Errorf("got %v, want the limit of processes reached", e)
				}
			}},
		{name: "write one large file", feature: sandbox.FeatureFileSize, probe: "sleep",
			spec: func(s *sandbox.Spec) {
				s.Limits.FileSize = mib
				s.Args = []string{"/bin/sh", "-c", "exec head -c 32000000 /dev/zero >f"}
			},
			exit: reached(sandbox.FeatureFileSize)},
		{name: "fill the workspace", feature: sandbox.FeatureDisk, probe: "keep", args: []string{"f", file}, spec: disk,
			exit: reached(sandbox.FeatureDisk)},
		{name: "fill the workspace and be gone", feature: sandbox.FeatureDisk, probe: "sleep",
			spec: func(s *sandbox.Spec) {
				disk(s)
				s.Args = []string{"/bin/sh", "-c", "head -c 32000000 /dev/zero >f; exit 3"}
			},
			exit: reached(sandbox.FeatureDisk)},
		{name: "use up inodes", feature: sandbox.FeatureInodes, probe: "many-files", args: []string{"3000"},
			spec: func(s *sandbox.Spec) { s.Limits.Inodes = 500 }, exit: reached(sandbox.FeatureInodes)},
		{name: "write without end", feature: sandbox.FeatureOutput, probe: "flood", args: []string{strconv.Itoa(mib)},
			spec: func(s *sandbox.Spec) { s.Limits.OutputRate = mib / 4 },
			exit: func(t *testing.T, e sandbox.Exit) {
				if !e.Success() || !slices.Contains(e.Reached, sandbox.FeatureOutput) {
					t.Errorf("got %v, want the program slowed, and no more", e)
				}
			}},
	}
}

// reached looks for the one limit that ended the program.
func reached(f sandbox.Feature) func(*testing.T, sandbox.Exit) {
	return func(t *testing.T, e sandbox.Exit) {
		if e.Success() || e.Stopped || !slices.Equal(e.Reached, []sandbox.Feature{f}) {
			t.Errorf("got %v, want the limit of %s reached", e, f)
		}
	}
}
