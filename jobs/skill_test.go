package jobs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// Skills are directories of texts with plain names, and their SKILL.md says their name and what they are for.
func TestSkills(t *testing.T) {
	t.Parallel()
	const good = "---\nname: tide\ndescription: \"Tides.\"\n---\ntext\n"
	with := func(name string, files map[string]string) map[string]jobs.Skill {
		return map[string]jobs.Skill{name: {Files: files}}
	}
	beside := func(path, text string) map[string]jobs.Skill {
		return with("tide", map[string]string{jobs.SkillFile: good, path: text})
	}
	many, files := map[string]jobs.Skill{}, map[string]string{jobs.SkillFile: good}
	for i := range jobs.MaxSkills + 1 {
		name := fmt.Sprint("tide-", i)
		many[name] = jobs.Skill{Files: map[string]string{jobs.SkillFile: strings.Replace(good, "tide", name, 1)}}
	}
	for i := range jobs.MaxSkillFiles {
		files[fmt.Sprint("f", i)] = ""
	}
	for _, tt := range []struct {
		skills map[string]jobs.Skill
		wrong  string // "": nothing is
	}{
		{with("tide", map[string]string{jobs.SkillFile: good, "scripts/a.sh": "#!/bin/sh\n", "a/b/c/d_e-f.md": ""}), ""},
		{with("tide", map[string]string{jobs.SkillFile: strings.ReplaceAll(good, "\n", "\r\n")}), ""},
		{with("tide", nil), "agent.skills.tide: needs a SKILL.md"},
		{with("tide", map[string]string{jobs.SkillFile: "# Tide\n"}), "needs a SKILL.md that begins"},
		{with("ebb", map[string]string{jobs.SkillFile: good}), `agent.skills.ebb: SKILL.md names the skill "tide", and not "ebb"`},
		{with("tide", map[string]string{jobs.SkillFile: "---\nname: tide\ndescription:\n---\n"}), "SKILL.md has no description"},
		{with("../tide", map[string]string{jobs.SkillFile: good}), `"../tide" is not the name of a skill`},
		{with("Tide", map[string]string{jobs.SkillFile: good}), "is not the name"},
		{with("-tide", map[string]string{jobs.SkillFile: good}), "is not the name"},
		{beside("../x", ""), `"../x" is not the path`},
		{beside("/x", ""), "is not the path"},
		{beside("a/../x", ""), "is not the path"},
		{beside("a//x", ""), "is not the path"},
		{beside(".hidden", ""), "is not the path"},
		{beside("a/b/c/d/e", ""), "is not the path"},
		{beside("x\n", ""), "is not the path"},
		{beside("SKILL.md/x", ""), `"SKILL.md" is a file and a directory`},
		{beside("x", "\xff"), "x is not a text"},
		{beside("x", "a\x00b"), "x is not a text"},
		{beside("x", strings.Repeat("x", jobs.MaxSkillBytes)), "agent.skills: has 2 files of 262190B together"},
		{with("tide", files), "has 65 files"},
		{many, "has 17 skills, at most 16"},
	} {
		job := jobs.Job{Prompt: "x", Repo: jobs.Repo{URL: "/r"}, Agent: jobs.Agent{Name: "claude", Skills: tt.skills}}.WithDefaults()
		err := job.Validate()
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%.200v: %v, want %q", tt.skills, err, tt.wrong)
		}
	}
}
