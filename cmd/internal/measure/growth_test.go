package measure

import (
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGrowth(t *testing.T) {
	t.Parallel()
	const runs, windows = 3, 6
	random := rand.New(rand.NewPCG(1, 2))
	series := func(each func(n int) float64) (segments [][]float64) {
		for range runs {
			var medians []float64
			for n := range windows {
				medians = append(medians, each(n))
			}
			segments = append(segments, medians)
		}
		return segments
	}
	for _, test := range []struct {
		name  string
		each  func(n int) float64
		grows bool
	}{
		{"flat", func(int) float64 { return 100 }, false},
		{"noise", func(int) float64 { return 100 + 30*random.Float64() }, false},
		{"one high window", func(n int) float64 { return 100 + 400*float64(n/(windows-1)) }, false},
		{"warms up", func(n int) float64 { return 100 + 2*float64(n) }, false},
		{"shrinks", func(n int) float64 { return 200 - 10*float64(n) }, false},
		{"leaks", func(n int) float64 { return 100 + 8*float64(n) }, true},
		{"leaks under noise", func(n int) float64 { return 100 + 10*float64(n) + 10*random.Float64() }, true},
		{"appears", func(n int) float64 { return float64(max(0, n-1)) }, true},
		{"is never there", func(int) float64 { return 0 }, false},
	} {
		segments := series(test.each)
		var all []float64
		for _, s := range segments {
			all = append(all, s...)
		}
		found := Growth(segments)
		if share, grows := found.Judge(Median(all), windows); grows != test.grows {
			t.Errorf("%s: %+v, %.2f of the median: grows %v, want %v", test.name, found, share, grows, test.grows)
		}
	}
}
