package schedule_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// What Before says of each job that waits is where Next makes it ready, whatever turn it is.
func TestBefore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's choices
		caps := schedule.Caps{{Key: "repo:*", Most: 1000}, {Key: "agent:idle", Most: 1000}}
		plan := schedule.New(caps)
		var all []jobs.Record
		for i := range 1 + random.IntN(60) {
			rec := jobs.Record{
				ID: fmt.Sprintf("%04d", i), Class: "default", Lane: "p1", Queue: "default", Batch: fmt.Sprint("b", random.IntN(3)),
				Repo: fmt.Sprint("r", random.IntN(2)), Agent: []string{"busy", "idle"}[random.IntN(2)],
				Labels: map[string]string{schedule.OwnerLabel: fmt.Sprint("o", random.IntN(3))},
			}
			all = append(all, rec)
		}
		for _, i := range random.Perm(len(all)) {
			plan.Set(all[i], schedule.Waiting)
		}
		// Some turns are over.
		some := random.IntN(len(all) + 1)
		for _, rec := range plan.Next(func(jobs.Record) int { return some }) {
			plan.Remove(rec.ID)
			all = slices.DeleteFunc(all, func(r jobs.Record) bool { return r.ID == rec.ID })
		}
		none := func(schedule.Group) bool { return false }
		says, bounds := map[string]int{}, map[string]map[string]int{}
		for _, rec := range all {
			says[rec.ID], bounds[rec.ID] = plan.Before(rec.ID, none)
		}
		if n := plan.Waiting("default", "p1", none); n != len(all) {
			t.Fatalf("seed %d: %d wait, want %d", seed, n, len(all))
		}
		counted := map[string]int{}
		for i, rec := range plan.Next(func(jobs.Record) int { return math.MaxInt }) {
			if says[rec.ID] != i {
				t.Fatalf("seed %d: %d jobs before %s, but it is number %d", seed, says[rec.ID], rec.ID, i)
			}
			for key, n := range counted {
				if bounds[rec.ID][key] < n {
					t.Fatalf("seed %d: at most %d jobs of %s before %s, but there are %d", seed, bounds[rec.ID][key], key, rec.ID, n)
				}
			}
			group, _, _ := plan.Find(rec.ID)
			for _, c := range group.Caps {
				counted[c.Key]++
			}
		}
	}
}

func TestBeforeSkips(t *testing.T) {
	t.Parallel()
	plan := schedule.New(schedule.Caps{{Key: "repo:*", Most: 1}})
	job := func(id, batch, repo string) jobs.Record {
		return jobs.Record{ID: id, Class: "default", Lane: "p1", Batch: batch, Repo: repo}
	}
	plan.Set(job("a", "one", "x"), schedule.Running)
	plan.Set(job("b", "one", "x"), schedule.Waiting)
	plan.Set(job("c", "one", "y"), schedule.Waiting)
	plan.Set(job("d", "two", "y"), schedule.Waiting)
	plan.Set(job("e", "one", "y"), schedule.Waiting)
	if n, _ := plan.Before("e", plan.Full); n != 2 { // c and d, but not b, whose cap is full
		t.Errorf("%d jobs before e, want 2", n)
	}
	if n, capped := plan.Before("e", func(g schedule.Group) bool { return plan.Full(g) || g.Sample.Batch == "two" }); n != 1 || capped["repo:y"] != 1 {
		t.Errorf("%d jobs before e, of which %v are counted by caps, want c", n, capped)
	}
	pending := 0
	for g := range plan.Groups() {
		pending += g.Pending
	}
	if pending != 4 {
		t.Errorf("%d jobs are pending, want 4", pending)
	}
	if n, _ := plan.Before("nobody", plan.Full); n != 0 {
		t.Errorf("%d jobs before one that is not there", n)
	}
}
