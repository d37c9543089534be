package worker

import (
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// An ending is one way for an attempt to end.
type ending struct {
	name   string
	script string
	job    func(*jobs.Job)
	speaks bool                           // the agent speaks as claude does
	reason jobs.Reason                    // of the job's end; empty: it succeeds
	again  bool                           // by another attempt than the first
	on     jobs.Kind                      // when the job's log has it …
	act    func(*ends, jobs.Record) error // … a user does this
}

func within(d time.Duration) func(*jobs.Job) {
	return func(j *jobs.Job) { j.Timeout = jobs.Duration(d) }
}

func silent(d time.Duration) func(*jobs.Job) {
	return func(j *jobs.Job) { j.IdleTimeout = jobs.Duration(d) }
}

func stays(j *jobs.Job) { j.Agent.Interactive = true }

const second = time.Second

// Of themselves, and by the limits of their jails.
var endsByItself = []ending{
	{name: "success", script: "echo hello > new.txt"},
	{name: "failure", script: "echo oh no >&2; exit 3", reason: jobs.AgentFailed},
	{name: "crash", script: "kill -SEGV $$", reason: jobs.AgentCrashed},
	{name: "killed", script: "kill -KILL $$", reason: jobs.AgentCrashed},
	{name: "missing", job: func(j *jobs.Job) { j.Agent.Command = []string{"/nowhere/agent"} }, reason: jobs.AgentMissing},
	{name: "no change", script: "true", job: func(j *jobs.Job) { j.ExpectChanges = true }, reason: jobs.NoChanges},
	{name: "leaves children", script: `for i in 1 2 3; do setsid sh -c 'trap "" TERM HUP; sleep 60' & done; exit 0`},
	{name: "leaves a terminal", script: `setsid script -qec 'sleep 60' /dev/null </dev/null >/dev/null 2>&1 & sleep 0.2; exit 0`},
	{name: "leaves a connection to a host", script: `curl -sN http://hangs.test/ & curl -sNk https://hangs.test/ & sleep 0.5; exit 0`, job: func(j *jobs.Job) {
		j.Sandbox.Network, j.Sandbox.AllowHosts = jobs.NetworkAllowlist, []string{"hangs.test"}
	}},
	{name: "leaves a call of the model", script: `curl -sN -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m"}' "$ANTHROPIC_BASE_URL/v1/messages" & sleep 0.5; exit 0`},
	{name: "leaves a question", script: `curl -s -d '{"question":{"question":"Well?"}}' "$PENSTOCK_INSIDE/v1/asks" & sleep 0.5; exit 0`},
	{name: "memory", script: "head -c 400m /dev/zero | tail", job: func(j *jobs.Job) { j.Sandbox.Limits.Memory = 64 << 20 }, reason: jobs.OutOfMemory},
	{name: "disk", script: "head -c 64m /dev/zero > big; sleep 60", job: func(j *jobs.Job) { j.Sandbox.Limits.Disk = 8 << 20 }, reason: jobs.DiskLimit},
	{name: "processes", script: "i=0; while test $((i=i+1)) -lt 60; do sleep 60 & done; exit 1",
		job: func(j *jobs.Job) { j.Sandbox.Limits.PIDs = 32 }, reason: jobs.ProcessLimit},
	{name: "time", script: "sleep 60", job: within(second), reason: jobs.TimeLimit},
	{name: "time, ignores signals", script: ignoresSignals + forever, job: within(second), reason: jobs.TimeLimit},
}

// In the steps before and after the agent's.
var endsElsewhere = []ending{
	{name: "no such ref", job: func(j *jobs.Job) { j.Repo.Ref = "nowhere" }, reason: jobs.RefNotFound},
	{name: "no repository", job: func(j *jobs.Job) { j.Repo.URL = "/etc" }, reason: jobs.NotARepository},
	{name: "no repository that can be used", job: func(j *jobs.Job) { j.Repo.URL = "/etc/passwd" }, reason: jobs.RepoUnsupported},
	{name: "no such agent", job: func(j *jobs.Job) { j.Agent = jobs.Agent{Name: "nobody"} }, reason: jobs.UnknownAgent},
	{name: "no such secret", script: "true", job: func(j *jobs.Job) { j.Secrets = []string{"NOWHERE"} }, reason: jobs.SecretMissing},
	{name: "no such jail", script: "true", job: func(j *jobs.Job) { j.Sandbox.Backend = "seatbelt" }, reason: jobs.SandboxMissing},
	{name: "a jail that does not start at first", script: "true", job: func(j *jobs.Job) { j.Sandbox.Backend = "systemd" }, again: true},
	{name: "setup", script: "true", job: func(j *jobs.Job) { j.Setup = []string{"true", "exit 7"} }, reason: jobs.SetupFailed},
	{name: "setup takes too long", script: "true", job: func(j *jobs.Job) { j.Setup, j.Timeout = []string{"sleep 60"}, jobs.Duration(second) }, reason: jobs.TimeLimit},
	{name: "check", script: "true", job: func(j *jobs.Job) { j.Check, j.CheckRounds = []string{"exit 5"}, 1 }, reason: jobs.CheckFailed},
	{name: "check takes too long", script: "true", job: func(j *jobs.Job) { j.Check, j.Timeout = []string{"sleep 60"}, jobs.Duration(3*second) }, reason: jobs.TimeLimit},
}

// By a user who watches, and by the loss of the lease.
var endsByOthers = []ending{
	{name: "cancelled at its claim", script: "sleep 60", on: jobs.JobClaimed, act: (*ends).cancel, reason: jobs.Cancelled},
	{name: "cancelled with its workspace", script: "sleep 60", on: jobs.WorkspaceDone, act: (*ends).cancel, reason: jobs.Cancelled},
	{name: "cancelled in its setup", job: func(j *jobs.Job) { j.Setup = []string{"sleep 60"} }, on: jobs.CheckStarted, act: (*ends).cancel, reason: jobs.Cancelled},
	{name: "cancelled while it works", script: "echo begun; " + ignoresSignals + forever, on: jobs.OutputLine, act: (*ends).cancel, reason: jobs.Cancelled},
	{name: "cancelled in its check", script: "true", job: func(j *jobs.Job) { j.Check = []string{"sleep 60"} }, on: jobs.CheckStarted, act: (*ends).cancel, reason: jobs.Cancelled},
	{name: "stopped", script: "echo begun; sleep 60", on: jobs.OutputLine, act: tells(control.Stop), reason: jobs.Cancelled},
	{name: "stopped between turns", speaks: true, job: stays, script: converses, on: jobs.TurnEnded, act: tells(control.Stop)},
	{name: "interrupted, and let go", speaks: true, job: func(j *jobs.Job) { stays(j); silent(8 * second)(j) },
		script: "say init; while read -r l; do case $l in *interrupt*) say aborted;; esac; done",
		on:     jobs.TurnStarted, act: tells(control.Interrupt), reason: jobs.AgentFailed},
	{name: "beside a terminal", script: "echo begun; until test -e /tmp/on; do sleep 0.1; done", on: jobs.OutputLine, act: types("touch /tmp/on; exec sleep 60", nil)},
	{name: "cancelled beside a terminal", script: "echo begun; sleep 60", on: jobs.OutputLine, act: types("trap '' HUP TERM; yes", (*ends).cancel), reason: jobs.Cancelled},
	{name: "its lease is lost", script: "while test $PENSTOCK_ATTEMPT = 1; do echo x; sleep 0.2; done", on: jobs.OutputLine, act: (*ends).usurp, again: true},
}

// Because its agent hangs, or floods.
var endsByHanging = []ending{
	{name: "start", speaks: true, script: "exec sleep 60", reason: jobs.StartLimit},
	{name: "idle", speaks: true, script: "say init; cat >/dev/null", job: silent(2 * second), reason: jobs.IdleLimit},
	{name: "idle, ignores signals", speaks: true, script: ignoresSignals + "say init; " + forever, job: silent(2 * second), reason: jobs.IdleLimit},
	{name: "stop", speaks: true, script: "say init; sh -c 'kill -STOP $$'", reason: jobs.AgentHalted},
	{name: "flood", speaks: true, script: "say init; exec yes", reason: jobs.OutputLimit},
	{name: "flood of one line", speaks: true, script: "say init; head -c 3m /dev/zero | tr '\\0' x; exec sleep 60", reason: jobs.OutputLimit},
	{name: "retries", speaks: true, script: "say init; while sleep 0.02; do say retry; done", reason: jobs.RetryLimit},
	{name: "exit", speaks: true, script: "say init; say result; exec sleep 60"},
	{name: "exit of what it left", speaks: true, script: ignoresSignals + "say init; say result; setsid sh -c \"" + ignoresSignals + forever + "\" & while sleep 0.1; do say text; done"},
	{name: "does not read, and asks", speaks: true, job: func(j *jobs.Job) { stays(j); silent(2 * second)(j) },
		script: `say init; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do
			echo '{"type":"control_request","request_id":"'$i'","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}'; done; sleep 60`, reason: jobs.IdleLimit},
}

var endsOfAll = slices.Concat(endsByHanging, endsByOthers, endsElsewhere, endsByItself)

func (e *ends) cancel(rec jobs.Record) error {
	_, err := e.eye.queue.Cancel(e.Context(), rec.ID, "somebody")
	return err
}

func tells(verb control.Verb) func(*ends, jobs.Record) error {
	return func(e *ends, rec jobs.Record) error {
		_, err := e.tell(rec.ID, control.Message{Verb: verb})
		return err
	}
}

// types opens a terminal in which a program runs, and does more then.
func types(script string, then func(*ends, jobs.Record) error) func(*ends, jobs.Record) error {
	return func(e *ends, rec jobs.Record) error {
		r := terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: []string{"sh", "-c", script}}
		_, err := e.eye.log.Terminal(e.Context(), rec.Session, r)
		if err == nil && then != nil {
			err = then(e, rec)
		}
		return err
	}
}

// usurp writes to the session like a worker that has claimed the job since.
func (e *ends) usurp(rec jobs.Record) error {
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: 2, Epoch: 1 << 40}
	_, err := e.eye.log.Writer(e.Context(), src, event.New(event.JobClaimed{}))
	return err
}
