package repocache

import (
	"fmt"
	"os"
	"path/filepath"
)

// cloneConfig lets the agent's git rely on an index that the host made. Whose
// the files are is not the same inside, and git, if it went by that, would take
// each for changed until it has read it.
const cloneConfig = "[core]\n\tcheckStat = minimal\n"

// CopyGit makes a git directory with all that the base's has.
func (b *Base) CopyGit(to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(b.Git())); err != nil {
		return fmt.Errorf("copy git directory: %w", err)
	}
	return configure(to, cloneConfig)
}

// LendGit makes a git directory without objects: git finds those of the base at
// objectsPath, where a jail shows them.
func (b *Base) LendGit(to string) error {
	if err := copyWithoutObjects(to, b.Git()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "objects/info/alternates"), []byte(ObjectsPath+"\n"), 0o644)
}
