package measure

import (
	"math"
	"slices"
)

// A Trend is how a series changes from window to window.
type Trend struct {
	Slope float64 // of one window, the median of the slopes of all pairs (Theil and Sen)
	Tau   float64 // how many more pairs rise than fall, of all pairs (Kendall): 1 if all rise
}

// allowed is how much of its median a series may grow in one run, and sure how many pairs of
// windows must agree, before it counts as growth. Both must be exceeded: one window that
// is high does not make a trend, and a trend of a few percent is how caches warm up.
const (
	allowed = 0.20
	sure    = 0.5
)

// Growth finds the trend of the medians of windows. Each segment is a time without a
// restart, and only windows of one segment are compared.
func Growth(segments [][]float64) Trend {
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
		return Trend{}
	}
	return Trend{Median(slopes), float64(rise-fall) / float64(len(slopes))}
}

// Judge says of a series of so many windows in a run by which share of its median it grows in
// one run, and whether that counts as growth.
func (t Trend) Judge(median float64, perRun int) (share float64, grows bool) {
	rise := t.Slope * float64(perRun-1)
	switch {
	case rise <= 0:
		return share, false
	case median == 0: // it was never there, and is now
		return math.Inf(1), t.Tau > sure
	}
	share = rise / median
	return share, share > allowed && t.Tau > sure
}

// Median is the middle of some values; NaN of none.
func Median(values []float64) float64 {
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
