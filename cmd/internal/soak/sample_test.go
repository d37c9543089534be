package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// What leaks in each run, and is whole again after a restart, is found; so is what stays
// over all runs. What only falls and rises with the load is not.
func TestALeakIsFound(t *testing.T) {
	t.Parallel()
	s := &samples{window: time.Minute}
	leaks, stays, load := &series{name: "leaks", unit: mib}, &series{name: "stays", whole: true}, &series{name: "load"}
	s.all = []*series{leaks, stays, load}
	const each = 20
	for n := range runs * windows * each {
		run := n / (windows * each)
		s.at, s.run = append(s.at, time.Duration(n)*s.window/each), append(s.run, run)
		leaks.values = append(leaks.values, 100+float64(n%(windows*each))/2)
		stays.values = append(stays.values, float64(run))
		load.values = append(load.values, float64(n%each))
	}
	for _, v := range s.judge() {
		if want := v.name != "load"; v.grows != want {
			t.Errorf("%s: grows %v, want %v: %+v", v.name, v.grows, want, v)
		}
	}
	picture := string(plot(s))
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
