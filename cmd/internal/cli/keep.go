package cli

import (
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
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
	for name, text := range map[string]string{"events_bytes": k.EventsBytes, "artifacts_bytes": k.ArtifactsBytes, "store_bytes": k.Store, "reserve": k.Reserve} {
		if _, err := bytesOr(text, 0); err != nil {
			return Usage("", "retention.%s: %w", name, err)
		}
	}
	return nil
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
