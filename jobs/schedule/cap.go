package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// MaxCap is the highest number that a [Cap] may have: its holders are listed
// in a single value of the broker. MaxCaps bounds how many caps there may be.
const (
	MaxCap  = 1000
	MaxCaps = 100
)

// A Cap bounds how many jobs that have something in common run at once, in
// the whole pool. Its Key says what they have in common:
//
//	queue:NAME   batch:ID   agent:NAME   repo:URL   label:NAME=VALUE
//
// With * instead of a value it bounds each value on its own: "repo:*" at 2
// lets two jobs of every repository run. A cap for one value replaces the one
// for each of its kind.
type Cap struct {
	Key  string `json:"key" yaml:"key" jsonschema:"What is counted: queue:NAME and the like."`
	Most int    `json:"most" yaml:"most" jsonschema:"How many jobs may run at once."`
}

func (c Cap) String() string { return c.Key + "=" + strconv.Itoa(c.Most) }

// capKinds are what jobs can have in common, and where to see it.
var capKinds = map[string]func(jobs.Record) string{
	"queue": func(r jobs.Record) string { return r.Queue },
	"batch": func(r jobs.Record) string { return r.Batch },
	"agent": func(r jobs.Record) string { return r.Agent },
	"repo":  func(r jobs.Record) string { return r.Repo },
}

// ParseCap reads a cap as people write it: KEY=N.
func ParseCap(s string) (Cap, error) {
	at := strings.LastIndexByte(s, '=')
	if at < 0 {
		return Cap{}, fmt.Errorf("%q is not KEY=N, as in repo:*=2", s)
	}
	n, err := strconv.Atoi(s[at+1:])
	if err != nil {
		return Cap{}, fmt.Errorf("%q: %q is not a number", s, s[at+1:])
	}
	c := Cap{s[:at], n}
	return c, c.Check()
}

// Check reports what is wrong with a cap.
func (c Cap) Check() error {
	kind, value, ok := strings.Cut(c.Key, ":")
	label, of, isLabel := strings.Cut(value, "=")
	switch {
	case !ok || value == "" || capKinds[kind] == nil && kind != "label":
		return fmt.Errorf("cap %q: use queue:NAME, batch:ID, agent:NAME, repo:URL or label:NAME=VALUE, or * for each NAME, ID, URL or VALUE", c.Key)
	case kind == "label" && (!isLabel || label == "" || of == ""):
		return fmt.Errorf("cap %q: a label is NAME=VALUE, or NAME=* for each value", c.Key)
	case c.Most < 1 || c.Most > MaxCap:
		return fmt.Errorf("cap %q: %d is not between 1 and %d; to let nothing run, pause the queue or the batch", c.Key, c.Most, MaxCap)
	case len(c.Key) > 1024:
		return fmt.Errorf("cap %.40q…: is longer than 1024 bytes", c.Key)
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
	var found []Cap
	for _, one := range c {
		kind, value, _ := strings.Cut(one.Key, ":")
		prefix, own := kind+":", ""
		if kind == "label" {
			name, of, _ := strings.Cut(value, "=")
			prefix, own, value = prefix+name+"=", r.Labels[name], of
		} else {
			own = capKinds[kind](r)
		}
		exact := prefix + own
		replaced := value == "*" && slices.ContainsFunc(c, func(other Cap) bool { return other.Key == exact })
		if own != "" && !replaced && (value == "*" || value == own) {
			found = append(found, Cap{exact, one.Most})
		}
	}
	slices.SortFunc(found, func(a, b Cap) int { return cmp.Compare(a.Key, b.Key) })
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
