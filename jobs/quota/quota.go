package quota

import (
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/selector"
)

// A Quota bounds how many jobs that have something in common may be open at a time: accepted, and
// not finished. Its Key is a selector, as [selector.Check] describes it.
type Quota struct {
	Key  string
	Most int
}

// Quotas are those of a pool.
type Quotas []Quota

const (
	// MaxQuotas bounds how many quotas there may be: each job that is submitted is compared with
	// all of them.
	MaxQuotas = 100
	// mostOpen is the highest number that a quota may have; a lane takes no more jobs.
	mostOpen = 1_000_000
)

// Parse reads a quota as people write it: KEY=N.
func Parse(text string) (Quota, error) {
	key, n, err := selector.Count(text, "label:owner=*=100")
	if err != nil {
		return Quota{}, err
	}
	q := Quota{key, n}
	return q, q.check()
}

func (q Quota) check() error {
	if err := selector.Check(q.Key); err != nil {
		return fmt.Errorf("quota %.1024q: %w", q.Key, err)
	}
	if q.Most < 1 || q.Most > mostOpen {
		return fmt.Errorf("quota %q: %d is not between 1 and %d", q.Key, q.Most, mostOpen)
	}
	return nil
}

// Check reports what is wrong with the quotas.
func (q Quotas) Check() error {
	if len(q) > MaxQuotas {
		return fmt.Errorf("%d quotas: at most %d are allowed", len(q), MaxQuotas)
	}
	seen := map[string]bool{}
	for _, one := range q {
		if err := one.check(); err != nil {
			return err
		}
		if seen[one.Key] {
			return fmt.Errorf("quota %q is there twice", one.Key)
		}
		seen[one.Key] = true
	}
	return nil
}

// A Bound is a quota as it bounds a job.
type Bound struct {
	Quota        // with the job's own value for the *
	Of    string // the key as it was configured
}

// Of returns the quotas that bound a job, by key.
func (q Quotas) Of(rec jobs.Record) []Bound {
	if len(q) == 0 {
		return nil
	}
	keys := make([]string, len(q))
	for i, one := range q {
		keys[i] = one.Key
	}
	var found []Bound
	for _, m := range selector.Of(keys, rec) {
		found = append(found, Bound{Quota{m.Key, q[m.At].Most}, q[m.At].Key})
	}
	return found
}

// A Usage is how much of a quota is used.
type Usage struct {
	Key  string `json:"key"`  // as it was configured
	Open int    `json:"open"` // jobs that count; of a key with a *, those of the value that has most of them
	Most int    `json:"most"`
}
