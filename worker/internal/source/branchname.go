package source

import (
	"regexp"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/git"
)

var branchPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`) })

// PlainBranch accepts a branch's name that may become a path below refs. It does not
// trust names that a remote sends.
func PlainBranch(name string) string {
	name = strings.TrimPrefix(name, "refs/heads/")
	if !branchPattern().MatchString(name) || git.IsCommit(name) || strings.Contains(name, "..") || strings.Contains(name, "//") ||
		strings.Contains(name, "/.") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".") {
		return ""
	}
	return name
}
