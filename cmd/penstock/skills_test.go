package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// The skills of a job come from directories, are there for its agent, cannot be changed by it, and are not in
// the patch. What is no skill, and an agent that reads none, is refused before anything begins.
func TestSkillsOfAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const about = "---\nname: tide-tables\ndescription: Use this for tides.\n---\nRun scripts/tide.sh.\n"
	skill := func(files map[string]string) string {
		dir := filepath.Join(t.TempDir(), "tide-tables")
		for name, text := range files {
			f.must(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			f.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		return dir
	}
	good := skill(map[string]string{jobs.SkillFile: about, "scripts/tide.sh": "#!/bin/sh\necho high-tide $1\n"})
	said, code, told := f.try("run", "--repo", f.repo, "--skill", good, "--check", "test -z \"$(git status --short)\"", "-o", "json", "--", "sh", "-c",
		`cd "$PENSTOCK_SKILLS_DIR/tide-tables" && grep -c Use SKILL.md && scripts/tide.sh Husum
for f in SKILL.md scripts/tide.sh; do if (echo evil >$f) 2>/dev/null; then echo WROTE; fi; done; true`)
	if code != 0 || !strings.Contains(said, "high-tide Husum") || strings.Contains(said, `"text":"WROTE"`) || !strings.Contains(said, `"files_changed":0`) {
		t.Errorf("exit code %d\n%s%s", code, said, told)
	}
	submit := []string{"submit", "x", "--repo", f.repo, "--dry-run", "-o", "json"}
	if said := f.run(append(submit, "--agent", "claude", "--skill", good)...); !strings.Contains(said, `"tide-tables"`) || !strings.Contains(said, "high-tide") {
		t.Errorf("the job is %s", said)
	}
	linked := skill(map[string]string{jobs.SkillFile: about})
	f.must(os.Symlink("/etc/passwd", filepath.Join(linked, "users")))
	for dir, want := range map[string][]string{
		linked: {"--skill", "users is no regular file"},
		skill(map[string]string{jobs.SkillFile: about, "large": strings.Repeat("x", jobs.MaxSkillBytes)}): {"--skill", "it has more than"},
		skill(map[string]string{jobs.SkillFile: about, ".env": "KEY=1"}):                                  {"agent.skills.tide-tables", ".env"},
		skill(map[string]string{"README.md": "x"}):                                                        {"agent.skills.tide-tables", "needs a SKILL.md"},
		skill(map[string]string{jobs.SkillFile: strings.Replace(about, "tide-t", "t", 1)}):                {"agent.skills.tide-tables", `names the skill "tables"`},
		filepath.Join(good, "scripts/none"):                                                               {"--skill", "no such file"},
	} {
		f.refused(2, want, append(submit, "--agent", "claude", "--skill", dir)...)
	}
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	f.must(os.WriteFile(config, []byte("agents:\n  mine: {protocol: acp, command: [/bin/true]}\n"), 0o644))
	f.refused(2, []string{"agent.skills", "agent mine reads none"}, "run", "x", "--repo", f.repo, "--agent", "mine", "--skill", good, "--config", config)
}
