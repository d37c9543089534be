package jobflags

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/jobs"
)

// maxSkillEntries bounds what is looked at in a directory that turns out to be no skill.
const maxSkillEntries = 4 * jobs.MaxSkillFiles

// readSkill reads the directory of a skill, whose name is the directory's. Symbolic links, which may lead
// anywhere, are refused, and so is whatever makes it too large, before it is read.
func readSkill(dir string) (name string, skill jobs.Skill, err error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return "", skill, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", skill, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	skill.Files = map[string]string{}
	entries, size := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > maxSkillEntries || len(skill.Files) > jobs.MaxSkillFiles {
			return fmt.Errorf("it has more than %d files, which a job may give its agent with all skills together", jobs.MaxSkillFiles)
		}
		switch {
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is no regular file: symbolic links, devices and the like are not read", path)
		}
		content, err := readWithin(root, path, jobs.MaxSkillBytes-size)
		size += int64(len(content))
		skill.Files[path] = string(content)
		return err
	})
	return filepath.Base(whole), skill, err
}

// readWithin reads a file that has at most so many bytes.
func readWithin(root *os.Root, path string, room int64) (content []byte, err error) {
	f, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err = io.ReadAll(io.LimitReader(f, room+1))
	if int64(len(content)) > room {
		err = fmt.Errorf("with %s it has more than %s, which a job may give its agent with all skills together", path, jobs.Bytes(jobs.MaxSkillBytes))
	}
	return content, err
}
