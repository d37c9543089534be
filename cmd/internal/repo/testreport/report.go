package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json; see "go doc test2json".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds, without the time that a parallel test waited for its turn
}

// key is a test of a package; with an empty test, the package itself.
type key struct{ pkg, test string }

// report prints failures as they come and remembers skips for the end.
type report struct {
	out     io.Writer
	pending map[key][]string // output of what has not ended yet
	skipped map[string][]key // by reason
	count   map[string]int   // tests by action
	took    map[key]float64  // seconds, by test of the first level
	within  map[key]float64  // seconds of the subtests, which a test does not wait for if they are parallel
}

func newReport(out io.Writer) *report {
	return &report{out, map[key][]string{}, map[string][]key{}, map[string]int{}, map[key]float64{}, map[key]float64{}}
}

func (r *report) add(ev event) {
	k := key{ev.Package, ev.Test}
	switch ev.Action {
	case "build-output":
		fmt.Fprint(r.out, ev.Output)
	case "output":
		r.pending[k] = append(r.pending[k], ev.Output)
	case "pass", "fail", "skip":
		if ev.Test == "" {
			r.endPackage(k, ev.Action)
		} else {
			r.endTest(k, ev.Action)
			r.time(k, ev.Elapsed)
		}
	}
}

func (r *report) endTest(k key, action string) {
	r.count[action]++
	switch action {
	case "fail":
		fmt.Fprint(r.out, strings.Join(r.pending[k], ""))
	case "skip":
		why := reason(r.pending[k])
		r.skipped[why] = append(r.skipped[why], k)
	}
	delete(r.pending, k)
}

// time adds what a test took to the test of the first level that it belongs to.
func (r *report) time(k key, seconds float64) {
	name, sub, below := strings.Cut(k.test, "/")
	top := key{k.pkg, name}
	switch {
	case !below:
		r.took[top] = max(seconds, r.within[top])
	case !strings.Contains(sub, "/"):
		r.within[top] += seconds
	}
}

// endPackage prints the package's own line. Where the package failed it prints
// all that is left as well: a test that a panic or a deadline cut off never
// ends, and its output is what one needs to see.
func (r *report) endPackage(k key, action string) {
	left := slices.SortedFunc(maps.Keys(r.pending), func(a, b key) int {
		return -strings.Compare(a.test, b.test) // the package itself comes last
	})
	for _, p := range left {
		if p.pkg != k.pkg {
			continue
		}
		for _, line := range r.pending[p] {
			if action == "fail" || action == "pass" && strings.HasPrefix(line, "ok ") {
				fmt.Fprint(r.out, line)
			}
		}
		delete(r.pending, p)
	}
}

var location = regexp.MustCompile(`^[\w./-]+\.go:\d+: `)

// reason is what the test said when it skipped.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		said = append(said, location.ReplaceAllString(line, ""))
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return said[len(said)-1]
}

func (r *report) summary() {
	r.longest()
	fmt.Fprintf(r.out, "\n%d tests passed, %d failed, %d skipped\n", r.count["pass"], r.count["fail"], r.count["skip"])
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(r.out, "skipped: %s\n", why)
		byPackage := map[string][]string{}
		for _, k := range r.skipped[why] {
			byPackage[k.pkg] = append(byPackage[k.pkg], k.test)
		}
		for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
			fmt.Fprintf(r.out, "\t%s: %s\n", pkg, shorten(byPackage[pkg]))
		}
	}
}

// longest names the tests that one would shorten first.
func (r *report) longest() {
	const most, least = 30, 5 // tests, seconds
	tests := slices.SortedFunc(maps.Keys(r.took), func(a, b key) int { return cmp.Compare(r.took[b], r.took[a]) })
	for i, k := range tests[:min(most, len(tests))] {
		if r.took[k] < least {
			return
		}
		if i == 0 {
			fmt.Fprintln(r.out, "\nwhat took longest:")
		}
		fmt.Fprintf(r.out, "\t%4.0f s  %s %s\n", r.took[k], k.pkg, k.test)
	}
}

// shorten names at most four tests: a backend that is missing skips a hundred.
func shorten(tests []string) string {
	const most = 4
	if len(tests) <= most {
		return strings.Join(tests, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(tests[:most], ", "), len(tests)-most)
}
