package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The script of the action for GitHub runs a job, and tells the runner what came of it. No
// input is a part of a command.
func TestTheActionRunsAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	script, err := filepath.Abs("../../deploy/action/run.sh")
	f.must(err)
	programs, output, evil := t.TempDir(), filepath.Join(t.TempDir(), "output"), `"; touch /tmp/$(id) 'x --agent none`
	self, err := os.Executable()
	f.must(err)
	f.must(os.Symlink(self, filepath.Join(programs, "penstock")))
	for _, c := range []struct{ check, want string }{{"true", "outcome=success\npatch=out.patch\n"}, {"false", "outcome=failure\npatch=out.patch\n"}} {
		cmd := f.command("version")
		cmd.Path, cmd.Args, cmd.Dir = script, []string{script}, f.repo
		f.must(os.WriteFile(output, nil, 0o600))
		cmd.Env = append(cmd.Env, "PATH="+programs+":"+os.Getenv("PATH"), "GITHUB_OUTPUT="+output, "PROMPT="+evil, "AGENT=", `COMMAND=cat "$PENSTOCK_PROMPT_FILE" >said; penstock result '{"outcome":"skip"}'`,
			"CHECK="+c.check, "TIMEOUT=5m", "MAX_COST=", "PATCH=out.patch")
		said, err := cmd.CombinedOutput()
		if (err == nil) != (c.check == "true") {
			t.Errorf("%v\n%s", err, said)
		}
		if got, err := os.ReadFile(output); err != nil || string(got) != c.want {
			t.Errorf("got the outputs %q, %v, want %q\n%s", got, err, c.want, said)
		}
		if patch, err := os.ReadFile(filepath.Join(f.repo, "out.patch")); c.check == "true" && (err != nil || !strings.Contains(string(patch), "+"+evil)) {
			t.Errorf("got the patch\n%s\n%v", patch, err)
		}
	}
}
