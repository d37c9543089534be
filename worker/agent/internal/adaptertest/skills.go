package adaptertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/gate"
)

// A SkillCase is a real agent that is given a skill.
type SkillCase struct {
	API   string
	Dir   string // where in its home it reads those of its user; empty: a setting leads to them
	Shell func(command string) agenttest.Step
}

var skill = jobs.Skill{Files: map[string]string{
	jobs.SkillFile:     "---\nname: tide-tables\ndescription: Use this for tides-of-harbours.\n---\nRun scripts/tide.sh, and read ref/harbours.md.\n",
	"scripts/tide.sh":  "#!/bin/sh\necho high-tide\n",
	"ref/harbours.md":  "Hamburg\n",
	"ref/deep/more.md": "Husum\n",
}}

// look uses a skill's files, and tries to change them.
const look = `cd "$PENSTOCK_SKILLS_DIR/tide-tables" && scripts/tide.sh && cat ref/harbours.md ref/deep/more.md
for f in SKILL.md scripts/tide.sh ref/harbours.md; do if (echo evil >>$f) 2>/dev/null; then echo WROTE $f; fi; done
if mv SKILL.md ref/other 2>/dev/null || rm SKILL.md 2>/dev/null; then echo WROTE; fi
`

// replace leaves a directory in the place of the link to the skills.
const replace = `rm ~/LINK && mkdir -p ~/LINK/tide-tables && `

// Skilled runs a real agent in a jail whose job has a skill and instructions: its model is told of both, the
// skill's files are there, scripts can be executed, and none can be changed. A process that continues the conversation has
// it, too, whatever the first one has put in its place.
func (c SkillCase) Skilled(t *testing.T, agents *agent.Agents, l agent.Launch) {
	t.Helper()
	RequireJail(t)
	adapter, err := agents.Get(l.Job.Agent.Name)
	if err != nil {
		t.Fatal(err)
	}
	command := look + "echo looked"
	if c.Dir != "" {
		command = look + strings.ReplaceAll(replace, "LINK", c.Dir) + "echo looked"
	}
	model := agenttest.New(agenttest.Script{On: "LOOK", Steps: []agenttest.Step{c.Shell(command), Echo}}).Watch("tides-of-harbours")
	jail := harness.Jail{Backend: &bwrap.Backend{}, Limit: slowtest.Limit(90 * time.Second), Spec: sandbox.Spec{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}}
	l.Job.Agent.Skills, l.Job.Agent.Instructions = map[string]jobs.Skill{"tide-tables": skill}, instructions
	home := t.TempDir()
	way := Gated{Gate: NewGate(t, c.API, model), Session: gate.NewSession("s", JailKey, gate.Limits{})}
	r, err := jail.Run(t.Context(), adapter, l, way, &Conversation{Home: home})
	if err != nil || r.End.Outcome != jobs.Success {
		Log(t, r)
		t.Fatalf("%v, ended %+v", err, r.End)
	}
	last := ""
	for _, req := range model.Requests() {
		if strings.Contains(req.Last, "looked") {
			last = req.Last
		}
	}
	if !strings.Contains(last, "high-tide") || !strings.Contains(last, "Hamburg") || !strings.Contains(last, "Husum") || strings.Contains(last, "WROTE") {
		t.Errorf("the agent has seen:\n%s", last)
	}
	first := c.told(t, model, 0)
	at := filepath.Join(home, c.Dir)
	if i, err := os.Lstat(at); c.Dir != "" && (err != nil || !i.IsDir()) {
		t.Errorf("the agent has not replaced the link: %v, err %v", i, err)
	}
	l.Attempt, l.Resume, l.Prompt = 2, r.Total.Session, "look once more"
	if r, err = jail.Run(t.Context(), adapter, l, way, &Conversation{Home: home}); err != nil || r.End.Outcome != jobs.Success {
		t.Fatalf("resumed: %v, ended %+v", err, r.End)
	}
	c.told(t, model, first)
	if to, err := os.Readlink(at); c.Dir != "" && (err != nil || filepath.Base(to) != "skills") {
		t.Errorf("resumed: %s leads to %q, err %v", c.Dir, to, err)
	}
	if all, err := os.ReadDir(l.Cwd); err != nil || len(all) > 0 {
		t.Errorf("the workspace has %v, err %v", all, err)
	}
}

// told wants a request with the skill's description and the instructions after the first ones, and returns
// how many there are.
func (c SkillCase) told(t *testing.T, model *agenttest.Model, from int) int {
	t.Helper()
	all := model.Requests()
	if !slices.ContainsFunc(all[from:], func(r agenttest.Request) bool { return len(r.Words) > 0 && strings.Contains(r.System, instructions) }) {
		t.Errorf("none of %d requests after the first %d has the skill", len(all)-from, from)
	}
	return len(all)
}
