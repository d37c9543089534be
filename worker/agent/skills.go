package agent

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// skillFiles are the files of the job's skills. As in the directories that they are from, scripts can be
// executed.
func skillFiles(skills map[string]jobs.Skill) []File {
	var files []File
	for _, name := range slices.Sorted(maps.Keys(skills)) {
		skill := skills[name]
		for _, file := range slices.Sorted(maps.Keys(skill.Files)) {
			text := skill.Files[file]
			files = append(files, File{Path: path.Join(skillsDir, name, file), Content: []byte(text), Program: strings.HasPrefix(text, "#!")})
		}
	}
	return files
}

// SkillsDir is the directory with the job's skills, as the agent sees it; empty if the job has none.
func (l Launch) SkillsDir() string {
	if len(l.Job.Agent.Skills) == 0 {
		return ""
	}
	return l.Files + "/" + skillsDir
}

// linkSkills has a program find the job's skills among those of its user. It is a link: what it leads
// to is read-only. An earlier run may have left anything in its place.
const linkSkills = `set -e
skills="$HOME/$1"
shift
rm -rf "$skills"
mkdir -p "${skills%/*}"
ln -s "$PENSTOCK_SKILLS_DIR" "$skills"
exec "$@"`

// WithSkills is a command whose program reads a user's skills from a directory of its home. Those of
// the job are there.
func (l Launch) WithSkills(dir string, command []string) []string {
	if l.SkillsDir() == "" {
		return command
	}
	return append([]string{"/bin/sh", "-c", linkSkills, "skills", dir}, command...)
}
