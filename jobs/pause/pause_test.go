package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-run/penstock/jobs/pause"
)

func TestFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit, pause, took time.Duration
		lived              bool
	}{
		"the time is over first": {limit: time.Hour, pause: time.Minute, took: time.Minute, lived: true},
		"the context ends first": {limit: time.Minute, pause: time.Hour, took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				began := time.Now()
				lived := pause.For(ctx, test.pause)
				if took := time.Since(began); lived != test.lived || took != test.took {
					t.Errorf("lived %t after %v, want %t after %v", lived, took, test.lived, test.took)
				}
			})
		})
	}
}
