package idset_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/idset"
)

// A set has the ids that were added, but for those that were removed.
func TestSet(t *testing.T) {
	t.Parallel()
	var want []string
	for i := range 50 {
		want = append(want, jobs.NewID(), fmt.Sprint("other-", i))
	}
	want = append(want, strings.ReplaceAll(jobs.NewID(), "-", "")) // a form in which no id is written
	s := idset.Of(slices.Values(want))
	for i, id := range want {
		if !s.Has(id) {
			t.Errorf("%s is missing", id)
		}
		if i%3 == 0 {
			s.Remove(id)
			if s.Has(id) {
				t.Errorf("%s is still there", id)
			}
			want[i] = ""
		}
	}
	want = slices.DeleteFunc(want, func(id string) bool { return id == "" })
	got := slices.Sorted(s.All())
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("ids\n%v, want\n%v", got, want)
	}
	if s.Has(jobs.NewID()) || s.Has("") {
		t.Error("it has an id that was not added")
	}
	s.Remove(jobs.NewID())
}
