package cli

import (
	"fmt"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/retention"
	"github.com/penstock-run/penstock/jobs/selector"
)

// leastKept is the shortest retention: a running job needs its own events.
const leastKept = time.Hour

func (k KeepConfig) validate() error {
	for _, kept := range []struct {
		name string
		time time.Duration
	}{{"jobs", k.Jobs}, {"events", k.Events}, {"results", k.Results}, {"artifacts", k.Artifacts}, {"dead_letters", k.Dead}, {"audit", k.Audit}} {
		if kept.time < leastKept {
			return Usage("", "retention.%s: %v is less than %v", kept.name, kept.time, leastKept)
		}
	}
	if _, err := k.ByKey(); err != nil {
		return Usage("", "retention.rules: %w", err)
	}
	for name, text := range map[string]string{"events_bytes": k.EventsBytes, "artifacts_bytes": k.ArtifactsBytes, "store_bytes": k.Store, "reserve": k.Reserve} {
		if _, err := bytesOr(text, 0); err != nil {
			return Usage("", "retention.%s: %w", name, err)
		}
	}
	return nil
}

// ByKey are the rules as values. Those of a checked configuration are right.
func (k KeepConfig) ByKey() (retention.Rules, error) {
	rules := retention.Rules{}
	for _, text := range k.Rules {
		key, span, err := selector.Split(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not KEY=TIME, as in queue:nightly=7d", text)
		}
		keep, err := input.ParseSpan(span)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		if keep < leastKept {
			return nil, fmt.Errorf("%q: %v is less than %v", text, keep, leastKept)
		}
		rules = append(rules, retention.Rule{Key: key, Keep: keep})
	}
	return rules, rules.Check(k.Jobs)
}

// bytesOr reads a size; an empty one is none.
func bytesOr(text string, none int64) (int64, error) {
	if text == "" {
		return none, nil
	}
	n, err := jobs.ParseBytes(text)
	if err == nil && n < 1<<20 {
		err = fmt.Errorf("%s is less than 1MiB", text)
	}
	return int64(n), err
}

// Sizes returns the sizes in bytes, 0 for no limit.
func (k KeepConfig) Sizes() (events, artifacts, store, reserve int64) {
	for text, n := range map[*string]*int64{&k.EventsBytes: &events, &k.ArtifactsBytes: &artifacts, &k.Store: &store, &k.Reserve: &reserve} {
		*n, _ = bytesOr(*text, 0) // Load has validated it
	}
	return events, artifacts, store, reserve
}
