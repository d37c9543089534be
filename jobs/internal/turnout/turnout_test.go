package turnout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/penstock-run/penstock/jobs/internal/turnout"
)

// However many wait, a few answer each notification, and hardly ever none.
func TestAFewAnswer(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{1, 3, 10, 100, 1000, 3000} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			t.Parallel()
			chances := make([]turnout.Chance, waiting)
			answers, none := 0, 0
			const warm, seen = 200, 2000
			for n := range warm + seen {
				var answer []int
				for i := range chances {
					if chances[i].Answer() {
						answer = append(answer, i)
					}
				}
				if len(answer) > 0 {
					first := rand.IntN(len(answer))
					for i, who := range answer {
						chances[who].Tell(true, i == first)
					}
				} else { // the next that looks by itself
					chances[rand.IntN(waiting)].Tell(false, true)
				}
				if n < warm {
					continue
				}
				answers += len(answer)
				if len(answer) == 0 {
					none++
				}
			}
			if most := min(waiting, 20); answers > most*seen {
				t.Errorf("%.1f answer each time, want %d at most", float64(answers)/seen, most)
			}
			if none > seen/50 || waiting <= 3 && none > 0 {
				t.Errorf("none answers %d of %d times", none, seen)
			}
		})
	}
}

// One of many that is left alone takes to answering again.
func TestTheLastOne(t *testing.T) {
	t.Parallel()
	var c turnout.Chance
	for range 1000 {
		c.Tell(true, false)
	}
	for range 4 {
		c.Tell(false, true)
	}
	for range 1000 {
		if !c.Answer() {
			t.Fatal("it does not answer, and there is no other")
		}
	}
}
