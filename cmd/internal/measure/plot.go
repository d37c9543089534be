package measure

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Unit says how the values of a series are told.
type Unit string

// The units of series: a plain number, and bytes.
const (
	Number Unit = ""
	KiB    Unit = "KiB"
	MiB    Unit = "MiB"
)

// Text is a value in the unit.
func (u Unit) Text(v float64) string {
	switch u {
	case KiB:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	case MiB:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64)
}

// A Graph is a series to draw.
type Graph struct {
	Name   string
	Unit   Unit
	Values []float64
	// Bound, if there is one, is drawn beside the values: what they may be at most.
	Bound []float64
}

// The size of one graph of the plot, in pixels, and of the margin around it.
const (
	wide, high  = 420, 110
	left, above = 20, 34
)

// Plot draws each graph over the same time, two beside each other, as an SVG. At is when each
// value was taken, and run in which run: a line between two runs is a restart.
func Plot(at []time.Duration, run []int, graphs []Graph) []byte {
	var b bytes.Buffer
	rows := (len(graphs) + 1) / 2
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", 2*(wide+2*left), rows*(high+2*above))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	for i, one := range graphs {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", left+i%2*(wide+2*left), above+i/2*(high+2*above))
		one.draw(&b, at, run)
		fmt.Fprintln(&b, "</g>")
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

func (g Graph) draw(b *bytes.Buffer, at []time.Duration, run []int) {
	if len(g.Values) == 0 {
		return
	}
	last, most := at[len(at)-1], slices.Max(g.Values)
	top := most
	if len(g.Bound) > 0 {
		top = max(top, slices.Max(g.Bound))
	}
	scale := top
	if scale <= 0 {
		scale = 1
	}
	x := func(i int) float64 { return wide * float64(at[i]) / float64(last) }
	fmt.Fprintf(b, `<text y="-8" fill="#1f2328">%s, up to %s</text>`+"\n", g.Name, g.Unit.Text(most))
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#d0d7de"/>`+"\n", wide, high)
	for i := range g.Values {
		if i > 0 && run[i] != run[i-1] {
			fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y2="%d" stroke="#cf222e" stroke-dasharray="3 3"/>`+"\n", x(i), x(i), high)
		}
	}
	line := func(values []float64, style string) {
		var points []string
		for i, v := range values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), high-high*v/scale))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" %s/>`+"\n", strings.Join(points, " "), style)
	}
	if len(g.Bound) > 0 {
		line(g.Bound, `stroke="#57606a" stroke-dasharray="4 3"`)
	}
	line(g.Values, `stroke="#0969da" stroke-width="1.2"`)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#57606a">%.0f min</text>`+"\n", wide, high+15, last.Minutes())
}
