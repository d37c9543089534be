package retention

import (
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/selector"
)

// A Rule says how long finished jobs are kept that have something in common. Its Key is a
// selector, as [selector.Check] describes it.
type Rule struct {
	Key  string
	Keep time.Duration // counted from a job's end
}

// Rules are those of a pool.
type Rules []Rule

// MaxRules bounds how many rules there may be: each finished job is compared with all of them.
const MaxRules = 100

// Check reports what is wrong with the rules of a pool that keeps all others for some time.
func (r Rules) Check(most time.Duration) error {
	if len(r) > MaxRules {
		return fmt.Errorf("%d rules: at most %d are allowed", len(r), MaxRules)
	}
	seen := map[string]bool{}
	for _, one := range r {
		if err := selector.Check(one.Key); err != nil {
			return fmt.Errorf("rule %.1024q: %w", one.Key, err)
		}
		if one.Keep > most {
			return fmt.Errorf("rule %q: %v is more than the %v for which the pool keeps any job: raise that, and add rules for the others", one.Key, one.Keep, most)
		}
		if seen[one.Key] {
			return fmt.Errorf("rule %q is there twice", one.Key)
		}
		seen[one.Key] = true
	}
	return nil
}

// Keep returns how long a job is kept by the rules, and whether one is about it. Of several the
// shortest counts.
func (r Rules) Keep(rec jobs.Record) (keep time.Duration, found bool) {
	keys := make([]string, len(r))
	for i, one := range r {
		keys[i] = one.Key
	}
	for _, m := range selector.Of(keys, rec) {
		if one := r[m.At].Keep; !found || one < keep {
			keep, found = one, true
		}
	}
	return keep, found
}
