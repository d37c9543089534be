package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// The size of one graph of the plot, in pixels, and of the margin around it.
const (
	wide, high  = 420, 110
	left, above = 20, 34
)

// plot draws each series over time, two graphs beside each other. A line between two runs is
// a restart.
func plot(s *samples) []byte {
	var b bytes.Buffer
	rows := (len(s.all) + 1) / 2
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", 2*(wide+2*left), rows*(high+2*above))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	for i, one := range s.all {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", left+i%2*(wide+2*left), above+i/2*(high+2*above))
		s.graph(&b, one)
		fmt.Fprintln(&b, "</g>")
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

func (s *samples) graph(b *bytes.Buffer, one *series) {
	if len(one.values) == 0 {
		return
	}
	last, most := s.at[len(s.at)-1], max(1, slices.Max(one.values))
	x := func(i int) float64 { return wide * float64(s.at[i]) / float64(last) }
	fmt.Fprintf(b, `<text y="-8" fill="#1f2328">%s, up to %s</text>`+"\n", one.name, one.unit.text(slices.Max(one.values)))
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#d0d7de"/>`+"\n", wide, high)
	var points []string
	for i, v := range one.values {
		if i > 0 && s.run[i] != s.run[i-1] {
			fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y2="%d" stroke="#cf222e" stroke-dasharray="3 3"/>`+"\n", x(i), x(i), high)
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), high-high*v/most))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#0969da" stroke-width="1.2"/>`+"\n", strings.Join(points, " "))
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#57606a">%.0f min</text>`+"\n", wide, high+15, last.Minutes())
}
