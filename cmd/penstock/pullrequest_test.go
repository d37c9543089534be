package main

import (
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// forgeToken is the credential of the forge, which nothing but serve may know.
const forgeToken = "ghp-known-to-serve-alone"

// github makes a GitHub with the fixture's repository as o/r, and the settings with which
// serve opens pull requests there.
func (f *fixture) github() (stub *forgetest.GitHub, dir string) {
	f.Helper()
	root := f.TempDir()
	dir = filepath.Join(root, "o", "r.git")
	f.git("clone", "-q", "--bare", f.repo, dir)
	f.git("-C", dir, "config", "http.receivepack", "true")
	path, err := exec.LookPath("git")
	f.must(err)
	stub = forgetest.NewGitHub(f, forgeToken)
	stub.Else = &cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null",
	}, InheritEnv: []string{"PATH"}}
	f.env = append(f.env, "PENSTOCK_FORGES_GITHUB_URL="+stub.URL, "PENSTOCK_FORGES_GITHUB_TOKEN="+forgeToken)
	return stub, dir
}

func (f *fixture) pullRequest(id string) jobs.PullRequest {
	f.Helper()
	if pr := f.record(id).PullRequest; pr != nil {
		return *pr
	}
	return jobs.PullRequest{}
}

// Serve is killed when GitHub has made the pull request and before it could say so. The next
// one finds it: the job has one, whose branch and text are the job's, and no program in the
// jail or on the host could see the credential.
func TestAKilledDispatcherMakesOnePullRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stub, dir := f.github()
	f.repo = stub.Repository("o/r")
	held := make(chan struct{})
	stub.Next(forgetest.CreatePull, forgetest.Fault{Held: held})
	serve, args := f.serve("--slots", "1")
	id := f.submit(`env; cat /proc/*/environ 2>/dev/null; echo new > new.txt`,
		"--deliver", "pr", "--pr-label", "agent", "--pr-reviewer", "ann", "--check", "test -s new.txt")
	select {
	case <-held:
	case <-time.After(slowtest.Limit(60 * time.Second)):
		t.Fatal("no pull request was asked for")
	}
	secret, err := exec.Command("sh", "-c", "grep -l "+forgeToken+" /proc/"+strconv.Itoa(serve.Process.Pid)+"/environ").Output()
	if _, linux := os.Stat("/proc/self/environ"); linux == nil && len(secret) > 0 {
		t.Errorf("the environment of serve has the token: %s, %v", secret, err)
	}
	serve.kill()
	f.start("serving", args...)
	f.run("wait", "--timeout", patience(60), id)
	f.eventually(30*time.Second, "the pull request is in the record", func() bool { return f.pullRequest(id).State == jobs.PullOpen })
	all, pr := stub.Pulls(), f.pullRequest(id)
	if len(all) != 1 || pr.Number != 1 || !strings.HasSuffix(pr.URL, "/o/r/pull/1") {
		t.Fatalf("GitHub has %+v, and the record %+v", all, pr)
	}
	if got := all[0]; got.Head != "penstock/"+id || got.Base != "main" || !got.Draft || !strings.Contains(got.Body, "$ test -s new.txt") || strings.Join(got.Labels, "") != "agent" || strings.Join(got.Reviewers, "") != "ann" {
		t.Errorf("GitHub has %+v", got)
	}
	f.deliveredOnce(id, dir, "new")
	checks := stub.Checks()
	if branch := strings.TrimSpace(f.git("-C", dir, "rev-parse", "penstock/"+id)); len(checks) == 0 || checks[0].Commit != branch || checks[0].Outcome != "success" || checks[0].Summary != "1 of 1 checks passed in the pool" {
		t.Errorf("GitHub has the checks %+v, and the branch %s", checks, branch)
	}
	if out := f.run("why", id); !strings.Contains(out, pr.URL) {
		t.Errorf("why says %s", out)
	}
	if out := f.run("job", "get", id); !strings.Contains(out, pr.URL) {
		t.Errorf("job get shows\n%s", out)
	}
	if out := f.run("logs", id) + f.run("config", "view") + f.run("job", "get", "-o", "json", id); strings.Contains(out, forgeToken) {
		t.Error("the token was printed")
	}
}

// A pool without a credential refuses a job that asks for a pull request, and so does a
// command with a pool of its own; a pool with one refuses repositories that are elsewhere.
func TestPullRequestsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	refused := func(want string, args ...string) {
		t.Helper()
		_, code, stderr := f.try(append(args, "--repo", f.repo, "--deliver", "pr", "--", "true")...)
		if code != 2 && code != 4 && code != 3 || !strings.Contains(stderr, want) {
			t.Errorf("%v ends with %d: %s", args, code, stderr)
		}
	}
	refused("this pool opens no pull requests", "run")
	if _, code, stderr := f.try("github", "setup", "o/r"); code != 1 || !strings.Contains(stderr, "the settings name no credential of GitHub") {
		t.Errorf("setup without a credential ends with %d: %s", code, stderr)
	}
	if out := f.run("github", "setup"); !strings.Contains(out, "Pull requests: read and write") {
		t.Errorf("setup prints\n%s", out)
	}
	stub, _ := f.github()
	if out := f.run("github", "setup", "o/r"); !strings.Contains(out, "o/r: the token reads its pull requests") {
		t.Errorf("setup prints\n%s", out)
	}
	stub.Token = "another"
	if _, code, stderr := f.try("github", "setup", "o/r", "o/r/../x"); code != 1 || !strings.Contains(stderr, "Bad credentials") || !strings.Contains(stderr, "is not OWNER/REPOSITORY") || strings.Contains(stderr, forgeToken) {
		t.Errorf("setup with a wrong token ends with %d: %s", code, stderr)
	}
	f.serve()
	refused("is on no forge of this pool (GitHub)", "submit")
	if _, code, stderr := f.try("submit", "--repo", f.repo, "--pr-label", "x", "--", "true"); code == 0 || !strings.Contains(stderr, "deliver.labels") {
		t.Errorf("a label without a pull request ends with %d: %s", code, stderr)
	}
}
