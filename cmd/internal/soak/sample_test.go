package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What leaks in each run, and is whole again after a restart, is found; so is what stays
// over all runs. What only falls and rises with the load is not.
func TestALeakIsFound(t *testing.T) {
	t.Parallel()
	s := &samples{window: time.Minute}
	leaks, stays, load := &series{Graph: measure.Graph{Name: "leaks", Unit: measure.MiB}}, &series{Graph: measure.Graph{Name: "stays"}, whole: true}, &series{Graph: measure.Graph{Name: "load"}}
	s.all = []*series{leaks, stays, load}
	const each = 20
	for n := range runs * windows * each {
		run := n / (windows * each)
		s.at, s.run = append(s.at, time.Duration(n)*s.window/each), append(s.run, run)
		leaks.Values = append(leaks.Values, 100+float64(n%(windows*each))/2)
		stays.Values = append(stays.Values, float64(run))
		load.Values = append(load.Values, float64(n%each))
	}
	for _, v := range s.judge() {
		if want := v.Name != "load"; v.grows != want {
			t.Errorf("%s: grows %v, want %v: %+v", v.Name, v.grows, want, v)
		}
	}
	picture := string(s.plot())
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot: %v", err)
		}
	}
	if n := strings.Count(picture, "<polyline"); n != 3 {
		t.Errorf("%d lines in the plot, want 3", n)
	}
}

// What is swept now and then is judged by what a sweep leaves.
func TestWhatIsSweptIsJudgedByWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := &samples{window: time.Hour / (runs * windows)}
	flat, leaks := &series{Graph: measure.Graph{Name: "flat", Unit: measure.MiB}, whole: true, swept: true}, &series{Graph: measure.Graph{Name: "leaks", Unit: measure.MiB}, whole: true, swept: true}
	s.all = []*series{flat, leaks}
	// Between sweeps come 20 to 200 more, and more in each hour's later part.
	for at := time.Duration(0); at < time.Hour; at += 10 * time.Second {
		s.at, s.run = append(s.at, at), append(s.run, int(at*runs/time.Hour))
		since := (at % (5 * time.Minute)).Minutes()
		flat.Values = append(flat.Values, 20+since*at.Minutes()/2)
		leaks.Values = append(leaks.Values, 20+at.Minutes()+since*10)
	}
	for _, v := range s.judge() {
		if want := v.Name == "leaks"; v.grows != want {
			t.Errorf("%s: grows %v, want %v: %+v", v.Name, v.grows, want, v)
		}
	}
	flat.swept = false
	if v := s.judge()[0]; !v.grows {
		t.Errorf("the test's own values would not do: %+v", v)
	}
}

// What other pools of the host leave is theirs.
func TestGroupsAreThePools(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"pids/penstock", "pids/penstock/job.2.pool-cda5a46bf8a9_1ulajuk-10807-316743-5", "pids/penstock/_1ulajuk-919-20-1", "pids/penstock/x_1ulajuk-10-10807-919"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := groups(root, []int{10807, 919, 7}); got != 2 {
		t.Errorf("got %v of 2 groups", got)
	}
}
