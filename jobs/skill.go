package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the skills that a job may give its agent.
const (
	MaxSkills     = 16
	MaxSkillFiles = 64        // of all of them together
	MaxSkillBytes = 256 << 10 // of these files
)

// A Skill is a directory of instructions that the agent reads where its description says that they
// are wanted.
type Skill struct {
	// Files are texts, by their paths in the directory. SKILL.md begins with the skill's name and
	// description, between two lines of ---.
	Files map[string]string `json:"files"`
}

// SkillFile is the file that each skill has.
const SkillFile = "SKILL.md"

var (
	skillName = pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	skillPath = pattern(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*){0,3}$`)
)

// validateSkills: agents read a skill by its name and description, and ignore one that lacks them.
func (j Job) validateSkills(found *InvalidError) {
	const field = "agent.skills"
	if len(j.Agent.Skills) > MaxSkills {
		found.add(field, fmt.Errorf("has %d skills, at most %d are allowed", len(j.Agent.Skills), MaxSkills))
	}
	files, size := 0, 0
	for _, name := range slices.Sorted(maps.Keys(j.Agent.Skills)) {
		s, of := j.Agent.Skills[name], field+"."+name
		if len(name) > 64 || !skillName().MatchString(name) {
			found.add(field, fmt.Errorf("%.80q is not the name of a skill: use up to 64 of a-z, 0-9 and single '-' between them", name))
			continue
		}
		for path, content := range s.Files {
			files, size = files+1, size+len(content)
			found.add(of, s.checkFile(path))
		}
		found.add(of, checkSkillFile(name, s.Files[SkillFile]))
	}
	if files > MaxSkillFiles || size > MaxSkillBytes {
		found.add(field, fmt.Errorf("has %d files of %s together, at most %d of %s are allowed", files, Bytes(size), MaxSkillFiles, Bytes(MaxSkillBytes)))
	}
}

// checkFile accepts texts whose paths are the same on each system and lead nowhere else.
func (s Skill) checkFile(path string) error {
	if len(path) > 200 || !skillPath().MatchString(path) {
		return fmt.Errorf("%.210q is not the path of a file of a skill: use names of letters, digits, '.', '_' and '-' that do not begin with '.' or '-', in at most three directories", path)
	}
	for dir, _, nested := cutLast(path); nested; dir, _, nested = cutLast(dir) {
		if _, file := s.Files[dir]; file {
			return fmt.Errorf("%q is a file and a directory", dir)
		}
	}
	if !utf8.ValidString(s.Files[path]) || strings.ContainsRune(s.Files[path], 0) {
		return fmt.Errorf("%s is not a text in UTF-8", path)
	}
	return nil
}

func cutLast(path string) (dir, name string, found bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return path, "", false
	}
	return path[:i], path[i+1:], true
}

// checkSkillFile wants the name and a description at the beginning of SKILL.md.
func checkSkillFile(name, text string) error {
	head, begins := strings.CutPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "---\n")
	head, _, ends := strings.Cut(head, "\n---")
	if !begins || !ends {
		return fmt.Errorf("needs a %s that begins with a line of ---, the fields name and description, and another line of ---", SkillFile)
	}
	fields := map[string]string{}
	for line := range strings.Lines(head) {
		if key, value, is := strings.Cut(line, ":"); is {
			fields[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	if fields["name"] != name {
		return fmt.Errorf("%s names the skill %.80q, and not %q", SkillFile, fields["name"], name)
	}
	if fields["description"] == "" {
		return fmt.Errorf("%s has no description", SkillFile)
	}
	return nil
}
