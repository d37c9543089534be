package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/selector"
)

// MaxCap is the highest number that a [Cap] may have: its holders are listed
// in a single value of the broker. MaxCaps bounds how many caps there may be.
const (
	MaxCap  = 1000
	MaxCaps = 100
)

// A Cap bounds how many jobs that have something in common run at once, in
// the whole pool. Its Key is a selector, as [selector.Check] describes it: "repo:*" at 2 lets two
// jobs of every repository run.
type Cap struct {
	Key  string `json:"key" yaml:"key" jsonschema:"What is counted: queue:NAME and the like."`
	Most int    `json:"most" yaml:"most" jsonschema:"How many jobs may run at once."`
}

func (c Cap) String() string { return c.Key + "=" + strconv.Itoa(c.Most) }

// ParseCap reads a cap as people write it: KEY=N.
func ParseCap(s string) (Cap, error) {
	key, most, err := selector.Split(s)
	if err != nil {
		return Cap{}, fmt.Errorf("%q is not KEY=N, as in repo:*=2", s)
	}
	n, err := strconv.Atoi(most)
	if err != nil {
		return Cap{}, fmt.Errorf("%q: %q is not a number", s, most)
	}
	c := Cap{key, n}
	return c, c.Check()
}

// Check reports what is wrong with a cap.
func (c Cap) Check() error {
	if err := selector.Check(c.Key); err != nil {
		return fmt.Errorf("cap %.1024q: %w", c.Key, err)
	}
	if c.Most < 1 || c.Most > MaxCap {
		return fmt.Errorf("cap %q: %d is not between 1 and %d; to let nothing run, pause the queue or the batch", c.Key, c.Most, MaxCap)
	}
	return nil
}

// Caps are those of a pool.
type Caps []Cap

// Check reports what is wrong with the caps.
func (c Caps) Check() error {
	if len(c) > MaxCaps {
		return fmt.Errorf("%d caps: at most %d are allowed", len(c), MaxCaps)
	}
	seen := map[string]bool{}
	for _, one := range c {
		if err := one.Check(); err != nil {
			return err
		}
		if seen[one.Key] {
			return fmt.Errorf("cap %q is there twice", one.Key)
		}
		seen[one.Key] = true
	}
	return nil
}

// Of returns the caps that bound a job, by key, each with the job's own value
// for the *.
func (c Caps) Of(r jobs.Record) []Cap {
	keys := make([]string, len(c))
	for i, one := range c {
		keys[i] = one.Key
	}
	var found []Cap
	for _, m := range selector.Of(keys, r) {
		found = append(found, Cap{m.Key, c[m.At].Most})
	}
	return found
}

// A CapUse says how many jobs run under a cap. For a cap with a * that is how
// many it counts in all.
type CapUse struct {
	Cap
	Running int `json:"running" jsonschema:"How many run now."`
}

// Used says how many of the jobs that run each of the caps counts, and has one more for each
// value of a * that they run under.
func (c Caps) Used(running []jobs.Record) []CapUse {
	var list []CapUse
	for _, one := range c {
		whole, values := CapUse{Cap: one}, map[string]int{}
		for _, rec := range running {
			for _, own := range c.Of(rec) {
				if only := (Caps{one}).Of(rec); len(only) == 1 && only[0] == own {
					whole.Running++
					values[own.Key]++
				}
			}
		}
		list = append(list, whole)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if key != one.Key {
				list = append(list, CapUse{Cap: Cap{Key: key, Most: one.Most}, Running: values[key]})
			}
		}
	}
	return list
}
