package git

import (
	"os"
	"path/filepath"
	"strings"
)

// AgentBranch is the branch in an agent's repository, and in a bundle of its commits.
const AgentBranch = "agent"

// Every git knows EmptyTree without storing it.
const EmptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Init makes an empty git directory without templates and hooks, for object names of
// idLen characters. It does the same as git init without starting a process.
func Init(dir string, idLen int, core string, more ...string) error {
	for _, sub := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	version, extension := "0", ""
	if idLen == 64 {
		version, extension = "1", "[extensions]\n\tobjectFormat = sha256\n"
	}
	config := "[core]\n\trepositoryformatversion = " + version + "\n\tfilemode = true\n\t" + core + "\n" +
		extension + strings.Join(more, "")
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644)
}

// Quote writes a path as git reads it in a list of alternates, and in a stream
// for git fast-import.
func Quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}
