package main

import (
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// branches lists the branches that a repository got, with their commits.
func (f *fixture) branches(repo string) map[string]string {
	f.Helper()
	found := map[string]string{}
	for line := range strings.Lines(f.git("-C", repo, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/penstock")) {
		name, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = commit
	}
	return found
}

// remote serves a bare copy of the fixture's repository over HTTP, with a hook.
func (f *fixture) remote(hook, script string) (url, dir string) {
	f.Helper()
	root := f.TempDir()
	dir = filepath.Join(root, "app.git")
	f.git("clone", "-q", "--bare", f.repo, dir)
	f.git("-C", dir, "config", "http.receivepack", "true")
	f.must(exectest.WriteFile(filepath.Join(dir, "hooks", hook), []byte("#!/bin/sh\n"+script), 0o755))
	path, err := exec.LookPath("git")
	f.must(err)
	server := httptest.NewServer(&cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null",
	}, InheritEnv: []string{"PATH"}})
	f.Cleanup(server.Close)
	return server.URL + "/app.git", dir
}

// deliveredOnce wants the one branch of a job with what that attempt wrote.
func (f *fixture) deliveredOnce(id, repo, content string) {
	f.Helper()
	branch := "penstock/" + id
	got := f.branches(repo)
	if len(got) != 1 || got[branch] == "" {
		f.Fatalf("the branches are %v, want %s alone", got, branch)
	}
	if text := f.git("-C", repo, "show", branch+":new.txt"); text != content+"\n" {
		f.Errorf("the branch has %q, want %q", text, content)
	}
	if n := f.git("-C", repo, "rev-list", "--count", "main.."+branch); n != "1\n" {
		f.Errorf("the branch is %s commits ahead, want 1", strings.TrimSpace(n))
	}
	events := f.events(id)
	f.gapless(events)
	rec := f.record(id)
	last := events[len(events)-1]
	if rec.Outcome != jobs.Success || count(events, jobs.JobFinished) != 1 || event.As[event.JobFinished](last).Branch != branch {
		f.Errorf("%s %s (%s), and the last event is %s %s", rec.Outcome, rec.Reason, rec.Message, last.Kind, last.Data)
	}
	f.git("-C", repo, "fsck", "--strict")
}

// Twenty issues are twenty branches of the user's repository, each of its own
// issue alone, and nothing else of it has changed.
func TestABatchBecomesBranches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.issues(20, func(i int) string { return fmt.Sprint("Issue ", i) })
	out := filepath.Join(t.TempDir(), "results")
	status := func() string {
		return f.git("-C", f.repo, "--no-optional-locks", "status", "--porcelain", "--branch") + f.git("-C", f.repo, "rev-parse", "HEAD", "main") + f.git("-C", f.repo, "worktree", "list")
	}
	before := status()
	f.run("batch", "run", file, "--repo", f.repo, "--max-parallel", "8", "--deliver", "branch", "--out", out, "--", "sh", "-c", solve)
	if after := status(); after != before {
		t.Errorf("the repository is now\n%s\nwas\n%s", after, before)
	}
	results, branches := readResults(t, out), f.branches(f.repo)
	if len(results) != 20 || len(branches) != 20 {
		t.Fatalf("%d results, %d branches; want 20 of each: %v", len(results), len(branches), branches)
	}
	for i := 1; i <= 20; i++ {
		r := results[fmt.Sprint(i)]
		if !strings.HasPrefix(r.Branch, "penstock/") || !strings.HasSuffix(r.Branch, fmt.Sprint("/", i)) || branches[r.Branch] == "" {
			t.Fatalf("issue %d: branch %q, there are %v", i, r.Branch, branches)
		}
		log := f.git("-C", f.repo, "log", "--format=%s|%(trailers:key=Penstock-Job,valueonly,separator=%x2C)", "main.."+r.Branch)
		if want := fmt.Sprintf("Uncommitted changes|%s\nsolve %d|%s\n", r.Job, i, r.Job); log != want {
			t.Errorf("issue %d: the branch has\n%swant\n%s", i, log, want)
		}
		f.git("-C", f.repo, "merge-base", "--is-ancestor", "main", r.Branch)
		files := f.git("-C", f.repo, "diff", "--name-only", "main", r.Branch)
		if want := fmt.Sprintf("dir%d/file%d.txt\nsolved/%d.txt\n", i%4, i%20, i); files != want {
			t.Errorf("issue %d: the branch changes\n%s", i, files)
		}
	}
	f.git("-C", f.repo, "fsck", "--strict")
}

