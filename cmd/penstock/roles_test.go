package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// credentials makes one of each role, and returns the flags with which a
// command somewhere else uses it.
func (f *fixture) credentials() map[jobs.Role][]string {
	f.Helper()
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	elsewhere := f.TempDir()
	flags := map[jobs.Role][]string{}
	for _, role := range jobs.Roles {
		file := filepath.Join(elsewhere, string(role)+".creds")
		f.run("nats", "credentials", string(role), "--name", string(role), "--file", file)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			f.Errorf("credential: %v, %v; want mode 0600", info, err)
		}
		flags[role] = []string{"--server", endpoint.URL, "--creds", file, "--data", filepath.Join(elsewhere, "data")}
	}
	return flags
}

func flagged(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// Each role does with its credential what it is for, on a host that has nothing
// else, and is told what it may not do: at once, with the role that may.
func TestRolesOfTheCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	as := f.credentials()

	w := f.worker(flagged(as[jobs.RoleWorker], []string{"--slots", "1"})...)
	job := []string{"submit", "-o", "id", "--repo", f.repo, "--", "sh", "-c", "echo hi > new.txt"}
	id := strings.TrimSpace(f.run(flagged(as[jobs.RoleSubmitter], job)...))
	f.run(flagged([]string{"wait", "--timeout", patience(60), id}, as[jobs.RoleSubmitter])...)
	if got := f.run(flagged([]string{"job", "get", id, "-o", "json"}, as[jobs.RoleSubmitter])...); !strings.Contains(got, `"outcome": "success"`) {
		t.Errorf("the submitter sees of its job: %s", got)
	}
	for _, look := range [][]string{{"job", "ls"}, {"job", "get", id}, {"watch", id}, {"logs", id}, {"wait", id}, {"why", id}, {"job", "diff", id}, {"queue", "ls"}, {"batch", "ls"}, {"dead", "ls"}} {
		if out := f.run(flagged(look, as[jobs.RoleViewer])...); out == "" && look[0] != "dead" && look[0] != "batch" {
			t.Errorf("the viewer sees nothing of %v", look)
		}
	}
	for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter} {
		if diff := f.run(flagged([]string{"job", "diff", id}, as[role])...); !strings.Contains(diff, "new.txt") {
			t.Errorf("the %s's patch is %s", role, diff)
		}
	}
	for _, look := range []string{"watch", "logs"} {
		if out := f.run(flagged([]string{look, id, "-o", "jsonl"}, as[jobs.RoleSubmitter])...); !strings.Contains(out, string(jobs.JobFinished)) {
			t.Errorf("%s shows the submitter %s", look, out)
		}
	}

	for _, c := range []struct {
		role jobs.Role
		args []string
		hint string
	}{
		{jobs.RoleViewer, job, "role submitter or operator"},
		{jobs.RoleWorker, job, "role submitter or operator"},
		{jobs.RoleViewer, []string{"job", "cancel", id}, "role submitter or operator"},
		{jobs.RoleSubmitter, []string{"job", "ls"}, "role viewer or operator"},
		{jobs.RoleSubmitter, []string{"job", "artifacts", id, "changes.patch"}, "role viewer"},
		{jobs.RoleViewer, []string{"queue", "pause", "default"}, "role operator"},
		{jobs.RoleWorker, []string{"queue", "pause", "default"}, "role operator"},
		{jobs.RoleSubmitter, []string{"worker", "--admin", ""}, "role worker or operator"},
		{jobs.RoleViewer, []string{"serve", "--admin", ""}, "role operator"},
		{jobs.RoleSubmitter, []string{"run", "--isolation", "none", "--", "true"}, "role operator"},
	} {
		began := time.Now()
		out, code, said := f.try(flagged(as[c.role], c.args)...)
		if code != 6 || !strings.Contains(said, "not allowed") || !strings.Contains(said, c.hint) {
			t.Errorf("%s: penstock %v ended with %d after %s: %s%s", c.role, c.args, code, time.Since(began), out, said)
		}
	}

	var held []natsd.Credential
	f.must(json.Unmarshal([]byte(f.run("nats", "credentials", "ls", "-o", "json")), &held))
	if len(held) != len(jobs.Roles) {
		t.Errorf("credentials %+v, want one of each role", held)
	}
	f.run("nats", "credentials", "revoke", "worker", "viewer")
	if _, code, said := f.try(flagged([]string{"job", "ls"}, as[jobs.RoleViewer])...); code != 6 || !strings.Contains(said, "does not accept this credential") {
		t.Errorf("with what was revoked: %d, %s", code, said)
	}
	if code := f.ended(w, time.Minute); code != 6 {
		t.Errorf("the worker whose credential was revoked ended with %d: %s", code, w.log)
	}
	if _, code, _ := f.try("nats", "credentials", "revoke", "nobody"); code != 5 {
		t.Errorf("revoke nobody: %d, want 5", code)
	}
}

