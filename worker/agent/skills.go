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

// linkHome has a program find something of the job in its home. It is a link: what it leads
// to is read-only. An earlier run may have left anything in its place.
const linkHome = `set -e
at="$HOME/$1" to="$2"
shift 2
rm -rf "$at"
mkdir -p "${at%/*}"
ln -s "$to" "$at"
exec "$@"`

// inHome is a command whose program finds in its home, at a path there, what is to.
func inHome(at, to string, command []string) []string {
	return append([]string{"/bin/sh", "-c", linkHome, "in-home", at, to}, command...)
}

// WithSkills is a command whose program reads a user's skills from a directory of its home. Those of
// the job are there.
func (l Launch) WithSkills(dir string, command []string) []string {
	if l.SkillsDir() == "" {
		return command
	}
	return inHome(dir, l.SkillsDir(), command)
}
