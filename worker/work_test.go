package worker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// The dispatcher that accepted a job may not have known what the worker's agent can do.
func TestWhatTheAgentCannotDoIsNotTried(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.job("touch made")
	job.Agent.MaxTurns = 3
	rec, events := f.run(job)
	if rec.Reason != jobs.InvalidJob || !strings.Contains(rec.Message, "agent.max_turns") || count(events, jobs.WorkspaceDone) > 0 {
		t.Errorf("ended with %s %q: %s", rec.Reason, rec.Message, kinds(events))
	}
}

// What the agent said decides nothing where a job wants to see a change.
func TestAJobExpectsChanges(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	for _, tt := range []struct {
		script string
		reason jobs.Reason
	}{
		{"echo I have done it", jobs.NoChanges},
		{"echo new >made; rm made; cat README >x; cat x >README; rm x", jobs.NoChanges},
		{`c() { git -c user.name=a -c user.email=a@example.com commit -q -m "$1"; }
			echo x >f && git add f && c done && git rm -q f && c undone`, jobs.NoChanges},
		{"echo more >>README", ""},
		{"exit 3", jobs.AgentFailed},
	} {
		job := f.job(tt.script)
		job.ExpectChanges = true
		rec, events := f.ended(f.submit(job).ID)
		if rec.Reason != tt.reason || rec.Outcome != jobs.Reasons[tt.reason].Outcome && tt.reason != "" {
			t.Errorf("%s: ended with %s %s %q: %s", tt.script, rec.Outcome, rec.Reason, rec.Message, kinds(events))
		}
	}
	rec, _ := f.ended(f.submit(f.job("echo I have done it")).ID)
	if rec.Outcome != jobs.Success {
		t.Errorf("nobody expected a change: %s %s", rec.Outcome, rec.Reason)
	}
}

// mends is an agent that does something wrong, and mends it when it is told
// what the check said. It has no memory, so it needs to hear the job again.
const mends = `case $PENSTOCK_ROUND in
0) echo bad >out; ! grep -q "marker lines" "$PENSTOCK_PROMPT_FILE";;
*) grep -q "^test" "$PENSTOCK_PROMPT_FILE" && grep -q "^wanted: good" "$PENSTOCK_PROMPT_FILE" && echo good >out;;
esac`

const wantsGood = `grep -q good out || { echo "wanted: good"; exit 3; }`

func TestAFailingCheckGoesBackToTheAgent(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	for _, tt := range []struct {
		name   string
		change func(*jobs.Job)
		reason jobs.Reason
		checks []int // how they ended, in order
		back   int   // how often one went back
		runs   int   // of the agent
	}{
		{"it mends it", func(*jobs.Job) {}, "", []int{3, 0}, 1, 2},
		{"there is nothing to mend", func(j *jobs.Job) { j.Check = []string{"true"} }, "", []int{0}, 0, 1},
		{"it never does", func(j *jobs.Job) { j.Agent.Command, j.Check = []string{"true"}, []string{"true", "exit 5"} }, jobs.CheckFailed, []int{0, 5, 0, 5, 0, 5}, 2, 3},
		{"it fails when it is told", func(j *jobs.Job) { j.Agent.Command = []string{"sh", "-c", `exit $PENSTOCK_ROUND`} }, jobs.AgentFailed, []int{3}, 1, 2},
		{"what prepares the workspace is no check", func(j *jobs.Job) { j.Setup = []string{"exit 7"} }, jobs.SetupFailed, []int{7}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := f.job(mends)
			job.Check, job.CheckRounds = []string{wantsGood}, 2
			tt.change(&job)
			rec, events := f.ended(f.submit(job).ID)
			var result jobs.Result
			f.must(json.Unmarshal(events[len(events)-1].Data, &result))
			var exits []int
			for _, c := range result.Checks {
				exits = append(exits, c.Exit)
			}
			if rec.Reason != tt.reason || !slices.Equal(exits, tt.checks) || count(events, jobs.CheckReturned) != tt.back || count(events, jobs.RunExited) != tt.runs {
				t.Errorf("ended with %s %q, checks %v: %s", rec.Reason, rec.Message, exits, kinds(events))
			}
		})
	}
}
