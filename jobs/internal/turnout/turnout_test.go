package turnout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/penstock-run/penstock/jobs/internal/turnout"
)

// notified is who hears of one job, as a broker chooses: all that are in no group, and one of
// each group.
func notified(crowd []turnout.Crowd) (who []int) {
	groups := map[int][]int{}
	for i := range crowd {
		if group := crowd[i].Group(); group == 0 {
			who = append(who, i)
		} else {
			groups[group] = append(groups[group], i)
		}
	}
	for _, members := range groups {
		who = append(who, members[rand.IntN(len(members))])
	}
	return who
}

// However many wait, a few are notified of each job, and at least one.
func TestAFewAreNotified(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{1, 3, 10, 100, 1000, 3000} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			t.Parallel()
			crowd := make([]turnout.Crowd, waiting)
			answers := 0
			const warm, seen = 200, 2000
			for n := range warm + seen {
				who := notified(crowd)
				if len(who) == 0 {
					t.Fatal("none is notified")
				}
				gets := rand.IntN(len(who))
				for i, w := range who {
					crowd[w].Tell(true, i == gets)
				}
				if n >= warm {
					answers += len(who)
				}
			}
			if most := min(waiting, turnout.Groups+6); answers > most*seen {
				t.Errorf("%.1f are notified each time, want %d at most", float64(answers)/seen, most)
			}
		})
	}
}

// One that is left alone, or gets jobs, is notified of all again.
func TestOneLeavesItsGroup(t *testing.T) {
	t.Parallel()
	var c turnout.Crowd
	for range 1000 {
		c.Tell(true, false)
	}
	if group := c.Group(); group < 1 || group > turnout.Groups {
		t.Fatalf("it is in group %d after a thousand answers in vain", group)
	}
	c.Tell(false, false)
	for range 2 {
		c.Tell(false, true)
	}
	if c.Group() != 0 {
		t.Error("it got jobs, and is still in its group")
	}
}
