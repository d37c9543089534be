package dashboard_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Files of others in this package and in those of pages are what their makers published. The
// note beside them says where they are from, and their sums.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	sums := map[string]string{}
	for _, dir := range []string{"static", "jobpage/static"} {
		notes, err := filepath.Glob(filepath.Join(dir, "*.source.txt"))
		must(t, err)
		for _, note := range notes {
			text, err := os.ReadFile(note)
			must(t, err)
			for _, line := range regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(text), -1) {
				sums[filepath.Join(dir, line[2])] = line[1]
			}
		}
	}
	for _, name := range []string{"static/htmx.min.js", "jobpage/static/xterm.js", "jobpage/static/xterm.css", "jobpage/static/addon-fit.js"} {
		content, err := os.ReadFile(name)
		must(t, err)
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != sums[name] {
			t.Errorf("%s has the sum %s, and the note beside it says %q", name, got, sums[name])
		}
	}
	if len(sums) != 4 {
		t.Errorf("the notes have sums of %d files, want 4: name the new one here", len(sums))
	}
}
