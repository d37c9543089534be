package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a tag of an action leads to can change, and a workflow has rights: so each action is
// named by its commit, with the version beside it, and each workflow says which rights it has.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	pinned := regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	versions := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains("\n"+string(data), "\npermissions:") {
			t.Errorf("%s: the workflow does not say which permissions it needs", file)
		}
		for line := range strings.Lines(string(data)) {
			_, action, uses := strings.Cut(strings.TrimSpace(line), "uses: ")
			if !uses || strings.HasPrefix(action, "./") {
				continue
			}
			if !pinned.MatchString(action) {
				t.Errorf("%s: %s is not pinned by commit, with its version as a comment", file, action)
			}
			name, at, _ := strings.Cut(action, "@")
			if other := versions[name]; other != "" && other != at {
				t.Errorf("%s: %s is %s, and elsewhere %s", file, name, at, other)
			}
			versions[name] = at
		}
	}
}
