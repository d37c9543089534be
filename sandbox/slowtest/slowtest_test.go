package slowtest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStretch(t *testing.T) {
	for _, tt := range []struct {
		crowd, bearable float64
		want            time.Duration
	}{
		{0, 2, time.Second}, {2, 2, time.Second}, {4, 2, 2 * time.Second}, {20, 2, 10 * time.Second},
		{8, 8, time.Second}, {20, 8, 2500 * time.Millisecond}, {400, 2, most * time.Second},
	} {
		if got := stretch(time.Second, tt.crowd, tt.bearable); got != tt.want {
			t.Errorf("%v processes share a processor that bears %v: one second became %v, want %v", tt.crowd, tt.bearable, got, tt.want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{
		"0.31 1.62 3.66 2/421 8119\n":   2,
		"41.07 12.10 6.20 3/900 8119\n": 41.07,
		"x 12.10 6.20 y/900 8119\n":     1,
		"":                              1,
	} {
		if got := parse(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		if !Eventually(time.Second, time.Millisecond, func() bool { asked++; return asked == 100 }) {
			t.Error("what came in time was not seen")
		}
		began := time.Now()
		if Eventually(time.Second, time.Millisecond, func() bool { return false }) {
			t.Error("what never came was seen")
		}
		if spent := time.Since(began); spent < time.Second || spent > (most+1)*time.Second {
			t.Errorf("waited %v for it", spent)
		}
	})
}

func TestAMachineThatCannotSeeItsHost(t *testing.T) {
	t.Setenv("PENSTOCK_TEST_CROWD", "10")
	if got := Limit(time.Second); got < 10/roomy*time.Second {
		t.Errorf("where ten processes share a processor one second became %v", got)
	}
}
