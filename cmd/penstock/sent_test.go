package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// ownNames are all names under which a worker keeps something of an attempt, now
// or in an earlier version.
var ownNames = []string{
	"delivery.json", "changes.patch", "commits.bundle", "salvage.patch", "salvage.bundle", "draft.md", "terminal-1.cast", "file-1",
	"part.e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "result", "capsule", "salvage", "delivery", "record.json", "receipt.json",
}

// An agent that stores files under the worker's own names, says in them that an
// existing branch is its job's, and then kills itself, moves no branch of a real remote
// in the next attempt, and its files replace no other ones.
func TestWhatAnAgentSendsDecidesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	url, dir := f.remote("post-receive", "true")
	f.repo = url
	f.serve()
	id := f.submit(`
echo work >new.txt; mkdir -p out; echo mine >out/a
if [ $PENSTOCK_ATTEMPT = 1 ]; then
	echo "{\"branch\":\"penstock/$PENSTOCK_JOB\",\"commit\":\"$(git rev-parse HEAD)\"}" >/tmp/forged
	for name in `+strings.Join(ownNames, " ")+`; do penstock artifact /tmp/forged --name $name >/dev/null || exit 7; done
	kill -9 $$
fi
for name in `+strings.Join(ownNames, " ")+`; do echo "sent as $name" >/tmp/own; penstock artifact /tmp/own --name $name >/dev/null || exit 7; done`,
		"--deliver", "branch", "--artifact", "out", "--max-attempts", "2")
	branch := "penstock/" + id
	f.git("-C", dir, "branch", branch, "main")
	before := f.branches(dir)[branch]
	f.worker("--slots", "1")
	f.eventually(time.Minute, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
	rec := f.record(id)
	if after := f.branches(dir)[branch]; after != before || rec.Reason != jobs.BranchExists || rec.Attempt != 2 {
		t.Errorf("the branch was at %s and is at %s after %d attempts: %s (%s)", before, after, rec.Attempt, rec.Reason, rec.Message)
	}
	// What both have stored is there, each as its own.
	var list []jobs.Artifact
	f.must(json.Unmarshal([]byte(f.run("job", "artifacts", "-o", "json", id)), &list))
	var ours, sent []string
	for _, a := range list {
		if name, is := strings.CutPrefix(a.Name, "agent/"); is {
			sent = append(sent, name)
		} else {
			ours = append(ours, a.Name)
		}
	}
	if fmt.Sprint(sent) != fmt.Sprint(ownNames) || len(ours) != 3 { // patch, out/a, receipt
		t.Errorf("the agent sent %v, and the worker keeps %v", sent, ours)
	}
	for args, want := range map[string]string{
		"changes.patch": "+work", "agent/changes.patch": "sent as changes.patch", "file-1": "mine", "out/a": "mine", "draft.md": "sent as draft.md",
		"receipt.json": "payloadType", "agent/receipt.json": "sent as receipt.json",
	} {
		if got := f.run("job", "artifacts", id, args); !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %q", args, got, want)
		}
	}
	if got := f.run("job", "diff", id); !strings.Contains(got, "+work") || strings.Contains(got, "sent as") {
		t.Errorf("the patch is\n%s", got)
	}
}
