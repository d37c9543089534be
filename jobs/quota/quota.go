package quota

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/selector"
)

// A Quota bounds jobs that have something in common. Its Key is a selector, as [selector.Check]
// describes it.
type Quota struct {
	Key  string
	Unit Unit
	Most int64
}

// which is the quota without its bound: there is one of each key and unit.
func (q Quota) which() Quota { return Quota{Key: q.Key, Unit: q.Unit} }

// A Unit is what a quota counts.
type Unit string

const (
	// OpenJobs are jobs that were accepted, and have not finished.
	OpenJobs Unit = "jobs"
	// StoredBytes are what the pool stores of jobs, see [jobs.Record.Stored], of those that have
	// finished too.
	StoredBytes Unit = "bytes"
)

// Quotas are those of a pool.
type Quotas []Quota

const (
	// MaxQuotas bounds how many quotas there may be: each job that is submitted is compared with
	// all of them.
	MaxQuotas = 100
	// mostOpen is the highest number that a quota may have; a lane takes no more jobs.
	mostOpen = 1_000_000
)

// Parse reads a quota as people write it: KEY=N for open jobs, and KEY=SIZE, which has a unit, for
// stored bytes.
func Parse(text string) (Quota, error) {
	key, most, err := selector.Split(text)
	if err != nil {
		return Quota{}, fmt.Errorf("%q is not KEY=N or KEY=SIZE, as in label:owner=*=100 or label:owner=*=20GiB", text)
	}
	q := Quota{Key: key, Unit: OpenJobs}
	if q.Most, err = strconv.ParseInt(most, 10, 64); err != nil {
		size, wrong := jobs.ParseBytes(most)
		if wrong != nil || !strings.HasSuffix(most, "B") {
			return Quota{}, fmt.Errorf("%q: %q is neither a number of jobs nor a size, as in 100 or 20GiB", text, most)
		}
		q.Unit, q.Most = StoredBytes, int64(size)
	}
	return q, q.check()
}

func (q Quota) check() error {
	if err := selector.Check(q.Key); err != nil {
		return fmt.Errorf("quota %.1024q: %w", q.Key, err)
	}
	if q.Most < 1 || q.Unit == OpenJobs && q.Most > mostOpen {
		return fmt.Errorf("quota %q: %d is not between 1 and %d jobs, or at least 1B", q.Key, q.Most, mostOpen)
	}
	return nil
}

// Check reports what is wrong with the quotas.
func (q Quotas) Check() error {
	if len(q) > MaxQuotas {
		return fmt.Errorf("%d quotas: at most %d are allowed", len(q), MaxQuotas)
	}
	seen := map[Quota]bool{}
	for _, one := range q {
		if err := one.check(); err != nil {
			return err
		}
		if seen[one.which()] {
			return fmt.Errorf("quota %q of %s is there twice", one.Key, one.Unit)
		}
		seen[one.which()] = true
	}
	return nil
}

// A Bound is a quota as it bounds a job.
type Bound struct {
	Quota        // with the job's own value for the *
	Of    string // the key as it was configured
}

// Of returns the quotas that bound a job: those of open jobs, then those of stored bytes, each by key.
func (q Quotas) Of(rec jobs.Record) (found []Bound) {
	for _, unit := range []Unit{OpenJobs, StoredBytes} {
		var keys []string
		var of []Quota
		for _, one := range q {
			if one.Unit == unit {
				keys, of = append(keys, one.Key), append(of, one)
			}
		}
		for _, m := range selector.Of(keys, rec) {
			found = append(found, Bound{Quota{m.Key, unit, of[m.At].Most}, of[m.At].Key})
		}
	}
	return found
}

// A Usage is how much of a quota is used.
type Usage struct {
	Key  string `json:"key"` // as it was configured
	Unit Unit   `json:"unit"`
	Used int64  `json:"used"` // of a key with a *, by the value that has most
	Most int64  `json:"most"`
}
