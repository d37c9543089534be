package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/schedule"
)

func TestCapsOfAJob(t *testing.T) {
	caps := func(list ...string) (c schedule.Caps) {
		for _, s := range list {
			one, err := schedule.ParseCap(s)
			if err != nil {
				t.Fatal(err)
			}
			c = append(c, one)
		}
		return c
	}
	rec := jobs.Record{
		Queue: "slow", Batch: "b", Agent: "claude", Repo: "https://h.example/r?a=1",
		Labels: map[string]string{"team": "web", "odd": "a=b:c"},
	}
	for _, tt := range []struct{ caps, want string }{
		{"queue:slow=3 queue:other=1", "queue:slow=3"},
		{"batch:*=2 agent:claude=4 agent:codex=1", "agent:claude=4 batch:b=2"},
		{"repo:*=2 repo:https://h.example/r?a=1=7", "repo:https://h.example/r?a=1=7"},
		{"repo:*=2 repo:https://h.example/r=7", "repo:https://h.example/r?a=1=2"},
		{"label:team=*=5 label:none=*=1", "label:team=web=5"},
		{"label:team=*=5 label:team=web=2", "label:team=web=2"},
		{"label:odd=a=b:c=1 label:team=db=1", "label:odd=a=b:c=1"},
	} {
		got := strings.Trim(fmt.Sprint(caps(strings.Fields(tt.caps)...).Of(rec)), "[]")
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.caps, got, tt.want)
		}
	}
	if got := caps("batch:*=1", "label:team=*=1", "repo:*=1").Of(jobs.Record{Queue: "q"}); len(got) != 0 {
		t.Errorf("a job without batch, label and repository: %v", got)
	}
}

func TestACapThatMeansNothingIsRefused(t *testing.T) {
	for _, s := range []string{"", "repo:*", "repo=2", "repo:=2", "colour:red=2", "queue:a=0", "queue:a=-1", "queue:a=1001", "queue:a=x", "label:team=2", "label:=x=2", "repo:" + strings.Repeat("x", 1100) + "=1"} {
		if c, err := schedule.ParseCap(s); err == nil {
			t.Errorf("%q was taken for %v", s, c)
		}
	}
	twice := schedule.Caps{{Key: "repo:*", Most: 1}, {Key: "repo:*", Most: 2}}
	if err := twice.Check(); err == nil {
		t.Error("two caps of one key were accepted")
	}
	if err := make(schedule.Caps, schedule.MaxCaps+1).Check(); err == nil {
		t.Error("too many caps were accepted")
	}
}
