package jobs

import (
	"os/exec"
	"strings"
	"testing"
)

func TestDeliveryBranch(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000000"
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{}, "penstock/" + id},
		{Job{Batch: "b1", Issue: &Issue{Number: 17}}, "penstock/b1/17"},
		{Job{Batch: "b1", Item: "acme__web-17"}, "penstock/b1/acme__web-17"},
		{Job{Batch: "b1", Item: "a..b"}, "penstock/b1/" + id},
		{Job{Batch: "b1", Item: "a.lock"}, "penstock/b1/" + id},
		{Job{Batch: "b1", Item: "a."}, "penstock/b1/" + id},
		{Job{Batch: "b1", Item: strings.Repeat("a", 128)}, "penstock/b1/" + strings.Repeat("a", 128)},
		{Job{Batch: "b1", Item: "x", Deliver: Deliver{Branch: "fix/x"}}, "fix/x"},
	} {
		got := c.job.DeliveryBranch(id)
		if got != c.want || checkBranch(got) != nil {
			t.Errorf("got %q, want %q, which must be valid: %v", got, c.want, checkBranch(got))
		}
	}
}

// Whatever is accepted git accepts; what is refused here is hostile or odd.
func TestCheckBranch(t *testing.T) {
	_, missing := exec.LookPath("git")
	for _, name := range []string{"a", "penstock/b/17", "fix/a.b_c-d", "v1.2"} {
		if err := checkBranch(name); err != nil {
			t.Error(err)
		}
		if missing != nil {
			continue
		}
		if out, err := exec.Command("git", "check-ref-format", "--branch", name).CombinedOutput(); err != nil {
			t.Errorf("git refuses %q: %v %s", name, err, out)
		}
	}
	for _, name := range []string{
		"", "HEAD", "refs", "refs/heads/x", "-x", "--upload-pack=x", "a/-b", "a..b", "a//b", "/a", "a/", "a/.b", ".a", "a.lock", "a.lock/b", "a.LOCK", "a.", "a./b",
		"a b", "a\nb", "a\x00b", "a:b", "+a:b", "a~1", "a^", "a?b", "a*", "a[b", `a\b`, "@", "a@{1}", "$(id)", "a;b", "ä", strings.Repeat("0", 40), strings.Repeat("a", 201),
	} {
		if checkBranch(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestValidateDeliver(t *testing.T) {
	job := func(isolation Isolation, d Deliver) Job {
		return Job{Prompt: "p", Agent: Agent{Name: "claude"}, Repo: Repo{URL: "/r"}, Isolation: isolation, Deliver: d}.WithDefaults()
	}
	for _, c := range []struct {
		job  Job
		want string
	}{
		{job(IsolationWorktree, Deliver{Mode: "branch"}), ""},
		{job(IsolationWorktree, Deliver{Mode: "branch", Branch: "fix/x"}), ""},
		{job(IsolationWorktree, Deliver{Mode: "branch", Branch: "a b"}), "deliver.branch"},
		{job(IsolationWorktree, Deliver{Branch: "fix/x"}), "deliver.branch"},
		{job(IsolationNone, Deliver{Mode: "branch"}), "deliver.mode"},
		{job(IsolationWorktree, Deliver{Mode: "push"}), "deliver.mode"},
	} {
		err := c.job.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want an error about %q", c.job.Deliver, err, c.want)
		}
	}
}
