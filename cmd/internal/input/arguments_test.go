package input

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestSplitDash(t *testing.T) {
	for _, c := range []struct{ args, before, after []string }{
		{[]string{"a", "b"}, []string{"a", "b"}, nil},
		{[]string{"a", "--", "b", "--", "c"}, []string{"a"}, []string{"b", "--", "c"}},
		{[]string{"--", "b"}, nil, []string{"b"}},
		{[]string{"a", "--"}, []string{"a"}, nil},
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if before, after := SplitDash(flags, flags.Args()); !slices.Equal(before, c.before) || !slices.Equal(after, c.after) {
			t.Errorf("%q: %q and %q", c.args, before, after)
		}
	}
}

func TestPairs(t *testing.T) {
	got, err := Pairs([]string{"A=1", "B=x=y", "C=", "A=2"})
	if want := map[string]string{"A": "2", "B": "x=y", "C": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Pairs(nil); err != nil || got != nil {
		t.Errorf("nothing: %q, %v", got, err)
	}
	if _, err := Pairs([]string{"A=1", "B"}); err == nil || err.Error() != `"B" is not NAME=VALUE` {
		t.Errorf("an entry without a value: %v", err)
	}
}

func TestPast(t *testing.T) {
	now := time.Date(2027, 1, 2, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "2h": now.Add(-2 * time.Hour), "-2h": now.Add(-2 * time.Hour), "3d": now.AddDate(0, 0, -3), "2027-01-01T00:00:00Z": time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := Past(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"yesterday", "d", "1.5d", "1d2h", "106752d", "-106752d", "9999999999999999999d"} {
		if at, err := Past(text, now); err == nil {
			t.Errorf("%q was taken for %v", text, at)
		}
	}
}
