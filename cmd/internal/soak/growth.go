package main

import (
	"math"
	"slices"
)

// A trend is how a series changes from window to window.
type trend struct {
	slope float64 // of one window, the median of the slopes of all pairs (Theil and Sen)
	tau   float64 // how many more pairs rise than fall, of all pairs (Kendall): 1 if all rise
}

// allowed is how much of its median a series may grow in one run, and sure how many pairs of
// windows must agree, before it counts as growth. Both must be exceeded: one window that
// is high does not make a trend, and a trend of a few percent is how caches warm up.
const (
	allowed = 0.20
	sure    = 0.5
)

// growth finds the trend of the medians of windows. Each segment is a time without a
// restart, and only windows of one segment are compared.
func growth(segments [][]float64) trend {
	var slopes []float64
	rise, fall := 0, 0
	for _, medians := range segments {
		for i := range medians {
			for j := i + 1; j < len(medians); j++ {
				slope := (medians[j] - medians[i]) / float64(j-i)
				slopes = append(slopes, slope)
				switch {
				case slope > 0:
					rise++
				case slope < 0:
					fall++
				}
			}
		}
	}
	if len(slopes) == 0 {
		return trend{}
	}
	return trend{median(slopes), float64(rise-fall) / float64(len(slopes))}
}

// judged says of a series of so many windows in a run whether it grows.
func judged(t trend, middle float64, perRun int) (share float64, grows bool) {
	rise := t.slope * float64(perRun-1)
	switch {
	case rise <= 0:
		return share, false
	case middle == 0: // it was never there, and is now
		return math.Inf(1), t.tau > sure
	}
	share = rise / middle
	return share, share > allowed && t.tau > sure
}

// median is the middle of some values; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
