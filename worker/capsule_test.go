package worker

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/workspace"
)

// A stub that has a memory: it writes what it hears to the file of its
// conversation, and says how much of that there is. Where it is told to resume
// a conversation that it does not find, it ends as Claude Code does.
const remembers = hears + `mine=$HOME/.claude/projects/-workspace/s.jsonl
case $* in *--resume*) [ -s $mine ] || { echo '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found"]}'; exit 1; };; esac
mkdir -p ${mine%/*}
while read -r l; do case $l in
*'"type":"user"'*) printf '%s\n' "$l" >>$mine; wc -l <$mine >>turns.txt; turn "$l";;
*interrupt*) say aborted;;
esac; done`

func (f *field) capsules(id string) []jobs.Capsule {
	f.Helper()
	list, err := f.eye.store.Capsules(f.Context(), id)
	f.must(err)
	return list
}

// restores lets workspaces be restored, which takes a jail.
func (f *field) restores() {
	f.Helper()
	jail, err := f.cfg.Backend("auto")
	f.must(err)
	f.cfg.Spaces, err = workspace.Open(f.Context(), workspace.Config{Dir: f.dir, Jail: jail})
	f.must(err)
}

// sealed waits until a capsule is stored of so many turns.
func (f *field) sealed(id string, turn int) jobs.Capsule {
	f.Helper()
	var c jobs.Capsule
	f.until("a capsule", func() bool {
		for _, c = range f.capsules(id) {
			if c.Turn == turn {
				return true
			}
		}
		return false
	})
	return c
}

// unpacked is the conversation in a capsule.
func (f *field) unpacked(c jobs.Capsule) string {
	f.Helper()
	content, err := f.eye.store.Get(f.Context(), c.Job, c.Epoch, c.Home.Name)
	f.must(err)
	defer content.Close()
	home := f.TempDir()
	f.must(capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{".claude/projects/*/{id}.jsonl"}}, ID: "s"}.Unpack(content))
	data, err := os.ReadFile(filepath.Join(home, ".claude/projects/-workspace/s.jsonl"))
	f.must(err)
	return string(data)
}

// A capsule is stored at the end of each turn, and a later attempt goes on from
// it: with the conversation, the changed files, and what was heard by then.
func TestAConversationGoesOnInTheNextAttempt(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	f.cfg.Secret = func(string) (string, bool) { return "hunter2hunter2", true }
	job := f.speaks(remembers)
	job.Agent.Interactive, job.Secrets = true, []string{"TOKEN"}
	stop := f.work()
	id := f.submit(job).ID
	f.hears(id, "test")
	f.sealed(id, 1)
	f.told(id, prompt("two, and hunter2hunter2"))
	c := f.sealed(id, 2)
	if c.Open || len(c.Heard) != 1 || c.Why != "" || c.Work == nil || c.Work.Files != 1 || c.Conversation == "" {
		t.Errorf("stored %+v", c)
	}
	stop() // which hands the job back at once
	if c := f.capsules(id)[0]; c.Why != jobs.WorkerDrained || c.Turn != 2 {
		t.Errorf("at the attempt's end: %+v", c)
	}
	defer f.work()()
	f.sealed(id, 3)
	f.told(id, prompt("four"))
	f.hears(id, "four")
	f.told(id, control.Message{Verb: control.Stop})
	rec, events := f.ended(id)
	if rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Fatalf("ended with %s %s (%s) in attempt %d: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
	}
	said := heard(events)
	if len(said) != 4 || said[0] != "test" || !strings.HasPrefix(said[2], "This conversation goes on") || said[3] != "four" {
		t.Errorf("the agents heard %q", said)
	}
	how := dataOf[event.SessionContinued](t, events, jobs.SessionContinued)
	if len(how) != 1 || how[0].How != "resumed" || how[0].Epoch != c.Epoch || how[0].Turn != 2 || how[0].Conversation != c.Conversation {
		t.Errorf("told of %+v, the capsule was %+v", how, c)
	}
	for _, c := range f.capsules(id) {
		if home := f.unpacked(c); strings.Contains(home, "hunter2") || !strings.Contains(home, "[redacted TOKEN]") {
			t.Errorf("the capsule has the secret:\n%s", home)
		}
	}
	patch, err := f.eye.store.Get(t.Context(), id, rec.Epoch, PatchName)
	f.must(err)
	defer patch.Close()
	if got, err := io.ReadAll(patch); err != nil || !strings.Contains(string(got), "+1\n+2\n+3\n+4\n") {
		t.Errorf("the conversation had other lengths than 1 to 4:\n%s", got)
	}
}

// lastOf is where the last event of a kind is; -1: there is none.
func lastOf(events []jobs.Event, kind jobs.Kind) int {
	at := -1
	for i, e := range events {
		if e.Kind == kind {
			at = i
		}
	}
	return at
}

// A capsule that is broken, or that the agent does not take, costs the
// conversation and not the job: the attempt begins anew, and says why.
func TestAnAttemptThatCannotResumeBeginsAnew(t *testing.T) {
	t.Parallel()
	for says, harm := range map[string]func(f *field, c jobs.Capsule) jobs.Capsule{
		"broken": func(_ *field, c jobs.Capsule) jobs.Capsule {
			c.Home.Name = "part." + strings.Repeat("0", 64)
			return c
		},
		"did not resume": func(f *field, c jobs.Capsule) (empty jobs.Capsule) {
			home, packed := f.TempDir(), &bytes.Buffer{}
			file := filepath.Join(home, ".claude/projects/-workspace/s.jsonl")
			f.must(os.MkdirAll(filepath.Dir(file), 0o755))
			f.must(os.WriteFile(file, nil, 0o644))
			f.must(capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{".claude/projects/*/{id}.jsonl"}}, ID: "s"}.Pack(packed, unclean{}))
			var err error
			c.Home, err = f.eye.store.PutPart(f.Context(), c.Job, c.Epoch, bytes.NewReader(packed.Bytes()))
			f.must(err)
			return c
		},
	} {
		f := newField(t)
		f.restores()
		job := f.speaks(remembers)
		job.Agent.Interactive = true
		stop := f.work()
		id := f.submit(job).ID
		f.sealed(id, 1)
		f.told(id, prompt("two"))
		f.hears(id, "two")
		stop()
		last := f.capsules(id)[0]
		f.must(f.eye.store.PutCapsule(t.Context(), harm(f, last), last))
		stop = f.work()
		f.until("the agents are told all of it, and have ended their turn", func() bool {
			events := f.events(id)
			said := heard(events)
			// To stop it within a turn is to cancel the job.
			return len(said) == 4 && said[2] != "" && said[3] == "two" && lastOf(events, jobs.TurnEnded) > lastOf(events, jobs.Message)
		})
		f.told(id, control.Message{Verb: control.Stop})
		rec, events := f.ended(id)
		stop()
		how := dataOf[event.SessionContinued](t, events, jobs.SessionContinued)
		if end := how[len(how)-1]; rec.Outcome != jobs.Success || rec.Attempt != 2 || end.How != "anew" || !strings.Contains(end.Why, says) || end.Epoch != last.Epoch {
			t.Errorf("%s: %s %s (%s) in attempt %d, told %+v", says, rec.Outcome, rec.Reason, rec.Message, rec.Attempt, how)
		}
	}
}

// unclean leaves a conversation as it is.
type unclean struct{}

func (unclean) Line(line []byte) []byte { return line }

func (unclean) Mask(value []byte) []byte { return value }
