package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/retention"
)

func TestRulesOfRetention(t *testing.T) {
	k := Defaults().Keep
	k.Rules = []string{"queue:nightly=7d", "label:owner=ann=36h"}
	got, err := k.ByKey()
	want := retention.Rules{{Key: "queue:nightly", Keep: 7 * day}, {Key: "label:owner=ann", Keep: 36 * time.Hour}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for rule, says := range map[string]string{
		"nightly": "KEY=TIME", "queue:nightly=soon": "soon", "queue:nightly=10m": "less than 1h", "queue:nightly=31d": "raise that", "night=7d": "queue:NAME",
	} {
		k.Rules = []string{rule}
		if err := k.validate(); err == nil || !strings.Contains(err.Error(), "retention.rules") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", rule, err, says)
		}
	}
}
