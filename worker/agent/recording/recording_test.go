package recording_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/agent/recording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// restless prints what differs from run to run, and what must not be kept.
const restless = `echo "$PENSTOCK_PROMPT" "$PENSTOCK_SESSION"
cat /proc/sys/kernel/random/uuid
date -u +%Y-%m-%dT%H:%M:%S.%NZ
date +%s%3N
printf '{"duration_ms":%s,"at":"%s"}\n' "$(date +%N | sed 's/^0*//')" "$(date +%FT%T%z)"
echo "$0"
echo "key $ANTHROPIC_API_KEY, $(printf %s "$ANTHROPIC_API_KEY" | base64 -w0)"
echo "of the policy: $POLICY_TOKEN"
mktemp -d /tmp/tmp.XXXXXXXX
echo noise $$ >&2
`

// record records a made-up agent that is a script of the shell.
func record(t *testing.T, script string) recording.Recording {
	t.Helper()
	exectest.Need(t, "bwrap")
	program := filepath.Join(t.TempDir(), "agent")
	if err := exectest.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	described := agent.Custom{Protocol: "command", Command: []string{program}, API: "anthropic", Env: map[string]string{"OWN": "private"}}
	agents := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": described}})
	found, err := agents.Find("mine")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Record(t.Context(), recording.Request{
		Agents: agents, Known: builtin.Agents, Agent: "mine", Described: &described, Program: found,
		Job: recording.Job{Prompt: "say hello"}, Secrets: map[string]string{"POLICY_TOKEN": "a-token-of-the-policy"},
		Jail: harness.Jail{Backend: &bwrap.Backend{}, Limit: slowtest.Limit(time.Minute), Spec: sandbox.Spec{Env: []string{"PATH=/usr/bin:/bin", "POLICY_TOKEN=a-token-of-the-policy"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// Two recordings of the same program are the same, and no key is in them.
func TestRecordingsAreStable(t *testing.T) {
	t.Parallel()
	one, two := record(t, restless), record(t, restless)
	if diff := recording.Diff(one.Transcript, two.Transcript); diff != "" && one.Compare(two) != nil {
		t.Errorf("the second recording differs:\n%s", diff)
	}
	dir := filepath.Join(t.TempDir(), "rec")
	if err := one.Write(dir); err != nil {
		t.Fatal(err)
	}
	read, err := recording.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read.Compare(two), read.Replay(builtin.Agents)); err != nil {
		t.Error(err)
	}
	var all strings.Builder
	for _, name := range []string{"recording.json", "transcript.jsonl", "events.golden"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, secret := range []string{harness.JailKey, "cGVuc3RvY2sta2V5", "a-token-of-the-policy", "private", os.TempDir() + "/Test"} {
		if strings.Contains(all.String(), secret) {
			t.Errorf("the recording has %q:\n%s", secret, all.String())
		}
	}
	for _, kept := range []string{"say hello", "noise", `{"exit":0`, "01890000-0000-7000-8000-000000000001", `"protocol": "command"`} {
		if !strings.Contains(all.String(), kept) {
			t.Errorf("the recording lacks %q:\n%s", kept, all.String())
		}
	}
}

// A program that behaves in another way is told apart, and so is an adapter.
func TestDifferencesAreShown(t *testing.T) {
	t.Parallel()
	was := record(t, "echo one\necho two\n")
	differs, ok := errors.AsType[*recording.DifferenceError](was.Compare(record(t, "echo one\necho three\n")))
	if !ok || !strings.Contains(differs.Diff, `- {"out":"two"}`) || !strings.Contains(differs.Diff, `+ {"out":"three"}`) || !strings.Contains(differs.Diff, `  {"out":"one"}`) {
		t.Errorf("another line: %v", differs)
	}
	differs, ok = errors.AsType[*recording.DifferenceError](was.Compare(record(t, "echo one\necho two\nexit 3\n")))
	if !ok || !strings.Contains(differs.Diff, `+ {"exit":3`) {
		t.Errorf("another exit: %v", differs)
	}
	was.Events = strings.Replace(was.Events, "output.line", "message", 1)
	differs, ok = errors.AsType[*recording.DifferenceError](was.Replay(builtin.Agents))
	if !ok || !strings.Contains(differs.Diff, "- -> mine/1 message") && !strings.Contains(differs.Diff, "message") {
		t.Errorf("other events: %v", differs)
	}
	cut := was
	cut.Transcript = strings.Replace(was.Transcript, `{"exit":0,"signal":""}`, "", 1)
	if err := cut.Replay(builtin.Agents); err == nil {
		t.Error("a transcript without an exit is replayed")
	}
}

func TestDiff(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct{ was, is, want string }{
		{"a\nb", "a\nb", ""},
		{"a\nb\nc\nd\ne\nf", "a\nb\nc\nX\ne\nf", "@@ line 2\n  b\n  c\n- d\n+ X\n  e\n  f\n"},
		{"a", "a\nb", "@@ line 1\n  a\n+ b\n"},
		{long + "1" + long, long + "2" + long, "1x"},
	} {
		got := recording.Diff(tt.was, tt.is)
		if len(tt.was) < 100 && got != tt.want || !strings.Contains(got, tt.want) || len(got) > 800 {
			t.Errorf("of %.20q and %.20q: got\n%s\nwant\n%s", tt.was, tt.is, got, tt.want)
		}
	}
}
