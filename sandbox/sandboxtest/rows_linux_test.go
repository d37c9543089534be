package sandboxtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

var update = flag.Bool("update", false, "write the golden files")

// What is tried, and what has to come of it, is written down: a row that gets
// lost, or is content with less, is seen in a review.
func TestTheTableLosesNoRow(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the list has the calls of amd64")
	}
	var lines []string
	for _, a := range attacks(&host{dir: "/host", home: "/host/home", port6: "[::1]:1"}) {
		want := a.want
		switch {
		case want == "" && a.exit != nil:
			want = "(looks at the exit)"
		case a.during != nil:
			want += " (looks at the host)"
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s\n", a.feature, a.name, want))
	}
	slices.Sort(lines)
	compareGolden(t, "testdata/attacks.txt", lines)
	for _, c := range names(lines) {
		if len(c) > 1 {
			t.Errorf("%q have the same name", c)
		}
	}
}

func TestTheListOfCompatiblesLosesNoLine(t *testing.T) {
	var lines []string
	for _, c := range compat {
		lines = append(lines, fmt.Sprintf("%s: %s\n", c.needs, c.name))
	}
	slices.Sort(lines)
	compareGolden(t, "testdata/compatible.txt", lines)
}

func compareGolden(t *testing.T, file string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(want)) {
		if !slices.Contains(lines, line) {
			t.Errorf("lost: %s", line)
		}
	}
	if got != string(want) {
		t.Errorf("%s differs; look at it with: go test ./sandbox/sandboxtest -update && git diff", file)
	}
}

func names(lines []string) map[string][]string {
	by := map[string][]string{}
	for _, l := range lines {
		name := strings.Split(l, ": ")[1]
		by[name] = append(by[name], strings.TrimSpace(l))
	}
	return by
}

// Every feature of a strict jail has a row that tries to break it.
func TestEveryFeatureIsTried(t *testing.T) {
	tried := map[sandbox.Feature]bool{}
	for _, a := range attacks(&host{}) {
		tried[a.feature] = true
	}
	for _, f := range Features() {
		switch f {
		case sandbox.FeatureLandlock: // a test of package sandbox takes the first wall away
		case sandbox.FeatureImage, sandbox.FeatureLayers: // nothing to break: it is what a jail is made of
		case sandbox.FeatureCPUWeight: // a share is no wall
		default:
			if !tried[f] {
				t.Errorf("nothing tries to break %s", f)
			}
		}
	}
}
