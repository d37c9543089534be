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

	"github.com/penstock-run/penstock/cmd/internal/measure/measuretest"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// The workers of a test are in processes of this binary, as they are in those of the command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-of" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// Hundreds of jobs go through a real server and come to an end. Where each one takes longer than
// the one before, the run is not flat.
func TestARunThatSlowsDownIsFoundOut(t *testing.T) {
	t.Parallel()
	program := measuretest.Program(t)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	o, err := parse([]string{
		"-program", program, "-dir", t.TempDir(), "-plot", plot,
		"-jobs", "150", "-workers", "3", "-slots", "2", "-host", "2", "-clients", "4", "-open", "20", "-slower", slowtest.Limit(8 * time.Millisecond).String(), // a busy machine makes single jobs slower
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), o, &out)
	t.Log(out.String())
	if err == nil || !strings.Contains(err.Error(), "not flat: the time of a job grows") || strings.Contains(err.Error(), "were settled") {
		t.Errorf("a run in which each job takes longer ends with %v", err)
	}
	if !strings.Contains(out.String(), "150 jobs in") || !strings.Contains(out.String(), "GROWS") {
		t.Error("it does not tell so")
	}
	text, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot: %v", err)
		}
	}
	if n := strings.Count(string(text), "<polyline"); n != 6 {
		t.Errorf("%d lines in the plot, want 6", n)
	}
}

// What a job takes is told for each tenth of the jobs, whenever the samples were taken.
func TestWindows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		rate  func(at float64) float64 // jobs a second
		grows bool
	}{
		{"flat", func(float64) float64 { return 100 }, false},
		{"waves", func(at float64) float64 { return 100 + 50*float64(int(at)%2) }, false},
		{"slows down", func(at float64) float64 { return 100 / (1 + at/20) }, true},
		{"gets faster", func(at float64) float64 { return 100 * (1 + at/20) }, false},
	} {
		s := &samples{}
		for at, settled := 0.0, 0.0; settled < 10_000; at += 0.5 {
			s.all = append(s.all, sample{at: time.Duration(at * float64(time.Second)), settled: settled, processor: 0.002 * settled})
			settled += 0.5 * test.rate(at)
		}
		v := s.judge()
		if v[0].grows != test.grows || v[1].grows {
			t.Errorf("%s: the time grows %v, want %v; processor time %v, want false: %+v", test.name, v[0].grows, test.grows, v[1].grows, v)
		}
		if p := v[1].median; p < 0.0019 || p > 0.0021 {
			t.Errorf("%s: %v s of processor time a job, want 0.002", test.name, p)
		}
	}
}