// A worker is killed when its push has arrived and before it could say so.
// The next attempt takes the branch over: it is delivered once.
func TestAKilledWorkersBranchIsTakenOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mark := filepath.Join(t.TempDir(), "pushed")
	url, dir := f.remote("post-receive", `[ -e `+mark+` ] || { : > `+mark+`; exec sleep 3; }`)
	f.repo = url
	f.serve()
	first := f.worker("--slots", "1", "--name", "first")
	id := f.submit("echo from $PENSTOCK_ATTEMPT > new.txt", "--deliver", "branch")
	f.eventually(30*time.Second, "the push arrives", func() bool { _, err := os.Stat(mark); return err == nil })
	first.kill()
	lost := f.branches(dir)["penstock/"+id]
	f.worker("--slots", "1", "--name", "second")
	f.run("wait", "--timeout", patience(60), id)
	f.deliveredOnce(id, dir, "from 2")
	for _, e := range f.events(id) {
		if e.Kind == jobs.BranchDone && (e.Attempt != 2 || event.As[event.BranchDelivered](e).Replaced != lost || lost == "") {
			t.Errorf("attempt %d says %s; the killed one left %s", e.Attempt, e.Data, lost)
		}
	}
}

// A worker sleeps past its lease while its push is under way. What arrives
// late finds the branch of the attempt that took over, and changes nothing.
func TestASleepersPushIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tmp := t.TempDir()
	came, wake, ended := filepath.Join(tmp, "came"), filepath.Join(tmp, "wake"), filepath.Join(tmp, "ended")
	url, dir := f.remote("pre-receive", `[ -e `+came+` ] && exit 0; : > `+came+`; while ! [ -e `+wake+` ]; do sleep 0.1; done; : > `+ended)
	f.repo = url
	f.serve()
	first := f.worker("--slots", "1", "--name", "sleeper", "--log-level", "info")
	id := f.submit("echo from $PENSTOCK_ATTEMPT > new.txt", "--deliver", "branch")
	f.eventually(30*time.Second, "the push begins", func() bool { _, err := os.Stat(came); return err == nil })
	exectest.Pause(t, first.Process)
	f.worker("--slots", "1", "--name", "heir")
	f.run("wait", "--timeout", patience(60), id)
	f.deliveredOnce(id, dir, "from 2")
	f.must(os.WriteFile(wake, nil, 0o600))
	f.eventually(60*time.Second, "the late push ends", func() bool { _, err := os.Stat(ended); return err == nil })
	f.must(first.Process.Signal(syscall.SIGCONT))
	f.eventually(60*time.Second, "the sleeper notices", func() bool { return strings.Contains(first.log.String(), "lease lost") })
	f.deliveredOnce(id, dir, "from 2")
}

// A branch that is there already is named, the result is kept, and the way
// out that the message shows works.
func TestABranchThatExistsIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.git("-C", f.repo, "branch", "penstock/mine")
	before := f.branches(f.repo)
	file := filepath.Join(t.TempDir(), "job.json")
	f.must(os.WriteFile(file, fmt.Appendf(nil, `{"repo":{"url":%q},"deliver":{"mode":"branch","branch":"penstock/mine"},
		"agent":{"name":"command","command":["sh","-c","echo mine > new.txt"]}}`, f.repo), 0o600))
	out, code, stderr := f.try("run", "--job", file, "-o", "json")
	if code != 4 || !strings.Contains(out, `"reason":"branch_exists"`) || !strings.Contains(out, "penstock/mine") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	if now := f.branches(f.repo); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the branches are now %v, were %v", now, before)
	}
	events := f.decode(out[:strings.LastIndex(strings.TrimSpace(out), "\n")+1])
	checkout := filepath.Join(t.TempDir(), "checkout")
	f.git("clone", "-q", f.repo, checkout)
	cmd := f.command("job", "apply", events[0].Job)
	cmd.Dir = checkout
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("job apply: %v\n%s", err, said)
	}
	if got, err := os.ReadFile(filepath.Join(checkout, "new.txt")); err != nil || string(got) != "mine\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
}
