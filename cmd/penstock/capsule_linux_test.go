package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// open puts the repository where every user may read it.
func (f *field) open() {
	f.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "penstock-test-") // its own is closed to other users
	f.must(err)
	f.Cleanup(func() { os.RemoveAll(dir) })
	f.must(os.Chmod(dir, 0o755))
	f.git("clone", "-q", "--no-hardlinks", f.repo, filepath.Join(dir, "repo"))
	f.repo = filepath.Join(dir, "repo")
}

// abroad starts a worker with nothing but a credential: in a root directory of
// its own, and as another user where this one is root.
func (f *field) abroad(agent string) {
	f.Helper()
	as := f.credentials()[access.Worker]
	base := f.TempDir()
	if os.Geteuid() == 0 {
		base = "/opt" // open to other users, and not hidden in a jail
	}
	home, err := os.MkdirTemp(base, "penstock-test-")
	f.must(err)
	f.Cleanup(func() { os.RemoveAll(home) })
	f.must(os.Chmod(home, 0o755))
	for name, mode := range map[string]os.FileMode{"bin": 0o755, "data": 0o700, "tmp": 0o700} {
		f.must(os.Mkdir(filepath.Join(home, name), mode))
	}
	for _, name := range []string{"penstock", agent} {
		from, err := filepath.EvalSymlinks(lookPath(f.T, name))
		f.must(err)
		if to := filepath.Join(home, "bin", name); os.Link(from, to) != nil {
			copyProgram(f.T, from, to)
		}
	}
	secret, err := os.ReadFile(as[3])
	f.must(err)
	f.must(os.WriteFile(filepath.Join(home, "creds"), secret, 0o600))
	data := filepath.Join(home, "data")
	cmd := f.command("worker", "--admin", "", "--drain", "1s", "--slots", "1",
		"--server", as[1], "--creds", filepath.Join(home, "creds"), "--data", data)
	cmd.Path, cmd.Dir = filepath.Join(home, "bin", "penstock"), home
	cmd.Env = append(cmd.Env, "PENSTOCK_DATA="+data, "HOME="+data, "TMPDIR="+filepath.Join(home, "tmp"), "PATH="+filepath.Join(home, "bin")+":/usr/local/bin:/usr/bin:/bin")
	if os.Geteuid() == 0 {
		const nobody = 65534
		for _, name := range []string{"data", "tmp", "creds"} {
			f.must(os.Chown(filepath.Join(home, name), nobody, nobody))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	f.launch(cmd, "slots on")
}

// The real Claude Code has two turns behind it when its worker is killed with
// -9 in the third. Another worker with another directory, as another user, goes
// on with the conversation, with the files and the commit, and with the prompt
// that was not answered.
func TestAConversationGoesOnAbroad(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newField(t)
	f.open()
	later := func(r agenttest.Request) agenttest.Reply {
		if strings.Contains(r.Last, "the third") {
			return agenttest.Use("Bash", map[string]any{"command": "git log --format=%s -1; cat one.txt out.txt; pwd", "description": "look"})(r)
		}
		return agenttest.Reply{Text: "LAST " + r.Last}
	}
	model := agenttest.New(agenttest.Script{On: "CARRY", Steps: []agenttest.Step{
		shell("Bash", "command")("one > one.txt && git add one.txt && git -c user.name=A -c user.email=a@b commit -qm one && echo two"),
		agenttest.Say("first"),
		shell("Bash", "command")("three"),
		agenttest.Say("second"),
		func(r agenttest.Request) agenttest.Reply {
			if r.Try == 0 {
				return agenttest.Reply{Hang: true}
			}
			return later(r)
		},
		later,
	}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = []string{"ANTHROPIC_API_KEY=" + keyPrefix + "capsule", "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	f.serve()
	w := f.worker("--slots", "1")
	k := talk{f, strings.TrimSpace(f.run("submit", "CARRY", "--agent", "claude", "--interactive", "--repo", f.repo, "-o", "id"))}
	defer func() {
		if t.Failed() {
			t.Log(f.run("logs", k.id))
		}
	}()
	k.seen(jobs.CapsuleStored, 1)
	f.run("send", k.id, "the second")
	k.has(k.seen(jobs.CapsuleStored, 2), `"turn":2`, `"commits":2`, `"heard":["`)
	f.run("send", k.id, "the third")
	f.eventually(60*time.Second, "the third is before the model", func() bool {
		return slices.ContainsFunc(model.Requests(), func(r agenttest.Request) bool { return r.Turn == 4 })
	})
	w.kill()
	f.worker("--slots", "1", "--queues", "another") // which removes what was killed, and takes nothing
	f.abroad("claude")
	k.has(k.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
	f.eventually(60*time.Second, "it does what it had not answered", func() bool {
		return strings.Contains(k.all(jobs.ToolEnded), `one\none\nthree\n/workspace`)
	})
	f.run("job", "cancel", k.id)
	f.try("wait", k.id)
	rec, patch := f.record(k.id), f.run("job", "diff", k.id)
	if rec.Outcome != jobs.Cancellation || rec.Attempt != 2 || !strings.Contains(patch, "+one") || !strings.Contains(patch, "+three") {
		t.Errorf("%s %s (%s) in attempt %d, with\n%s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, patch)
	}
	f.gapless(f.events(k.id))
}

// all is the data of all events of a kind.
func (k talk) all(kind jobs.Kind) string {
	k.Helper()
	var b strings.Builder
	for _, e := range k.events(k.id) {
		if e.Kind == kind {
			b.Write(e.Data)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
