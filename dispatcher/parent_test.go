package dispatcher_test

import (
	"errors"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
)

// field is the first field that an error says is wrong, or "".
func field(t *testing.T, err error) string {
	t.Helper()
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return invalid.Fields[0].Field
}

func TestGenerationsAreBounded(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	for _, depth := range []int{0, 1, 3} {
		nc := s.Connect()
		q := jobstest.Queue(t, nc, queue.Config{})
		d := dispatcher.New(dispatcher.Config{Queue: q, Log: jobstest.Log(t, nc), Store: jobstest.Store(t, nc), MaxDepth: depth})
		parent, generations := "", 0
		for ; generations < 10; generations++ {
			child := job()
			child.Parent = parent
			made, err := d.Submit(t.Context(), child, "test")
			if wrong := field(t, err); wrong == "parent" {
				break
			} else if wrong != "" {
				t.Fatal(err)
			}
			rec, err := q.Get(t.Context(), made.ID)
			if err != nil || rec.Parent != parent {
				t.Fatalf("got parent %q, %v; want %q", rec.Parent, err, parent)
			}
			parent = made.ID
		}
		if generations != depth+1 {
			t.Errorf("with %d generations of children there are %d in all", depth, generations)
		}
	}
}

// A child may cost what its parent has left, and the same submission again is the same
// job, though less is left by then.
func TestAChildStaysWithinItsParentsBudget(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	j := job()
	j.Budget.USD = 2
	parent, err := p.Submit(t.Context(), j, "test")
	if err != nil {
		t.Fatal(err)
	}
	child := func(key string, usd float64) (operation.Submitted, error) {
		j := job()
		j.Parent, j.Key, j.Budget.USD = parent.ID, key, usd
		return p.Submit(t.Context(), j, "test")
	}
	if _, err := child("first", 2); err != nil {
		t.Fatal(err)
	}
	claim := jobstest.Claim(t, p.queue, "w")
	if claim.Record().ID != parent.ID {
		t.Fatalf("claimed %s", claim.Record().ID)
	}
	claim.Spend(jobs.Spent{CostUSD: 0.5})
	if _, err := claim.Settle(t.Context(), jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		usd  float64
		want string
	}{{"none", 0, "budget.usd"}, {"much", 1.51, "budget.usd"}, {"rest", 1.5, ""}, {"first", 2, ""}} {
		made, err := child(c.key, c.usd)
		if field(t, err) != c.want || made.Duplicate != (c.key == "first") {
			t.Errorf("%v US dollars: got %+v, %v; want the field %q named", c.usd, made, err, c.want)
		}
	}
}