// A worker that wants signatures runs what was signed, and nothing else.
func TestSignedJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := t.TempDir()
	good, bad := f.keyPair(keys, "good"), f.keyPair(keys, "bad")
	f.serve("--slots", "1", "--require-signature", filepath.Join(keys, "good.pub"))
	mark := filepath.Join(f.repo, "ran")
	submit := func(flags ...string) string {
		return strings.TrimSpace(f.run(flagged([]string{"submit", "-o", "id"}, flags, []string{"--repo", f.repo, "--isolation", "none", "--", "touch", "ran"})...))
	}
	for what, flags := range map[string][]string{"unsigned": nil, "a stranger's": {"--sign-key", bad}} {
		id := submit(flags...)
		_, code, _ := f.try("wait", "--timeout", patience(60), id)
		got := f.run("job", "get", id, "-o", "json")
		if code != 4 || !strings.Contains(got, `"reason": "unsigned"`) {
			t.Errorf("%s job ended with %d: %s", what, code, got)
		}
		if logs := f.run("logs", id, "-o", "jsonl"); strings.Contains(logs, "workspace.ready") {
			t.Errorf("%s job: a workspace was made:\n%s", what, logs)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("a job that nobody signed has run")
	}
	id := submit("--sign-key", good)
	f.run("wait", "--timeout", patience(60), id)
	if _, err := os.Stat(mark); err != nil {
		t.Error("the signed job did not run")
	}

	// A client that may write to the bus copies the signed job to another id, and
	// changes one in its place.
	var view struct{ Job jobs.Job }
	f.must(json.Unmarshal([]byte(f.run("job", "get", id, "-o", "json")), &view))
	copied := view.Job
	copied.Signature.ID = jobs.NewID()
	altered := view.Job
	signature := *view.Job.Signature
	altered.Signature = &signature
	altered.Signature.ID, altered.Key = jobs.NewID(), "another"
	for what, job := range map[string]jobs.Job{"copied": copied, "altered": altered} {
		file := filepath.Join(t.TempDir(), "job.json")
		data, err := json.Marshal(job)
		f.must(err)
		f.must(os.WriteFile(file, data, 0o600))
		id := strings.TrimSpace(f.run("submit", "-o", "id", "--job", file))
		if _, code, _ := f.try("wait", "--timeout", patience(60), id); code != 4 {
			t.Errorf("%s job: wait ended with %d", what, code)
		}
		if got := f.run("job", "get", id, "-o", "json"); !strings.Contains(got, "was altered after it was signed") {
			t.Errorf("%s job: %s", what, got)
		}
	}
	for what, flags := range map[string][]string{"no key": {"--sign-key", filepath.Join(keys, "none")}, "a public key": {"--sign-key", filepath.Join(keys, "good.pub")}} {
		if _, code, said := f.try(flagged([]string{"submit", "--isolation", "none"}, flags, []string{"--", "true"})...); code != 2 || !strings.Contains(said, "--sign-key") {
			t.Errorf("%s: %d, %s", what, code, said)
		}
	}
}
